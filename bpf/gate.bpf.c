// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gate: early demultiplexing and early packet discard (Druschel & Banga,
 * section 3.2), at the driver, before an skb exists, or as early as the
 * interface allows.
 *
 * parse -> demultiplex -> queue state -> verdict -> count. A packet is
 * discarded only if the socket that it is for would refuse it; whatever the
 * gate does not understand, or cannot name the destination of, passes.
 */
#include "alarm.h"
#include "demux.h"
#include "limit.h"
#include "merged.h"
#include <linux/pkt_cls.h>

/* The long way: everything is parsed, and looked up. */
static __noinline __u32 examine(struct packet *packet)
{
	enum weir_parse parsed;
	struct workspace *workspace = get_workspace();
	struct flow *flow;
	__u32 reason;

	if (!workspace)
		return WEIR_REASON_MALFORMED;
	flow = &workspace->flow;
	__builtin_memset(flow, 0, sizeof(*flow));
	parsed = parse(&packet->cursor, flow, packet->len);
	flow_of_one(flow, packet);
	reason = demux(packet, flow, parsed);
	if (explaining)
		explain(flow, parsed, reason);
	return reason;
}

/* Where no NAPI poll ever ends, nothing of one packet holds for the next. */
static __always_inline void end_poll(void)
{
	struct weir_poll *poll = current_poll();

	if (!poll)
		return;
	poll->number++;
	ring_for_discards(poll);
}

/* Has nobody looked for too long at addresses, and at what diverts packets? */
static __always_inline bool is_stale(void)
{
	struct weir_poll *poll = current_poll();

	if (!poll)
		return false;
	poll_moment(poll);
	return interface.fresh_until_ns &&
	       poll->now_ns > interface.fresh_until_ns;
}

/* What is decided before a packet is parsed; else WEIR_REASON_COUNT. */
static __always_inline __u32 standing_reason(bool past_limit)
{
	if (interface.no_polls)
		end_poll();
	if (interface.policy_off)
		return WEIR_REASON_POLICY_OFF;
	if (is_stale())
		return WEIR_REASON_STALE;
	if (past_limit)
		return WEIR_REASON_CPU_SHARE;
	if (interface.diverted && !DEFECT(DIVERTED_IGNORED))
		return WEIR_REASON_DIVERTED;
	return WEIR_REASON_COUNT;
}

/* In the driver, or on an skb (generic). */
SEC("xdp.frags")
int gate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 len = bpf_xdp_get_buff_len(ctx);
	struct weir_counter seen = {.packets = 1, .bytes = len};
	__u32 reason;

	if (is_asleep()) {
		count(WEIR_REASON_ASLEEP, seen);
		return XDP_PASS;
	}
	reason = standing_reason(interface.limited && xdp_is_past_limit(ctx));
	if (reason == WEIR_REASON_COUNT && !explaining)
		reason = recall(ctx, data, data_end, len, 0);
	if (reason == WEIR_REASON_COUNT) {
		struct packet packet = {
			.ctx = ctx,
			.cursor = cursor_over(data, data_end),
			.len = len,
			.seen = seen,
			.ifindex = ctx->ingress_ifindex,
		};

		reason = examine(&packet);
	}
	count(reason, seen);
	return verdict_of_reason(reason) == WEIR_VERDICT_DISCARD ? XDP_DROP
								 : XDP_PASS;
}

/*
 * What an skb is charged; 0: cannot be told. Nobody will cut it up, nor copy it
 * out of pages on the way into the queue (skb_condense()).
 */
static __always_inline __u32 skb_truesize(struct __sk_buff *skb)
{
	const struct sk_buff *kernel_skb;

	if (!has_kern_ctx() || skb->gso_size)
		return 0;
	kernel_skb = bpf_cast_to_kern_ctx(skb);
	return kernel_skb->data_len ? 0 : kernel_skb->truesize;
}

/*
 * The same at tc ingress, on an skb. TC_ACT_UNSPEC, which tcx calls TCX_NEXT:
 * what passes here goes on to the other programs at the hook.
 */
SEC("tc")
int gate_tc(struct __sk_buff *skb)
{
	struct packet packet = {
		.ctx = skb,
		.len = skb->len,
		.gso_size = skb->gso_size,
		.ifindex = skb->ingress_ifindex,
	};
	__u32 reason;

	if (is_asleep()) {
		packet.cursor = cursor_over((void *)(long)skb->data,
					    (void *)(long)skb->data_end);
		count(WEIR_REASON_ASLEEP, packets_of(skb, packet.cursor));
		return TC_ACT_UNSPEC;
	}
	pull_headers(skb);
	packet.cursor = cursor_over((void *)(long)skb->data,
				    (void *)(long)skb->data_end);
	packet.seen = packets_of(skb, packet.cursor);
	reason = standing_reason(interface.limited && skb_is_past_limit(skb));
	/* The kernel has taken the tag off: skb_vlan_untag(). */
	if (reason == WEIR_REASON_COUNT && skb->vlan_present &&
	    !DEFECT(VLAN_IGNORED))
		reason = WEIR_REASON_VLAN;
	packet.truesize = skb_truesize(skb);
	if (reason == WEIR_REASON_COUNT && !explaining && !packet.gso_size)
		reason = recall(skb, (void *)(long)skb->data,
				(void *)(long)skb->data_end, packet.len,
				packet.truesize);
	if (reason == WEIR_REASON_COUNT)
		reason = examine(&packet);
	count(reason, packet.seen);
	return verdict_of_reason(reason) == WEIR_VERDICT_DISCARD
		       ? TC_ACT_SHOT
		       : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
