/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The short way: a packet whose destination was looked at in this NAPI poll, or
 * whose queue was full and still is, or whose source was to wait and still is.
 * Nothing here calls a function that takes the flow's address, so that the flow
 * stays in registers.
 */
#ifndef WEIR_RECALL_H
#define WEIR_RECALL_H

#include "account.h"
#include "address.h"
#include "contest_map.h"
#include "memory.h"
#include "packet.h"
#include "parse.h"
#include "queue.h"
#include "sources.h"
#include "tcp.h"
#include "udp_alone.h"
#include "udp_queue.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* A request to connect, and nothing besides. */
static __always_inline bool tcp_is_syn(const struct flow *flow)
{
	__u8 others = TCP_FIN | TCP_RST | TCP_ACK;

	if (DEFECT(SYN_ACK_AS_SYN))
		others = 0;
	return (flow->tcp_flags & (TCP_SYN | others)) == TCP_SYN;
}

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

/* Might a packet fit that is charged less than those refused, or is shorter? */
static __always_inline bool may_fit(const struct weir_memory *memory,
				    const struct flow *flow, __u32 truesize)
{
	if (memory->reason != WEIR_REASON_UDP_FULL &&
	    memory->reason != WEIR_REASON_MULTICAST_FULL)
		return false;
	if (DEFECT(SHORT_PACKET_JUDGED))
		return false;
	return truesize ? truesize < memory->truesize
			: flow->ip_len < memory->full_from;
}

/* What tells a channel from the others of one CPU well enough. */
static __always_inline __u64 channel_id(const struct weir_memory *memory)
{
	return (__u64)memory->target << 56 | (__u64)memory->port_be << 32 |
	       (memory->address[0] ^ memory->address[3]);
}

/* For the governor: is another channel live beside the one that is full? */
static __always_inline void note_company(const struct weir_memory *memory,
					 struct weir_poll *poll, __u32 packets)
{
	if (poll->full_id && poll->full_id != channel_id(memory) &&
	    kind_of_reason(memory->reason) != WEIR_KIND_CLOSED)
		poll->beside += packets;
}

static __always_inline void count_channel(struct weir_memory *memory,
					  struct weir_poll *poll,
					  struct weir_counter seen,
					  __u32 reason)
{
	if (verdict_of_reason(reason) == WEIR_VERDICT_DISCARD) {
		poll->discarded += seen.packets;
		poll->full_id = channel_id(memory);
		if (is_share_reason(reason)) {
			counter_add(&memory->seen[WEIR_SEEN_SHED], seen);
		} else {
			counter_add(&memory->seen[WEIR_SEEN_FULL], seen);
		}
	} else {
		note_company(memory, poll, seen.packets);
		account_add(memory->account, seen.packets);
		counter_add(&memory->seen[WEIR_SEEN_PASSED], seen);
	}
}

/*
 * Is what is remembered in this place this packet's, and fresh? A queue that
 * was full in an earlier poll is looked at again here: in a flood of many, that
 * is all that happens.
 */
static __always_inline bool
memory_answers(struct weir_memory *memory, const struct flow *flow,
	       enum weir_target target, __u32 truesize, struct weir_poll *poll)
{
	if (!memory_is_of(memory, flow, target) ||
	    may_fit(memory, flow, truesize))
		return false;
	if (memory_is_fresh(memory, poll))
		return memory_has_peer(memory, flow);
	if (memory->reason != WEIR_REASON_UDP_FULL ||
	    !udp_is_still_full(memory, poll->now_ns))
		return false;
	memory->moment = poll->moment;
	memory->left = WEIR_REMEMBERED;
	return true;
}

static __always_inline __u32 memory_use(struct weir_memory *memory,
					struct weir_poll *poll,
					struct weir_counter seen)
{
	if (memory->left > seen.packets)
		memory->left -= seen.packets;
	else
		memory->left = 0;
	count_channel(memory, poll, seen, memory->reason);
	return memory->reason;
}

/*
 * Was this packet's socket looked at in this NAPI poll, so that only its queue
 * can have changed since?
 */
static __always_inline bool memory_is_alone(const struct weir_memory *memory,
					    const struct flow *flow,
					    enum weir_target target,
					    const struct weir_poll *poll)
{
	return memory->moment == poll->moment && memory->alone_left &&
	       kind_of_reason(memory->reason) == WEIR_KIND_UDP &&
	       !is_share_reason(memory->reason) &&
	       memory_is_of(memory, flow, target);
}

/*
 * Is this packet's queue contested, and was what room it had when it was last
 * looked at, in this NAPI poll, kept for others? Each packet that is admitted
 * is a look, so it can have got more room since then, not less.
 */
static __always_inline bool memory_is_kept(struct weir_memory *memory,
					   const struct flow *flow,
					   enum weir_target target,
					   const struct weir_poll *poll)
{
	if (memory->moment != poll->moment || !memory->contest ||
	    !memory->contest_left || !memory->sock ||
	    !memory_is_of(memory, flow, target))
		return false;
	memory->contest_left--;
	return source_must_wait(contest_at(memory->contest - 1),
				source_hash(flow), memory->room,
				memory->reserved);
}

/*
 * Is this a SYN to a listener that had no room at the last look, and has none?
 * Which socket the kernel would give it to is looked for, as a known connection
 * has its own use for it; nothing else is.
 */
static __always_inline bool syn_is_in_vain(void *ctx,
					   const struct weir_memory *memory,
					   const struct flow *flow,
					   enum weir_target target)
{
	struct workspace *workspace = get_workspace();
	struct bpf_sock *skc;
	bool full;

	if (!workspace || target != WEIR_TARGET_TCP_SYN ||
	    memory->reason != WEIR_REASON_TCP_BACKLOG_FULL ||
	    memory->generation != interface.generation ||
	    !memory_is_of(memory, flow, target))
		return false;
	skc = bpf_skc_lookup_tcp(ctx, &workspace->tuple,
				 tuple_of(flow, &workspace->tuple),
				 BPF_F_CURRENT_NETNS, 0);
	if (!skc)
		return false;
	full = tcp_is_still_full(kernel_address_of(skc));
	bpf_sk_release(skc);
	return full;
}

/*
 * Why this packet, of one buffer or more, passes or is discarded;
 * WEIR_REASON_COUNT: not known yet. A function of its own for its frame on the
 * stack, with arguments that fit into registers for speed.
 */
static __noinline __u32 recall(void *ctx, void *data, void *data_end, __u32 len,
			       __u32 truesize)
{
	struct weir_counter seen = {.packets = 1, .bytes = len};
	struct cursor cursor = cursor_over(data, data_end);
	struct weir_memory *memory;
	struct weir_poll *poll;
	enum weir_target target;
	enum weir_parse found;
	struct flow flow = {};
	struct workspace *workspace;

	found = parse_usual(&cursor, &flow, len);
	if ((found != WEIR_PARSE_UDP && found != WEIR_PARSE_TCP) ||
	    !is_own_mac(flow.mac))
		return WEIR_REASON_COUNT;
	target = target_of(&flow, found);
	memory = memory_place(&flow, target);
	poll = current_poll();
	if (!memory || !poll)
		return WEIR_REASON_COUNT;
	if (memory_answers(memory, &flow, target, truesize, poll))
		return memory_use(memory, poll, seen);
	workspace = get_workspace();
	if (workspace && memory_is_alone(memory, &flow, target, poll)) {
		charge_of(&flow, truesize, poll->now_ns, &workspace->charge);
		udp_judge_next(memory, &workspace->charge);
		return memory_use(memory, poll, seen);
	}
	if (syn_is_in_vain(ctx, memory, &flow, target))
		return memory_use(memory, poll, seen);
	if (!memory_is_kept(memory, &flow, target, poll))
		return WEIR_REASON_COUNT;
	count_channel(memory, poll, seen, WEIR_REASON_UDP_SOURCE);
	return WEIR_REASON_UDP_SOURCE;
}

#endif /* WEIR_RECALL_H */
