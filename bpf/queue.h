/* SPDX-License-Identifier: GPL-2.0-only */
/* Does a UDP socket's receive queue have room for one more packet? */
#ifndef WEIR_QUEUE_H
#define WEIR_QUEUE_H

#include "compat.h"
#include "queue_map.h"
#include <stdbool.h>

/*
 * Packets admitted in this poll that have not been charged yet. Memory that was
 * charged since the last look are packets that have arrived; memory given back
 * means that the reader ran (in steps of a quarter of the buffer,
 * udp_rmem_release()), and what arrived meanwhile cannot be told: then nothing
 * is assumed to be in flight, which errs towards admitting.
 */
static __always_inline __u32 queue_in_flight(struct weir_queue_slot *slot,
					     __u64 poll, __u32 charged,
					     __u32 truesize)
{
	__u32 in_flight = slot->in_flight, seen = slot->charged_seen, arrived;

	if (slot->poll != poll || charged < seen) {
		slot->poll = poll;
		slot->charged_seen = charged;
		return 0;
	}
	arrived = (charged - seen) / truesize;
	if (arrived > in_flight)
		arrived = in_flight;
	/* The rest of a packet is set off with the next look. */
	slot->charged_seen =
		arrived == in_flight ? charged : seen + arrived * truesize;
	return in_flight - arrived;
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
 * its charge does not fit and the queue is not empty. Admits it if it fits, or
 * if it is not certain that it does not: a packet shorter than the one whose
 * charge is known may be charged less.
 */
static __always_inline bool queue_admit(const struct sock *sk, __u32 udp_len)
{
	__u32 charged = sk->sk_backlog.rmem_alloc.counter, zero = 0;
	struct weir_poll *poll = bpf_map_lookup_elem(&napi_polls, &zero);
	struct weir_queue_slot *slot = queue_slot(sk);
	__u32 truesize, in_flight;
	__u64 poll_id;

	if (!poll || !slot)
		return true;
	/* Nothing refused, or too long ago: let the kernel decide. */
	truesize = *(volatile __u32 *)&slot->truesize;
	if (!truesize || udp_len < *(volatile __u32 *)&slot->udp_len ||
	    poll_clock(poll) > slot->learned_ns + TRUESIZE_BELIEVED_NS)
		return true;
	/* After the charge was read: it is this socket's, not an evictor's. */
	if (*(volatile __u64 *)&slot->sock != (__u64)sk)
		return true;
	/* Distinct over CPUs: none mistakes another's packets for its own. */
	poll_id = poll->number << 16 | bpf_get_smp_processor_id();
	in_flight = queue_in_flight(slot, poll_id, charged, truesize);
	/* What a filter drops never arrives: only what is there counts. */
	if (sk->sk_filter)
		in_flight = 0;
	slot->in_flight = in_flight;
	charged += in_flight * truesize;
	if (charged && charged + truesize > (__u32)sk->sk_rcvbuf)
		return false;
	slot->in_flight = in_flight + 1;
	return true;
}

#endif /* WEIR_QUEUE_H */
