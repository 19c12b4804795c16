/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast path: a usual packet whose destination is known, so that no table
 * need be searched. Nothing here calls a function that takes the flow's
 * address, so that the flow stays in registers.
 */
#ifndef WEIR_FAST_PATH_H
#define WEIR_FAST_PATH_H

#include "account.h"
#include "lookup.h"
#include "parse.h"
#include "tcp.h"
#include "translation.h"
#include "udp.h"

/* How a flow's destination is to be found. */
static __always_inline enum weir_target target_of(const struct flow *flow,
						  enum weir_parse parse)
{
	switch (parse) {
	case WEIR_PARSE_UDP:
		return is_group_mac(flow->mac) ? WEIR_TARGET_UDP_GROUP
					       : WEIR_TARGET_UDP;
	case WEIR_PARSE_TCP:
		return tcp_is_syn(flow) ? WEIR_TARGET_TCP_SYN : WEIR_TARGET_TCP;
	default:
		return WEIR_TARGET_FORWARD;
	}
}

/*
 * May ip_forward() or ip6_forward() have another use for it before any queue?
 * It has gone too far, may alert who listens here (RFC 2113, 2711; few packets
 * have other options), or asks for a neighbour for whom this host answers
 * (ip6_forward_proxy_check()).
 */
static __always_inline bool is_for_routers(const struct flow *flow)
{
	return flow->ttl <= 1 || flow->optional ||
	       (flow->protocol == IPPROTO_ICMPV6 &&
		flow->icmp_type >= ICMPV6_ND_FIRST &&
		flow->icmp_type <= ICMPV6_ND_LAST);
}

/* Might a packet fit that is charged less than those refused, or is shorter? */
static __always_inline bool may_fit(const struct weir_destination *entry,
				    const struct flow *flow, __u32 truesize)
{
	/*
	 * Egress queues of bytes: full_from is 0 of any other. What is for
	 * routers, or may be too long, no queue is asked about: forward().
	 */
	if (entry->reason == WEIR_REASON_FORWARD_FULL)
		return is_for_routers(flow) || flow->ip_len > entry->truesize ||
		       flow->ip_len < entry->full_from;
	if (entry->reason != WEIR_REASON_UDP_FULL &&
	    entry->reason != WEIR_REASON_MULTICAST_FULL)
		return false;
	if (DEFECT(SHORT_PACKET_JUDGED))
		return false;
	if (!truesize && is_piece(flow))
		return true;
	return truesize ? truesize < entry->truesize
			: flow->ip_len < entry->full_from;
}

/* Is it charged something else than those that the queue is to be told of? */
static __always_inline bool is_unlike(const struct weir_destination *entry,
				      const struct flow *flow, __u32 truesize)
{
	if (!entry->lent || DEFECT(LENT_TO_ANY_LENGTH))
		return false;
	return flow->ip_len != entry->lent_len ||
	       flow->fragment != WEIR_FRAGMENT_NONE ||
	       (truesize && truesize != entry->truesize);
}

/* What tells a channel from the others of one CPU well enough. */
static __always_inline __u64 channel_id(const struct weir_destination *entry)
{
	return (__u64)entry->target << 56 | (__u64)entry->port_be << 32 |
	       (entry->address[0] ^ entry->address[3]);
}

/* For the governor: is another channel live beside the one that is full? */
static __always_inline void note_company(const struct weir_destination *entry,
					 struct weir_poll *poll, __u32 packets)
{
	if (poll->full_id && poll->full_id != channel_id(entry) &&
	    entry->kind != WEIR_KIND_CLOSED)
		poll->beside += packets;
}

/*
 * Would a discard leave its receiver more of the CPU? The receiver of what an
 * egress interface sends is elsewhere.
 */
static __always_inline bool has_receiver(const struct weir_destination *entry)
{
	return entry->kind != WEIR_KIND_FORWARD || entry->screened;
}

static __always_inline void count_channel(struct weir_destination *entry,
					  struct weir_poll *poll,
					  struct weir_counter seen,
					  __u32 reason)
{
	if (verdict_of_reason(reason) == WEIR_VERDICT_DISCARD) {
		if (has_receiver(entry) || is_share(reason)) {
			count_discard(poll, seen.packets);
			poll->full_id = channel_id(entry);
		}
		if (is_share(reason)) {
			counter_add(&entry->seen[WEIR_SEEN_SHED], seen);
		} else {
			counter_add(&entry->seen[WEIR_SEEN_FULL], seen);
		}
	} else {
		note_company(entry, poll, seen.packets);
		account_add(entry->account, seen.packets);
		if (entry->kind == WEIR_KIND_FORWARD)
			poll->forwarded[entry->screened & 1]++;
		counter_add(&entry->seen[WEIR_SEEN_PASSED], seen);
	}
}

/* The destination's answer is this packet's. */
static __always_inline __u32 answer(struct weir_destination *entry,
				    struct weir_poll *poll,
				    struct weir_counter seen)
{
	if (entry->left > seen.packets)
		entry->left -= seen.packets;
	else
		entry->left = 0;
	count_channel(entry, poll, seen, entry->reason);
	return entry->reason;
}

/* Is there an answer, and does it hold for this packet, whoever sent it? */
static __always_inline bool answer_holds(const struct weir_destination *entry,
					 const struct flow *flow,
					 __u32 truesize,
					 const struct weir_poll *poll)
{
	return destination_is_fresh(entry, poll) &&
	       !may_fit(entry, flow, truesize) &&
	       !is_unlike(entry, flow, truesize);
}

static __always_inline bool is_answered(const struct weir_destination *entry,
					const struct flow *flow, __u32 truesize,
					const struct weir_poll *poll)
{
	return answer_holds(entry, flow, truesize, poll) &&
	       destination_has_peer(entry, flow);
}

/* Who sends a packet, and what it is charged. */
static __always_inline void charge_packet(const struct flow *flow,
					  __u32 truesize, __u32 packets,
					  __u64 now, struct charge *charge)
{
	charge_of(flow, truesize, now, charge);
	charge->packets = packets;
	if (interface.selective)
		charge->source = source_hash(flow);
}

/*
 * Is this still the only socket that the packet can be for? In the poll in
 * which that was looked at it is, for some packets; later its place in the
 * kernel's table says so.
 */
static __always_inline bool udp_is_known(struct weir_destination *entry,
					 const struct weir_poll *poll)
{
	if (!entry->sock)
		return false;
	if (entry->alone_left && entry->moment == poll->moment &&
	    !entry->connected)
		return true;
	if (!udp_is_still_alone(entry))
		return false;
	entry->alone_left = WEIR_REMEMBERED;
	return true;
}

/* The socket is known: only its queue is looked at. */
static __always_inline void judge_known(struct weir_destination *entry,
					const struct charge *charge,
					struct prospects *prospects)
{
	prospects_begin(prospects, entry->alone_left);
	udp_judge(entry, entry->sock, charge, prospects);
	entry->alone_left -= prospects->good_for ?: 1;
	destination_conclude(entry, prospects);
}

/*
 * The same where the flow is in registers. A whole packet is charged by its
 * length alone.
 */
static __noinline bool udp_look_again(struct weir_destination *entry,
				      __u32 ip_len, __u32 truesize,
				      __u64 source)
{
	struct workspace *workspace = get_workspace();
	struct weir_poll *poll = current_poll();
	struct flow flow = {.ip_len = ip_len};
	struct prospects *prospects;

	if (!workspace || !poll || !udp_is_known(entry, poll))
		return false;
	prospects = &workspace->prospects;
	charge_of(&flow, truesize, poll->now_ns, &workspace->charge);
	workspace->charge.packets = 1;
	workspace->charge.source = source;
	judge_known(entry, &workspace->charge, prospects);
	return true;
}

/*
 * Where the egress queue to its destination is full for packets of another
 * sender, TOS or flow label: so it is for this one if it is sent the same way.
 */
static __always_inline bool goes_there_too(void *ctx,
					   const struct weir_destination *entry,
					   const struct flow *flow)
{
	struct workspace *workspace = get_workspace();

	return workspace && entry->reason == WEIR_REASON_FORWARD_FULL &&
	       leads_on(route_of(ctx, flow, interface.ifindex, flow->ip_len,
				 &workspace->route)) &&
	       workspace->route.ifindex == entry->egress_ifindex;
}

/*
 * Looks at the one queue that the packet is for, where that is known; whether
 * it was. Of a listener only the address is: a connection has its own use for a
 * SYN, so the socket is what the kernel's lookup finds.
 */
static __always_inline bool look_again(void *ctx,
				       struct weir_destination *entry,
				       const struct flow *flow, __u32 truesize,
				       const struct weir_poll *poll)
{
	struct workspace *workspace;
	struct prospects *prospects;

	if (entry->target == WEIR_TARGET_UDP)
		return udp_look_again(entry, flow->ip_len, truesize,
				      interface.selective ? source_hash(flow)
							  : 0);
	workspace = get_workspace();
	if (!workspace || entry->target != WEIR_TARGET_TCP_SYN ||
	    entry->connected || entry->generation != interface.generation ||
	    (entry->reason != WEIR_REASON_TCP_BACKLOG_FULL &&
	     entry->reason != WEIR_REASON_TCP_SYN))
		return false;
	prospects = &workspace->prospects;
	prospects_begin(prospects, WEIR_REMEMBERED);
	tcp_syn(ctx, flow, entry, workspace, poll);
	if (DEFECT(SYN_OF_CONNECTION) &&
	    entry->reason == WEIR_REASON_TCP_BACKLOG_FULL)
		prospects->room = 0;
	/* A listener that still is full: all stays as it was concluded. */
	if (!prospects->room && entry->reason == WEIR_REASON_TCP_BACKLOG_FULL) {
		entry->moment = poll->moment;
		return true;
	}
	destination_set_channel(entry, prospects);
	destination_conclude(entry, prospects);
	return true;
}

/*
 * Why this packet, of one buffer or more, passes or is discarded; NO_REASON: it
 * is not known yet.
 */
static __always_inline int fast_path(void *ctx, bool on_skb,
				     struct cursor cursor, __u32 len,
				     __u32 truesize)
{
	struct weir_counter seen = {.packets = 1, .bytes = len};
	struct weir_destination *entry;
	struct weir_poll *poll;
	enum weir_target target;
	enum weir_parse found;
	struct flow flow = {};

	found = parse_usual(&cursor, &flow, len);
	if ((found != WEIR_PARSE_UDP && found != WEIR_PARSE_TCP) ||
	    !is_own_mac(flow.mac))
		return NO_REASON;
	target = target_of(&flow, found);
	entry = destination_place(&flow, target);
	poll = current_poll();
	if (!entry || !poll || !destination_is_of(entry, &flow, target))
		return NO_REASON;
	if (!(answer_holds(entry, &flow, truesize, poll) &&
	      (destination_has_peer(entry, &flow) ||
	       goes_there_too(ctx, entry, &flow))) &&
	    !look_again(ctx, entry, &flow, truesize, poll))
		return NO_REASON;
	if (is_translated(ctx, on_skb, &flow, entry->reason))
		return kind_charge(WEIR_REASON_TRANSLATED, seen.packets);
	return answer(entry, poll, seen);
}

/* Functions of their own for their frames on the stack. */
static __noinline int xdp_fast_path(struct xdp_md *ctx, __u32 len)
{
	return fast_path(ctx, false, cursor_of(ctx), len, 0);
}

static __noinline int skb_fast_path(struct __sk_buff *skb, __u32 truesize)
{
	return fast_path(skb, true, cursor_of(skb), skb->len, truesize);
}

#endif /* WEIR_FAST_PATH_H */
