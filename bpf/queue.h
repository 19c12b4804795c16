/* SPDX-License-Identifier: GPL-2.0-only */
/* For how many packets has a UDP socket's receive queue room? */
#ifndef WEIR_QUEUE_H
#define WEIR_QUEUE_H

#include "address.h"
#include "compat.h"
#include "defect.h"
#include "queue_ask.h"
#include "queue_map.h"
#include <stdbool.h>

#define QUEUE_ROOM_UNKNOWN (~0U)

/* More packets than one NAPI poll takes from a ring (NAPI_POLL_WEIGHT, twice):
 * none of them can fill such a queue, whoever else they are for. */
#define QUEUE_ROOM_FOR_ANY_POLL 128

struct queue {
	struct weir_queue_slot *slot; /* if the charge is known */
	__u32 charged;		      /* bytes */
	__u32 limit;
	__u32 truesize; /* bytes charged for a packet; 0: not known */
	__u32 udp_len;	/* of the packet that this is known from */
	__u64 known_until_ns;
	bool asks; /* the packet is to ask the kernel for the charge */
	bool takes_one_more;
};

static __always_inline struct weir_poll *current_poll(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&napi_polls, &zero);
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
 * Before 6.18 a packet is refused only if the queue is over its limit already,
 * whatever its own charge is.
 */
static __always_inline bool queue_takes_one_more(void)
{
	return !bpf_core_field_exists(struct udp_sock, udp_prod_queue);
}

static __always_inline void
queue_read(const struct sock *sk, struct weir_poll *poll, struct queue *queue)
{
	struct weir_queue_slot *slot = queue_slot(sk);

	queue->charged = kernel_read(sk, sk_backlog.rmem_alloc.counter);
	queue->limit = kernel_read(sk, sk_rcvbuf);
	queue->truesize = 0;
	queue->udp_len = 0;
	queue->known_until_ns = 0;
	queue->asks = false;
	queue->takes_one_more = queue_takes_one_more();
	queue->slot = slot;
	if (!slot)
		return;
	/* Nothing refused, or too long ago: let the kernel decide. */
	queue->known_until_ns = slot->learned_ns + TRUESIZE_BELIEVED_NS;
	if (*(volatile __u64 *)&slot->sock != (__u64)sk ||
	    slot->ifindex != interface.ifindex)
		return;
	if (poll_clock(poll) > queue->known_until_ns + TRUESIZE_BELIEVED_NS)
		return;
	if (poll_clock(poll) > queue->known_until_ns) {
		queue->asks = queue_asks(slot, poll);
		if (queue->asks)
			return;
	}
	queue->truesize = *(volatile __u32 *)&slot->truesize;
	queue->udp_len = *(volatile __u32 *)&slot->udp_len;
	/* Read last: the charge is this socket's, not an evictor's. */
	if (*(volatile __u64 *)&slot->sock != (__u64)sk)
		queue->truesize = 0;
}

/*
 * Packets admitted in this poll that have not been charged yet. Memory that was
 * charged since the last look is packets that have arrived; memory given back
 * means that the reader ran (in steps of a quarter of the buffer,
 * udp_rmem_release()), and what arrived meanwhile cannot be told: then nothing
 * is assumed to be in flight, which errs towards admitting.
 */
static __always_inline __u32 queue_in_flight(const struct queue *queue,
					     const struct weir_poll *poll)
{
	struct weir_queue_slot *slot = queue->slot;
	__u32 in_flight, seen, arrived;
	__u64 poll_id;

	if (!slot || !queue->truesize)
		return 0;
	poll_id = queue_poll_id(poll);
	in_flight = slot->in_flight;
	seen = slot->charged_seen;
	if (slot->poll != poll_id || queue->charged < seen) {
		slot->poll = poll_id;
		slot->charged_seen = queue->charged;
		return slot->in_flight = 0;
	}
	/* What has arrived may have been charged less: then it cannot be told
	 * how many they were. */
	if (slot->condensed && queue->charged != seen) {
		slot->charged_seen = queue->charged;
		return slot->in_flight = 0;
	}
	arrived = (queue->charged - seen) / queue->truesize;
	if (arrived > in_flight)
		arrived = in_flight;
	/* The rest of a packet is set off with the next look. */
	slot->charged_seen = arrived == in_flight
				     ? queue->charged
				     : seen + arrived * queue->truesize;
	return slot->in_flight = in_flight - arrived;
}

/* So many packets are on their way to the queue. */
static __always_inline void queue_expect(const struct queue *queue,
					 __u32 packets)
{
	if (queue->slot && queue->truesize)
		queue->slot->in_flight += packets;
}

/*
 * The kernel's own test, __udp_enqueue_schedule_skb(). Since 6.18 a packet is
 * refused when its charge does not fit and the queue is not empty; before, when
 * what is there already is over the limit. in_flight packets have been admitted
 * and are not charged yet.
 */
static __always_inline __u32 queue_room(const struct queue *queue,
					__u32 in_flight)
{
	__u64 charged = queue->charged + (__u64)in_flight * queue->truesize;
	__u32 limit = queue->limit;

	if (DEFECT(TRUESIZE_GUESSED) && !queue->truesize)
		return charged + 65536 > limit ? 0 : 1;
	if (!queue->truesize)
		return QUEUE_ROOM_UNKNOWN;
	if (DEFECT(QUEUE_HALVED))
		limit /= 2;
	if (queue->takes_one_more)
		return charged > limit
			       ? 0
			       : (limit - charged) / queue->truesize + 1;
	if (!charged && !DEFECT(EMPTY_QUEUE_FULL))
		return queue->truesize > limit ? 1 : limit / queue->truesize;
	if (charged + queue->truesize > limit)
		return 0;
	return (limit - charged) / queue->truesize;
}

/* Has the kernel refused a packet of this socket's, as far as is remembered? */
static __always_inline bool queue_has_refused(const struct sock *sk)
{
	struct weir_queue_slot *slot = queue_slot(sk);

	return slot && *(volatile __u64 *)&slot->sock == (__u64)sk;
}

/* A packet shorter than the one that was refused may be charged less. */
static __always_inline bool queue_is_full(const struct queue *queue,
					  __u32 in_flight, __u32 udp_len)
{
	if (udp_len < queue->udp_len && !DEFECT(SHORT_PACKET_JUDGED))
		return false;
	return queue_room(queue, in_flight) == 0;
}

/*
 * The same of a socket by its address, for loops over several: a global
 * function, which the verifier looks at once, not in each round.
 */
__noinline bool socket_is_full(__u64 sk, __u32 udp_len)
{
	struct weir_poll *poll = current_poll();
	struct queue queue;

	if (!poll)
		return false;
	queue_read(kernel_cast(sk, struct sock), poll, &queue);
	return queue_is_full(&queue, 0, udp_len);
}

#endif /* WEIR_QUEUE_H */
