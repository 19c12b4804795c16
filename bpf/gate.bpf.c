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
#include "demux.h"

/* linux/pkt_cls.h, linux/bpf.h: leave it to the next program, or drop it. */
#define TC_PASS (-1)
#define TC_DROP 2

/* The longest headers that the parser looks at, in the usual case. */
#define TC_HEADERS_LEN 128

/* Too large for the stack beside the frames of what is called with it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} examined_flow SEC(".maps");

/* The long way: everything is parsed, and looked up. */
static __noinline __u32 examine(struct packet *packet)
{
	enum weir_parse parsed;
	__u32 zero = 0, reason;
	struct flow *flow = bpf_map_lookup_elem(&examined_flow, &zero);

	if (!flow)
		return WEIR_REASON_MALFORMED;
	__builtin_memset(flow, 0, sizeof(*flow));
	parsed = parse(&packet->cursor, flow, packet->len);
	reason = demux(packet, flow, parsed);
	if (explaining)
		explain(flow, parsed, reason);
	return reason;
}

static __always_inline enum weir_verdict judge(const struct packet *packet)
{
	__u32 reason;

	if (interface.policy_off) {
		reason = WEIR_REASON_POLICY_OFF;
	} else if (interface.diverted && !DEFECT(DIVERTED_IGNORED)) {
		reason = WEIR_REASON_DIVERTED;
	} else {
		reason = explaining ? WEIR_REASON_COUNT : recall(packet);
		if (reason == WEIR_REASON_COUNT) {
			struct packet unknown = *packet;

			reason = examine(&unknown);
		}
	}
	count(reason, packet->count, packet->len);
	return verdict_of_reason(reason);
}

/* In the driver, or on an skb (generic). */
SEC("xdp.frags")
int gate(struct xdp_md *ctx)
{
	struct packet packet = {
		.ctx = ctx,
		.cursor = cursor_over((void *)(long)ctx->data,
				      (void *)(long)ctx->data_end),
		.len = bpf_xdp_get_buff_len(ctx),
		.count = 1,
		.ifindex = ctx->ingress_ifindex,
	};

	return judge(&packet) == WEIR_VERDICT_DISCARD ? XDP_DROP : XDP_PASS;
}

/* In traffic control (tcx, clsact): after GRO, after the captures. */
SEC("tc")
int gate_tc(struct __sk_buff *ctx)
{
	__u32 linear = ctx->data_end - ctx->data;
	struct packet packet;

	/* The driver has taken the tag off. */
	if (ctx->vlan_present && !interface.policy_off) {
		count(WEIR_REASON_VLAN, 1, ctx->len);
		return TC_PASS;
	}
	if (linear < TC_HEADERS_LEN && linear < ctx->len)
		bpf_skb_pull_data(ctx, ctx->len < TC_HEADERS_LEN
					       ? ctx->len
					       : TC_HEADERS_LEN);
	packet = (struct packet){
		.ctx = ctx,
		.cursor = cursor_over((void *)(long)ctx->data,
				      (void *)(long)ctx->data_end),
		.len = ctx->len,
		.count = ctx->gso_segs ?: 1,
		.ifindex = ctx->ingress_ifindex,
	};
	return judge(&packet) == WEIR_VERDICT_DISCARD ? TC_DROP : TC_PASS;
}

char LICENSE[] SEC("license") = "GPL";
