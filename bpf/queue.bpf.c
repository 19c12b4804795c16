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
#include "map.h"
#include "alarm.h"
#include "charge.h"
#include "compat.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/udp.h>

#define IPV4_TOTAL_LEN_AT 2
#define IPV6_PAYLOAD_LEN_AT 4
#define IPV6_HEADER_LEN 40
#define FRAGMENT_UNIT 8 /* RFC 791 */
#define ENOMEM 12	/* over the socket's own limit; ENOBUFS is the host's */
#define LOOPBACK_IFINDEX 1 /* in each network namespace */

struct refused {
	__u32 truesize; /* bytes; 0: nothing is known */
	__u32 ip_len;	/* of it, or of its largest fragment */
	__u32 ifindex;
	__u32 fragment;	 /* what follows is of one fragment of several */
	__u32 condensed; /* as in struct weir_charges */
};

/* The packet that the kernel is freeing because it did not fit. */
MAP_OF_ONE(this_freed, freed_refused, BPF_MAP_TYPE_PERCPU_ARRAY, 0,
	   struct refused);

/* Its IP header and what that says follows; drivers were given as much. */
static __always_inline __u32 ip_len_of(const struct sk_buff *skb)
{
	const void *ip = skb->head + skb->network_header;
	__be16 len_be = 0;

	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		bpf_probe_read_kernel(&len_be, sizeof(len_be),
				      ip + IPV6_PAYLOAD_LEN_AT);
		return bpf_ntohs(len_be) + IPV6_HEADER_LEN;
	}
	bpf_probe_read_kernel(&len_be, sizeof(len_be), ip + IPV4_TOTAL_LEN_AT);
	return bpf_ntohs(len_be);
}

/* The IP length of the largest of the fragments it was made of; 0: of none. */
static __always_inline __u32 largest_fragment(const struct sk_buff *skb)
{
	const struct inet6_skb_parm *parm6 = (const void *)skb->cb;
	const struct inet_skb_parm *parm4 = (const void *)skb->cb;

	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return BPF_CORE_READ(parm6, frag_max_size);
	return BPF_CORE_READ(parm4, frag_max_size);
}

/*
 * Is it made of no more pieces than that? A fragment is a piece of its own, as
 * skb_try_coalesce() moves it, unless it was so short that it was copied behind
 * another: then it is not charged for, either.
 */
static __always_inline bool has_few_pieces(const struct skb_shared_info *shared,
					   __u32 most)
{
	const struct sk_buff *piece = BPF_CORE_READ(shared, frag_list);
	__u32 pieces = 1 + BPF_CORE_READ(shared, nr_frags), i;

	for (i = 0; i < FRAGMENTS_COUNTED && piece; i++) {
		piece = BPF_CORE_READ(piece, next);
		pieces++;
	}
	return !piece && pieces <= most;
}

/*
 * It is charged the sum of its fragments, as many as if all were alike. Where
 * they are more, a sender chose what they come to: no other datagram is charged
 * like it.
 */
static __always_inline void one_fragment(struct refused *refused,
					 const struct skb_shared_info *shared,
					 __u32 largest, __u32 headers_len,
					 __u32 fragment_header_len)
{
	__u32 before = headers_len + fragment_header_len, fragments;
	__u32 payload = largest > before ? largest - before : 0;

	payload &= ~(FRAGMENT_UNIT - 1);
	refused->fragment = 1;
	if (!payload || refused->ip_len <= headers_len) {
		refused->truesize = 0;
		return;
	}
	fragments = (refused->ip_len - headers_len + payload - 1) / payload;
	refused->truesize = has_few_pieces(shared, fragments)
				    ? refused->truesize / fragments
				    : 0;
	refused->ip_len = largest;
}

/*
 * What this host has sent itself comes from the loopback, or for its own groups
 * by the interface that it was sent by (ip_mc_output()).
 */
static __always_inline __u32 came_by(const struct sk_buff *skb)
{
	bool looped =
		BPF_CORE_READ_BITFIELD_PROBED(skb, pkt_type) == PACKET_LOOPBACK;

	return looped ? LOOPBACK_IFINDEX : skb->skb_iif;
}

/* One packet's charge and length. GRO may have merged several into the skb. */
static __always_inline struct refused one_packet(const struct sk_buff *skb)
{
	struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	__u32 headers_len = skb->transport_header - skb->network_header;
	__u32 packets = BPF_CORE_READ(shared, gso_segs);
	__u32 largest = largest_fragment(skb), fragment_header_len = 0;
	struct refused refused = {
		.truesize = skb->truesize,
		.ip_len = ip_len_of(skb),
		.ifindex = came_by(skb),
		.condensed = skb->data_len != 0,
	};

	if (packets > 1) {
		refused.truesize /= packets;
		refused.ip_len = headers_len + sizeof(struct udphdr) +
				 BPF_CORE_READ(shared, gso_size);
	} else if (largest) {
		/* IPv6's fragment header is not there any more. */
		if (skb->protocol == bpf_htons(ETH_P_IPV6))
			fragment_header_len = FRAGMENT_UNIT;
		one_fragment(&refused, shared, largest, headers_len,
			     fragment_header_len);
	}
	return refused;
}

/*
 * The smallest charge of late is the class's. The shortest class that is known
 * bounds those that are not from below.
 */
static __always_inline void learn_charge(struct weir_charges *charges,
					 const struct refused *refused,
					 __u64 now)
{
	struct weir_charge *known,
		*least = &charges->least[refused->fragment & 1];
	__u32 class = charge_class(refused->ip_len);

	known = charge_at(charges, refused->fragment, class);
	if (!known)
		return;
	if (now - known->learned_ns >= CHARGE_BELIEVED_NS ||
	    refused->truesize < known->truesize) {
		known->truesize = refused->truesize;
		known->from = charge_class_from(class);
		known->learned_ns = now;
	}
	if (known->from <= least->from ||
	    now - least->learned_ns >= CHARGE_KEPT_NS)
		*least = *known;
}

static __always_inline void learn(const struct sock *sk, struct refused refused)
{
	__u64 now = bpf_ktime_get_ns();
	struct weir_charge_key key = {};
	struct weir_charges *charges;
	__u32 *row;

	/* No gate could have spared a packet of this host's own. */
	if (refused.ifindex != LOOPBACK_IFINDEX)
		ring(WEIR_CAUSE_UDP_QUEUE, now);
	key.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	key.ifindex = refused.ifindex;
	row = bpf_map_lookup_elem(&charge_rows, &key);
	charges = row ? charges_at(*row) : NULL;
	if (!charges || !refused.truesize)
		return;
	learn_charge(charges, &refused, now);
	if (now - charges->confirmed_ns < CHARGE_BELIEVED_NS)
		return;
	charges->condensed = refused.condensed;
	charges->confirmed_ns = now;
	charges->asked_poll = 0;
}

/*
 * A UDP packet did not fit into its socket's queue: net/ipv4/udp.c,
 * net/ipv6/udp.c. Kernel 6.10 and later.
 */
SEC("?tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(weir_refused, int rc, struct sock *sk, struct sk_buff *skb)
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
int BPF_PROG(weir_refused_by, int rc, struct sock *sk)
{
	struct refused *freed = this_freed();

	if (!freed)
		return 0;
	if (rc == -ENOMEM)
		learn(sk, *freed);
	freed->truesize = 0;
	return 0;
}

/* Before 6.10: the packet that weir_refused_by() is about to hear of. */
SEC("?tp_btf/kfree_skb")
int BPF_PROG(weir_freed, struct sk_buff *skb, void *location,
	     enum skb_drop_reason reason)
{
	struct refused *freed;

	if (reason != bpf_core_enum_value(enum skb_drop_reason,
					  SKB_DROP_REASON_SOCKET_RCVBUFF))
		return 0;
	freed = this_freed();
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
int BPF_PROG(weir_refused6, struct sock *sk, struct sk_buff *skb, int rc)
{
	if (rc == -ENOMEM && skb->protocol == bpf_htons(ETH_P_IPV6))
		learn(sk, one_packet(skb));
	return 0;
}

/* Of the governor, what is to be done where a poll ends, if anything: each
 * program at a tracepoint costs as much again, also for what is sent by a veth
 * or the loopback, packet by packet. */
MAP(at_poll_end, BPF_MAP_TYPE_PROG_ARRAY, 0, 1, __u32, __u32);

/*
 * The end of a NAPI poll. What the gate admitted in it has reached its queue,
 * or never will: nothing of it is in flight in the next one.
 */
SEC("tp_btf/napi_poll")
int BPF_PROG(weir_poll_end)
{
	end_poll();
	bpf_tail_call(ctx, &at_poll_end, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
