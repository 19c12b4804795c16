// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue probe: what one packet is charged to a UDP socket's queue, and
 * where one NAPI poll ends and the next begins.
 *
 * Truesize is not known at the gate, and guessing it low means never
 * discarding. So the kernel teaches it: each late drop tells what would have
 * been charged for a packet that did not fit. Nothing here runs for a packet
 * that is delivered.
 *
 * Before kernel 6.10 the tracepoint of a refused packet does not show the
 * packet. There, user space loads the second pair of programs in place of the
 * first (crates/weir-bpf/src/probe.rs).
 */
#include "account_map.h"
#include "alarm.h"
#include "compat.h"
#include "contest_map.h"
#include "queue_map.h"
#include "softirq_map.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include <linux/if_ether.h>
#include <linux/udp.h>

#define IPV4_TOTAL_LEN_AT 2
#define IPV6_PAYLOAD_LEN_AT 4
#define IPV6_HEADER_LEN 40
#define IPSKB_FRAG_COMPLETE 8 /* include/net/ip.h */
#define IP6SKB_FRAGMENTED 16  /* include/linux/ipv6.h */
#define ENOMEM 12 /* over the socket's own limit; ENOBUFS is the host's */

enum skb_drop_reason {
	/* Relocated: kernels insert before it. */
	SKB_DROP_REASON_SOCKET_RCVBUFF = 6,
};

struct refused {
	__u32 truesize; /* bytes; 0: nothing is known */
	__u32 udp_len;
	__u32 ifindex;
	__u32 condensed; /* as in struct weir_queue_slot */
};

/* The packet that the kernel is freeing because it did not fit. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct refused);
} freed_refused SEC(".maps");

/* The UDP length that the IP header leaves; the kernel cuts off the rest. */
static __always_inline __u32 ip_payload_len(const struct sk_buff *skb)
{
	const void *ip = skb->head + skb->network_header;
	__u32 before = skb->transport_header - skb->network_header;
	__be16 len_be = 0;

	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		bpf_probe_read_kernel(&len_be, sizeof(len_be),
				      ip + IPV6_PAYLOAD_LEN_AT);
		return bpf_ntohs(len_be) + IPV6_HEADER_LEN - before;
	}
	bpf_probe_read_kernel(&len_be, sizeof(len_be), ip + IPV4_TOTAL_LEN_AT);
	return bpf_ntohs(len_be) - before;
}

/* It is charged the sum of its fragments: no other packet is. */
static __always_inline bool is_reassembled(const struct sk_buff *skb)
{
	const struct inet6_skb_parm *parm6 = (const void *)skb->cb;
	const struct inet_skb_parm *parm4 = (const void *)skb->cb;

	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return BPF_CORE_READ(parm6, flags) & IP6SKB_FRAGMENTED;
	return BPF_CORE_READ(parm4, flags) & IPSKB_FRAG_COMPLETE;
}

/*
 * One packet's charge and length. GRO may have merged several into the skb.
 * Nothing is known from a packet that carries more than its UDP header says:
 * its charge is not that of its length.
 */
static __always_inline struct refused one_packet(const struct sk_buff *skb)
{
	struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	struct udphdr *udp = (void *)(skb->head + skb->transport_header);
	__u32 packets = BPF_CORE_READ(shared, gso_segs);
	struct refused refused = {
		.truesize = skb->truesize,
		.ifindex = skb->skb_iif,
		.condensed = skb->data_len != 0,
	};
	__be16 len_be = 0;

	if (packets > 1) {
		refused.truesize /= packets;
		refused.udp_len =
			BPF_CORE_READ(shared, gso_size) + sizeof(*udp);
		return refused;
	}
	bpf_probe_read_kernel(&len_be, sizeof(len_be), &udp->len);
	refused.udp_len = bpf_ntohs(len_be);
	if (refused.udp_len != ip_payload_len(skb) || is_reassembled(skb))
		refused.truesize = 0;
	return refused;
}

/* The owner is written last and taken away first: see queue_read(). */
static __always_inline void learn(const struct sock *sk, struct refused refused)
{
	struct weir_queue_slot *slot = queue_slot(sk);
	__u64 now = bpf_ktime_get_ns();
	bool known;

	ring(WEIR_CAUSE_UDP_QUEUE, now);
	if (!slot || !refused.truesize)
		return;
	known = slot->sock == (__u64)sk && slot->ifindex == refused.ifindex;
	if (known && now <= slot->learned_ns + TRUESIZE_BELIEVED_NS &&
	    refused.truesize >= slot->truesize)
		return;
	*(volatile __u64 *)&slot->sock = 0;
	if (!known) {
		slot->poll = 0;
		slot->in_flight = 0;
		slot->learned_ns = 0;
	}
	if (now > slot->learned_ns + TRUESIZE_BELIEVED_NS) {
		*(volatile __u64 *)&slot->learned_ns = now;
		*(volatile __u64 *)&slot->asked_poll = 0;
	}
	*(volatile __u32 *)&slot->truesize = refused.truesize;
	*(volatile __u32 *)&slot->udp_len = refused.udp_len;
	*(volatile __u32 *)&slot->ifindex = refused.ifindex;
	*(volatile __u32 *)&slot->condensed = refused.condensed;
	*(volatile __u64 *)&slot->sock = (__u64)sk;
}

/*
 * A UDP packet did not fit into its socket's queue: net/ipv4/udp.c,
 * net/ipv6/udp.c. Kernel 6.10 and later.
 */
SEC("?tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(udp_refused, int rc, struct sock *sk, struct sk_buff *skb)
{
	if (rc == -ENOMEM)
		learn(sk, one_packet(skb));
	return 0;
}

/*
 * The same before 6.10, where __udp_queue_rcv_skb() first frees the packet and
 * then says which socket refused it. Both happen in one softirq, with nothing
 * in between that could free another for the same reason.
 */
SEC("?tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(udp_refused_freed, int rc, struct sock *sk)
{
	__u32 zero = 0;
	struct refused *freed = bpf_map_lookup_elem(&freed_refused, &zero);

	if (!freed)
		return 0;
	if (rc == -ENOMEM)
		learn(sk, *freed);
	freed->truesize = 0;
	return 0;
}

/* Before 6.10: the packet that udp_refused_freed() is about to hear of. */
SEC("?tp_btf/kfree_skb")
int BPF_PROG(skb_freed, struct sk_buff *skb, void *location,
	     enum skb_drop_reason reason)
{
	__u32 zero = 0;
	struct refused *freed;

	if (reason != bpf_core_enum_value(enum skb_drop_reason,
					  SKB_DROP_REASON_SOCKET_RCVBUFF))
		return 0;
	freed = bpf_map_lookup_elem(&freed_refused, &zero);
	if (freed)
		*freed = one_packet(skb);
	return 0;
}

/*
 * Before 6.10 the tracepoint may be silent for IPv6 (6.1's
 * __udpv6_queue_rcv_skb() lacks it). The function that refuses is then watched
 * itself, which costs each UDP packet of the host a call.
 */
SEC("?fexit/__udp_enqueue_schedule_skb")
int BPF_PROG(udp6_refused, struct sock *sk, struct sk_buff *skb, int rc)
{
	if (rc == -ENOMEM && skb->protocol == bpf_htons(ETH_P_IPV6))
		learn(sk, one_packet(skb));
	return 0;
}

/*
 * The end of a NAPI poll. What the gate admitted in it has reached its queue,
 * or never will: nothing of it is in flight in the next one.
 */
SEC("tp_btf/napi_poll")
int BPF_PROG(napi_poll_end)
{
	__u32 zero = 0;
	struct weir_poll *poll = bpf_map_lookup_elem(&napi_polls, &zero);

	if (!poll)
		return 0;
	poll->number++;
	ring_for_discards(poll);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
