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
#include "merged.h"
#include <linux/pkt_cls.h>

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
	flow_of_one(flow, packet);
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
	} else if (packet->tagged && !DEFECT(VLAN_IGNORED)) {
		reason = WEIR_REASON_VLAN;
	} else {
		reason = explaining ? WEIR_REASON_COUNT : recall(packet);
		if (reason == WEIR_REASON_COUNT) {
			struct packet unknown = *packet;

			reason = examine(&unknown);
		}
	}
	count(reason, packet->seen);
	return verdict_of_reason(reason);
}

/* In the driver, or on an skb (generic). */
SEC("xdp.frags")
int gate(struct xdp_md *ctx)
{
	__u32 len = bpf_xdp_get_buff_len(ctx);
	struct packet packet = {
		.ctx = ctx,
		.cursor = cursor_over((void *)(long)ctx->data,
				      (void *)(long)ctx->data_end),
		.len = len,
		.seen = {.packets = 1, .bytes = len},
		.ifindex = ctx->ingress_ifindex,
	};

	return judge(&packet) == WEIR_VERDICT_DISCARD ? XDP_DROP : XDP_PASS;
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

	pull_headers(skb);
	packet.cursor = cursor_over((void *)(long)skb->data,
				    (void *)(long)skb->data_end);
	packet.seen = packets_of(skb, packet.cursor);
	/* The kernel has taken the tag off: skb_vlan_untag(). */
	packet.tagged = skb->vlan_present;
	return judge(&packet) == WEIR_VERDICT_DISCARD ? TC_ACT_SHOT
						      : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
