/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The slow path, of packets that the fast path does not know: from a flow to
 * its channel and that channel's state.
 */
#ifndef WEIR_SLOW_PATH_H
#define WEIR_SLOW_PATH_H

#include "egress.h"
#include "explain.h"
#include "fast_path.h"
#include "fragment.h"
#include "lookup.h"
#include "packet.h"
#include <linux/icmpv6.h>

#define ICMP_UNREACHABLE 3 /* also: fragmentation needed */
#define ICMP_SOURCE_QUENCH 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
#define ICMPV6_ERROR_LAST ICMPV6_PARAMPROB
/* None but neighbours can send it (RFC 4861, section 3.1)... */
#define TTL_ON_LINK 255
/* ...or nobody forwards it (RFC 2236, 3376, 2710, 3810), which its last router
 * has not, either, if it goes to a group, or comes from the link. */
#define TTL_GROUP 1

static __always_inline __u32 icmp_reason(__u8 type)
{
	return type == ICMP_UNREACHABLE || type == ICMP_SOURCE_QUENCH ||
			       type == ICMP_TIME_EXCEEDED ||
			       type == ICMP_PARAMETER_PROBLEM
		       ? WEIR_REASON_ICMP_ERROR
		       : WEIR_REASON_ICMP;
}

static __always_inline __u32 igmp_reason(__u8 ttl, __be32 destination)
{
	return ttl == TTL_GROUP && is_group4(destination) ? WEIR_REASON_GROUP
							  : WEIR_REASON_ICMP;
}

/* A link-local address, or none yet. A function of its own for its callers'
 * frames: Linux 6.1 has no room to spare in them. */
static __noinline bool is_of_link6(const __u32 *source)
{
	return is_link_local6(source) ||
	       !(source[0] | source[1] | source[2] | source[3]);
}

/* What comes from off the link keeps no network together. */
static __always_inline __u32 icmpv6_reason(__u8 type, __u8 hop_limit,
					   const __u32 *source)
{
	if (type <= ICMPV6_ERROR_LAST)
		return WEIR_REASON_ICMP_ERROR;
	if (((type >= ICMPV6_MGM_QUERY && type <= ICMPV6_MGM_REDUCTION) ||
	     type == ICMPV6_MLD2_REPORT) &&
	    hop_limit == TTL_GROUP && is_of_link6(source))
		return WEIR_REASON_GROUP;
	if (type >= ICMPV6_ND_FIRST && type <= ICMPV6_ND_LAST &&
	    hop_limit == TTL_ON_LINK)
		return WEIR_REASON_NEIGHBOUR;
	return WEIR_REASON_ICMP;
}

/*
 * What the longest that is cut off a merged packet may have beside its payload:
 * IP and TCP headers, with timestamps.
 */
#define SEGMENT_HEADERS_IP4 52
#define SEGMENT_HEADERS_IP6 72

static __always_inline __u16 length_to_forward(const struct packet *packet,
					       const struct flow *flow)
{
	if (!packet->gso_size)
		return flow->ip_len;
	return packet->gso_size + (flow->family == WEIR_FAMILY_IPV6
					   ? SEGMENT_HEADERS_IP6
					   : SEGMENT_HEADERS_IP4);
}

/*
 * A packet for another host: by which interface would it leave, and will a
 * queue there be asked? Not for one that is_for_routers(), nor one whose sender
 * is to be told first that it is too long.
 */
static __noinline bool forward(struct packet *packet, const struct flow *flow,
			       struct prospects *prospects)
{
	struct bpf_fib_lookup route;
	bool goes_on = !is_for_routers(flow);
	long found = route_of(packet->ctx, flow, packet->ifindex,
			      length_to_forward(packet, flow), &route);

	if (found == BPF_FIB_LKUP_RET_FRAG_NEEDED) {
		goes_on = false;
		found = route_of(packet->ctx, flow, packet->ifindex, 0, &route);
	}
	if (leads_on(found)) {
		prospects->pass = WEIR_REASON_FORWARD;
		prospects->egress_ifindex = route.ifindex;
	} else {
		prospects->pass = WEIR_REASON_NO_ROUTE;
	}
	if (!goes_on)
		prospects->good_for = 0;
	return goes_on;
}

/* Where what belongs to no connection is counted, apart from what does. */
static __always_inline struct weir_destination *
stray_place(const struct flow *flow, const struct weir_poll *poll)
{
	struct weir_destination *entry =
		destination_place(flow, WEIR_TARGET_TCP_STRAY);

	if (!entry || destination_is_of(entry, flow, WEIR_TARGET_TCP_STRAY))
		return entry;
	return destination_take(entry, flow, WEIR_TARGET_TCP_STRAY, poll);
}

/* A segment, and the place where it is counted. */
static __always_inline struct weir_destination *
look_at_segment(struct packet *packet, const struct flow *flow,
		struct weir_destination *entry, struct weir_poll *poll,
		struct prospects *prospects)
{
	prospects->pass = tcp_segment(packet->ctx, flow, entry, prospects);
	if (prospects->pass == WEIR_REASON_TCP_STRAY)
		return stray_place(flow, poll);
	destination_forget(entry);
	entry->connected = explaining || entry->stray_until_ns > poll->now_ns ||
			   prospects->pass == WEIR_REASON_TCP_PEER;
	return entry;
}

/* Who receives this, by the kernel's tables, and is there room? */
static __always_inline void look(struct packet *packet, const struct flow *flow,
				 enum addressed addressed,
				 struct workspace *workspace,
				 struct weir_destination *entry,
				 const struct weir_poll *poll)
{
	struct prospects *prospects = &workspace->prospects;
	bool to_many = addressed == ADDRESSED_TO_MANY;

	/* A frame to many that would be forwarded: ip_forward() drops it. */
	prospects->pass = WEIR_REASON_OTHER_MAC;
	if (entry->target == WEIR_TARGET_UDP_GROUP &&
	    addressed == ADDRESSED_ELSEWHERE)
		prospects->good_for = 0;
	else if (addressed == ADDRESSED_ELSEWHERE) {
		if (!forward(packet, flow, prospects))
			return;
		/* What is longer may not be sent on at all. */
		entry->truesize = flow->ip_len;
		screen_judge(entry, packet->ifindex, prospects);
		/* The last that is cut off a merged one may be short. */
		egress_judge(entry, packet->ifindex,
			     packet->gso_size ? 1 : flow->ip_len, prospects);
	} else if (entry->target == WEIR_TARGET_UDP ||
		   entry->target == WEIR_TARGET_UDP_GROUP)
		udp_look(packet, flow, to_many && !DEFECT(TO_MANY_AS_ONE),
			 &workspace->charge, entry, prospects);
	else if (!to_many && (entry->target == WEIR_TARGET_TCP_SYN ||
			      DEFECT(SEGMENT_AS_SYN)))
		tcp_syn(packet->ctx, flow, entry, workspace, poll);
	else
		prospects->good_for = 0;
}

/*
 * Everything is looked up, and kept where there is a place for it. NULL: there
 * is none, which cannot be.
 */
static __noinline struct weir_destination *
destination_look(struct packet *packet, const struct flow *flow,
		 enum weir_target target, struct weir_destination *entry,
		 struct weir_poll *poll)
{
	enum addressed addressed;
	struct workspace *workspace = get_workspace();
	struct prospects *prospects;

	if (!destination_is_of(entry, flow, target))
		entry = destination_take(entry, flow, target, poll);
	if (!entry || !workspace)
		return NULL;
	prospects = &workspace->prospects;
	prospects_begin(prospects, WEIR_REMEMBERED);
	if (flow->udp_len)
		charge_packet(flow, packet->truesize, packet->seen.packets,
			      poll->now_ns, &workspace->charge);
	if (target == WEIR_TARGET_UDP && udp_is_known(entry, poll)) {
		judge_known(entry, &workspace->charge, prospects);
		return entry;
	}
	/* Before the addresses are read: they may change meanwhile. */
	entry->generation = interface.generation;
	addressed = addressed_to(flow);
	if (addressed != ADDRESSED_ELSEWHERE &&
	    lookup_is_steered(packet_net(packet))) {
		destination_forget(entry);
		prospects->pass = WEIR_REASON_DIVERTED;
	} else if (target == WEIR_TARGET_TCP && addressed == ADDRESSED_HERE &&
		   !DEFECT(SEGMENT_AS_SYN)) {
		entry = look_at_segment(packet, flow, entry, poll, prospects);
		if (!entry || (entry->target == WEIR_TARGET_TCP_STRAY &&
			       destination_is_fresh(entry, poll)))
			return entry;
	} else {
		destination_forget(entry);
		look(packet, flow, addressed, workspace, entry, poll);
	}
	if (entry->connected) {
		entry->peer_port_be = flow->source_port_be;
		copy_address(entry->peer, flow->source);
		entry->flowinfo = flow->flowinfo;
	}
	destination_set_channel(entry, prospects);
	destination_conclude(entry, prospects);
	if (prospects->serves)
		account_serves(entry->account);
	return entry;
}

static __always_inline __u32 destination_reason(struct packet *packet,
						bool on_skb,
						const struct flow *flow,
						enum weir_target target)
{
	struct weir_destination *entry = destination_place(flow, target);
	struct weir_poll *poll = current_poll();

	if (!entry || !poll)
		return WEIR_REASON_INTERNAL;
	if (!destination_is_of(entry, flow, target) ||
	    !is_answered(entry, flow, packet->truesize, poll)) {
		entry = destination_look(packet, flow, target, entry, poll);
		if (!entry)
			return WEIR_REASON_INTERNAL;
	}
	if (explaining)
		explanation.egress_ifindex = entry->egress_ifindex;
	if (is_translated(packet->ctx, on_skb, flow, entry->reason))
		return kind_charge(WEIR_REASON_TRANSLATED,
				   packet->seen.packets);
	return answer(entry, poll, packet->seen);
}

/* For this host, and neither UDP nor TCP. */
static __always_inline __u32 other_reason(const struct flow *flow,
					  enum weir_parse parse)
{
	switch (parse) {
	case WEIR_PARSE_ICMP:
		return icmp_reason(flow->icmp_type);
	case WEIR_PARSE_ICMPV6:
		return icmpv6_reason(flow->icmp_type, flow->ttl, flow->source);
	case WEIR_PARSE_IGMP:
		return igmp_reason(flow->ttl, flow->destination[0]);
	default:
		return WEIR_REASON_OTHER_PROTOCOL;
	}
}

/* An IP packet that is for no destination in particular; else NO_REASON. */
static __always_inline int ip_kind_reason(const struct flow *flow,
					  enum weir_parse parse)
{
	if (!is_own_mac(flow->mac) && !is_group_mac(flow->mac) &&
	    !DEFECT(MAC_UNCHECKED))
		return WEIR_REASON_OTHER_MAC;
	/* tcp_v4_rcv() wants them to be for this host alone. */
	if (parse == WEIR_PARSE_TCP && is_group_mac(flow->mac))
		return WEIR_REASON_OTHER_MAC;
	if (flow->routed && !DEFECT(SOURCE_ROUTE_IGNORED))
		return WEIR_REASON_SOURCE_ROUTED;
	if (parse == WEIR_PARSE_LATER_FRAGMENT)
		return fragment_later(flow);
	if (target_of(flow, parse) == WEIR_TARGET_FORWARD &&
	    addressed_to(flow) != ADDRESSED_ELSEWHERE)
		return other_reason(flow, parse);
	if (flow->fragment == WEIR_FRAGMENT_FIRST &&
	    fragment_is_overtaken(flow))
		return WEIR_REASON_FRAGMENT;
	return NO_REASON;
}

/* A packet of a kind that has no destinations of its own; else NO_REASON. */
static __always_inline int kind_reason(const struct flow *flow,
				       enum weir_parse parse)
{
	if (parse == WEIR_PARSE_MALFORMED)
		return WEIR_REASON_MALFORMED;
	if (flow->vlan_tags && is_of_vlan(flow->vlan) && !DEFECT(VLAN_IGNORED))
		return WEIR_REASON_VLAN;
	switch (parse) {
	case WEIR_PARSE_ARP:
		return WEIR_REASON_NEIGHBOUR;
	case WEIR_PARSE_OTHER_ETHERTYPE:
		return WEIR_REASON_OTHER_ETHERTYPE;
	case WEIR_PARSE_IPV6_CHAIN:
		return WEIR_REASON_IPV6_CHAIN;
	default:
		return ip_kind_reason(flow, parse);
	}
}

/*
 * A head that waits for its tail costs what no queue shows, so it is charged to
 * fragments, too.
 */
static __always_inline __u32 head_reason(struct packet *packet, bool on_skb,
					 const struct flow *flow,
					 enum weir_target target)
{
	__u32 reason = kind_charge(WEIR_REASON_FRAGMENT, packet->seen.packets);

	if (verdict_of_reason(reason) == WEIR_VERDICT_PASS)
		reason = destination_reason(packet, on_skb, flow, target);
	fragment_note(flow, reason);
	return reason;
}

/* Is a datagram's tail told by what its head was? */
static __always_inline bool tail_follows(int reason)
{
	switch (reason) {
	case WEIR_REASON_OTHER_MAC:
	case WEIR_REASON_VLAN:
	case WEIR_REASON_SOURCE_ROUTED:
		/* It says so itself. */
		return false;
	case WEIR_REASON_FRAGMENT:
		/* It has overtaken the head, which is known already. */
		return false;
	default:
		return true;
	}
}

static __always_inline __u32 flow_reason(struct packet *packet, bool on_skb,
					 const struct flow *flow,
					 enum weir_parse parse)
{
	bool is_head = flow->fragment == WEIR_FRAGMENT_FIRST;
	int reason = kind_reason(flow, parse), charged;

	if (reason != NO_REASON) {
		charged = kind_charge(reason, packet->seen.packets);
		if (is_head && tail_follows(reason))
			fragment_note(flow, charged);
		return charged;
	}
	if (is_head)
		return head_reason(packet, on_skb, flow,
				   target_of(flow, parse));
	return destination_reason(packet, on_skb, flow, target_of(flow, parse));
}

/* Why this packet passes, or is discarded: all of it is parsed, and looked up.
 */
static __always_inline __u32 slow_path(struct packet *packet, bool on_skb)
{
	enum weir_parse parsed;
	struct workspace *workspace = get_workspace();
	struct flow *flow;
	__u32 reason;

	if (!workspace)
		return WEIR_REASON_INTERNAL;
	flow = &workspace->flow;
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->merged = packet->gso_size != 0;
	parsed = parse(&packet->cursor, flow, packet->len);
	flow_of_one(flow, packet);
	reason = is_routed_group(flow)
			 ? WEIR_REASON_DIVERTED
			 : flow_reason(packet, on_skb, flow, parsed);
	if (explaining)
		explain(flow, parsed, reason);
	return reason;
}

/* Functions of their own for their frames, as the fast path's. */
static __noinline __u32 xdp_slow_path(struct xdp_md *ctx)
{
	struct packet packet = packet_of_xdp(ctx);

	return slow_path(&packet, false);
}

static __noinline __u32 skb_slow_path(struct __sk_buff *skb, __u32 packets,
				      __u64 bytes, __u32 truesize)
{
	struct packet packet = packet_of_skb(skb);

	packet.seen = (struct weir_counter){packets, bytes};
	packet.truesize = truesize;
	return slow_path(&packet, true);
}

#endif /* WEIR_SLOW_PATH_H */
