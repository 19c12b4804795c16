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
#include <bpf/bpf_tracing.h>

#define ENOMEM 12 /* over the socket's own limit; ENOBUFS is the host's */

/* What one packet of this skb is charged; GRO may have merged several. */
static __always_inline __u32 packet_charge(const struct sk_buff *skb)
{
	struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	__u32 packets = BPF_CORE_READ(shared, gso_segs);

	return skb->truesize / (packets ?: 1);
}

/* A UDP packet did not fit into its socket's queue: net/ipv4/udp.c. */
SEC("tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(udp_refused, int rc, struct sock *sk, struct sk_buff *skb)
{
	struct weir_queue_slot *slot = queue_slot(sk);
	__u32 charge = packet_charge(skb);
	__u64 now = bpf_ktime_get_ns();

	if (rc != -ENOMEM || !slot)
		return 0;
	if (slot->sock != (__u64)sk) {
		slot->poll = 0;
		slot->in_flight = 0;
		slot->learned_ns = 0;
		slot->sock = (__u64)sk;
	}
	if (now > slot->learned_ns + TRUESIZE_BELIEVED_NS) {
		slot->truesize = charge;
		slot->learned_ns = now;
	} else if (charge < slot->truesize) {
		slot->truesize = charge;
	}
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
