/* SPDX-License-Identifier: GPL-2.0-only */
/* Does a UDP socket's receive queue have room for one more packet? */
#ifndef WEIR_QUEUE_H
#define WEIR_QUEUE_H

#include "compat.h"
#include "queue_map.h"
#include <stdbool.h>

/*
 * Brings in_flight up to date. Memory that was charged since the last look are
 * packets that have arrived; memory given back means that the reader ran (in
 * steps of a quarter of the buffer, udp_rmem_release()), and what arrived
 * meanwhile cannot be told: then nothing is assumed to be in flight, which errs
 * towards admitting.
 */
static __always_inline void queue_look(struct weir_queue_slot *slot, __u64 poll,
				       __u32 charged)
{
	__u32 arrived;

	if (slot->poll != poll || charged < slot->charged_seen) {
		slot->poll = poll;
		slot->in_flight = 0;
	} else {
		arrived = (charged - slot->charged_seen) / slot->truesize;
		slot->in_flight -=
			arrived < slot->in_flight ? arrived : slot->in_flight;
	}
	slot->charged_seen = charged;
}

/* The clock, read once per poll. */
static __always_inline __u64 poll_clock(struct weir_poll *poll)
{
	if (poll->clocked <= poll->number) {
		poll->clocked = poll->number + 1;
		poll->now_ns = bpf_ktime_get_ns();
	}
	return poll->now_ns;
}

/*
 * The kernel's own test, __udp_enqueue_schedule_skb(): a packet is refused when
 * its charge does not fit and the queue is not empty. Admits it if it fits.
 */
static __always_inline bool queue_admit(const struct sock *sk)
{
	__u32 charged = sk->sk_backlog.rmem_alloc.counter, zero = 0;
	struct weir_poll *poll = bpf_map_lookup_elem(&napi_polls, &zero);
	struct weir_queue_slot *slot = queue_slot(sk);
	__u64 poll_id;

	/* Never refused a packet: let the kernel decide. */
	if (!poll || !slot || slot->sock != (__u64)sk || !slot->truesize)
		return true;
	if (poll_clock(poll) > slot->learned_ns + TRUESIZE_BELIEVED_NS)
		return true;
	/* Distinct over CPUs: none mistakes another's packets for its own. */
	poll_id = poll->number << 16 | bpf_get_smp_processor_id();
	queue_look(slot, poll_id, charged);
	charged += slot->in_flight * slot->truesize;
	if (charged && charged + slot->truesize > (__u32)sk->sk_rcvbuf)
		return false;
	slot->in_flight++;
	return true;
}

#endif /* WEIR_QUEUE_H */
