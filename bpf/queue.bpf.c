// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue probe: what one packet is charged to a UDP socket's queue, and
 * where one NAPI poll ends and the next begins.
 *
 * Truesize is not known at the gate, and guessing it low means never
 * discarding. So the kernel teaches it: each late drop tells what was charged
 * for a packet that did not fit. Nothing here runs for a packet that is
 * delivered.
 */
#include "compat.h"
#include "queue_map.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include <linux/udp.h>

#define ENOMEM 12 /* over the socket's own limit; ENOBUFS is the host's */

struct refused {
	__u32 truesize;
	__u32 udp_len;
};

/* One packet's charge and length. GRO may have merged several into the skb. */
static __always_inline struct refused one_packet(const struct sk_buff *skb)
{
	struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	struct udphdr *udp = (void *)(skb->head + skb->transport_header);
	__u32 packets = BPF_CORE_READ(shared, gso_segs);
	__be16 len_be = 0;

	if (packets > 1)
		return (struct refused){
			.truesize = skb->truesize / packets,
			.udp_len =
				BPF_CORE_READ(shared, gso_size) + sizeof(*udp),
		};
	bpf_probe_read_kernel(&len_be, sizeof(len_be), &udp->len);
	return (struct refused){
		.truesize = skb->truesize,
		.udp_len = bpf_ntohs(len_be),
	};
}

/* A UDP packet did not fit into its socket's queue: net/ipv4/udp.c. */
SEC("tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(udp_refused, int rc, struct sock *sk, struct sk_buff *skb)
{
	struct weir_queue_slot *slot = queue_slot(sk);
	struct refused refused = one_packet(skb);
	__u64 now = bpf_ktime_get_ns();

	if (rc != -ENOMEM || !slot)
		return 0;
	if (slot->sock == (__u64)sk &&
	    now <= slot->learned_ns + TRUESIZE_BELIEVED_NS &&
	    refused.truesize >= slot->truesize)
		return 0;
	if (slot->sock != (__u64)sk) {
		slot->poll = 0;
		slot->in_flight = 0;
		slot->learned_ns = 0;
		slot->sock = (__u64)sk;
	}
	slot->truesize = refused.truesize;
	slot->udp_len = refused.udp_len;
	if (now > slot->learned_ns + TRUESIZE_BELIEVED_NS)
		slot->learned_ns = now;
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

	if (poll)
		poll->number++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
