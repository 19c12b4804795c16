// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gate: early demultiplexing and early packet discard (Druschel & Banga,
 * section 3.2), at the driver, before an skb exists.
 *
 * parse -> demultiplex -> queue state -> verdict -> count. A packet is
 * discarded only if the socket that it is for would refuse it; whatever the
 * gate does not understand, or cannot name the destination of, passes.
 */
#include "compat.h"
#include "counters.h"
#include "cursor.h"
#include "merged.h"
#include "parse.h"
#include "queue.h"
#include <linux/pkt_cls.h>

/* This interface. Set before the gate is attached. */
struct weir_interface interface;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WEIR_LOCAL_ADDRESSES);
	__type(key, __be32);
	__type(value, __u8);
} local_ipv4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WEIR_LOCAL_ADDRESSES);
	__type(key, struct weir_ipv6_address);
	__type(value, __u8);
} local_ipv6 SEC(".maps");

static __always_inline bool is_own_mac(const __u8 *mac)
{
	return *(__u16 *)mac == *(__u16 *)interface.mac &&
	       *(__u16 *)(mac + 2) == *(__u16 *)(interface.mac + 2) &&
	       *(__u16 *)(mac + 4) == *(__u16 *)(interface.mac + 4);
}

static __always_inline enum weir_reason judge_socket(const void *bpf_sock,
						     __u32 udp_len)
{
	struct sock *sk = kernel_cast(bpf_sock, struct sock);
	struct udp_sock *up = kernel_cast(bpf_sock, struct udp_sock);

	if (BPF_CORE_READ_BITFIELD(sk, __sk_common.skc_reuseport))
		return WEIR_REASON_UDP_SHARED;
	if (up->encap_type)
		return WEIR_REASON_UDP_ENCAP;
	return queue_admit(sk, udp_len) ? WEIR_REASON_UDP_ROOM
					: WEIR_REASON_UDP_FULL;
}

static __always_inline enum weir_reason
judge_tuple(void *ctx, struct bpf_sock_tuple *tuple, __u32 tuple_len,
	    __u32 udp_len)
{
	struct bpf_sock *bpf_sock;
	enum weir_reason reason;

	bpf_sock = bpf_sk_lookup_udp(ctx, tuple, tuple_len, BPF_F_CURRENT_NETNS,
				     0);
	if (!bpf_sock)
		return WEIR_REASON_UDP_NO_SOCKET;
	reason = judge_socket(bpf_sock, udp_len);
	bpf_sk_release(bpf_sock);
	return reason;
}

static __always_inline enum weir_reason judge_udp4(void *ctx,
						   const struct flow *flow)
{
	struct bpf_sock_tuple tuple = {
		.ipv4.saddr = flow->ip4->saddr,
		.ipv4.daddr = flow->ip4->daddr,
		.ipv4.sport = flow->udp->source,
		.ipv4.dport = flow->udp->dest,
	};

	if (!is_own_mac(flow->mac_destination))
		return WEIR_REASON_OTHER_MAC;
	if (!bpf_map_lookup_elem(&local_ipv4, &tuple.ipv4.daddr))
		return WEIR_REASON_OTHER_ADDRESS;
	return judge_tuple(ctx, &tuple, sizeof(tuple.ipv4), flow->udp_len);
}

static __always_inline enum weir_reason judge_udp6(void *ctx,
						   const struct flow *flow)
{
	struct bpf_sock_tuple tuple;

	__builtin_memcpy(tuple.ipv6.saddr, &flow->ip6->saddr, 16);
	__builtin_memcpy(tuple.ipv6.daddr, &flow->ip6->daddr, 16);
	tuple.ipv6.sport = flow->udp->source;
	tuple.ipv6.dport = flow->udp->dest;

	if (!is_own_mac(flow->mac_destination))
		return WEIR_REASON_OTHER_MAC;
	if (!bpf_map_lookup_elem(&local_ipv6, tuple.ipv6.daddr))
		return WEIR_REASON_OTHER_ADDRESS;
	return judge_tuple(ctx, &tuple, sizeof(tuple.ipv6), flow->udp_len);
}

static __always_inline enum weir_reason judge(void *ctx, struct cursor cursor,
					      __u32 frame_len)
{
	struct flow flow = {};

	if (interface.policy_off)
		return WEIR_REASON_POLICY_OFF;
	switch (parse(&cursor, &flow, frame_len)) {
	case PARSE_UDP4:
		return judge_udp4(ctx, &flow);
	case PARSE_UDP6:
		return judge_udp6(ctx, &flow);
	default:
		return flow.reason;
	}
}

#define VERDICT_OF_REASON(name, verdict, text, description) \
	[WEIR_REASON_##name] = WEIR_VERDICT_##verdict,
static const volatile __u8 verdict_of[WEIR_REASON_COUNT] = {
	WEIR_REASONS(VERDICT_OF_REASON)};

static __always_inline bool is_discarded(enum weir_reason reason)
{
	return reason < WEIR_REASON_COUNT &&
	       verdict_of[reason] == WEIR_VERDICT_DISCARD;
}

SEC("xdp.frags")
int gate(struct xdp_md *ctx)
{
	__u32 frame_len = bpf_xdp_get_buff_len(ctx);
	enum weir_reason reason = judge(ctx, cursor_over(ctx), frame_len);

	count(reason, frame_len);
	return is_discarded(reason) ? XDP_DROP : XDP_PASS;
}

/*
 * The same at tc ingress, on an skb. TC_ACT_UNSPEC, which tcx calls TCX_NEXT:
 * what passes here goes on to the other programs at the hook.
 */
SEC("tc")
int gate_tc(struct __sk_buff *skb)
{
	struct cursor cursor;
	enum weir_reason reason;

	pull_headers(skb);
	cursor.pos = (void *)(long)skb->data;
	cursor.end = (void *)(long)skb->data_end;
	/* The kernel has taken the tag off: skb_vlan_untag(). */
	if (skb->vlan_present && !interface.policy_off)
		reason = WEIR_REASON_VLAN;
	else
		reason = judge(skb, cursor, skb->len);
	count_many(reason, packets_of(skb, cursor));
	return is_discarded(reason) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
