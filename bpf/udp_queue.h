/* SPDX-License-Identifier: GPL-2.0-only */
/* One UDP socket's queue: what becomes of a packet for it, and of the next. */
#ifndef WEIR_UDP_QUEUE_H
#define WEIR_UDP_QUEUE_H

#include "account.h"
#include "finding.h"
#include "flight.h"

/* For how many packets has it room, besides those on their way to it? */
static __always_inline __u32 udp_room(const struct sock *sk,
				      struct weir_poll *poll,
				      const struct charge *charge,
				      struct queue *queue,
				      struct finding *finding)
{
	__u32 room;

	*queue = queue_of(sk, charge->truesize);
	queue->charged += flight_bytes(kernel_address_of(sk), 0, queue->charged,
				       queue->limit);
	room = queue_room(queue);
	if (!room && charge_asks(charge, poll, poll->now_ns)) {
		queue->truesize = 0;
		finding->remember = 0;
		room = QUEUE_ROOM_UNKNOWN;
	}
	finding->full_from = charge->from;
	finding->truesize = queue->truesize;
	finding->known_until_ns = charge->known_until_ns;
	finding->reason = room ? WEIR_REASON_UDP_ROOM : WEIR_REASON_UDP_FULL;
	if (DEFECT(ROOM_RESERVED) && room && room < finding->remember)
		finding->remember = room;
	return room;
}

/*
 * A packet takes its place in the queue before it gets there. Not so the first
 * fragment of a datagram that may never be whole.
 */
static __always_inline void udp_expect(const struct sock *sk,
				       const struct queue *queue, __u32 room,
				       __u32 fragment, struct finding *finding)
{
	__u32 packets = 1;

	if (!room || room >= QUEUE_ROOM_FOR_ANY_POLL)
		return;
	if (DEFECT(ROOM_RESERVED))
		packets = finding->remember ?: 1;
	else
		/* Room for only a few: each packet counts. */
		finding->remember = 0;
	if (fragment == WEIR_FRAGMENT_NONE || DEFECT(FRAGMENT_EXPECTED))
		flight_expect(kernel_address_of(sk), 0,
			      packets * queue->truesize);
}

/*
 * The next packet, not a fragment, for a socket that was looked at in this NAPI
 * poll: only its queue can have changed. A global function, which the verifier
 * looks at once.
 */
__noinline int udp_judge_next(struct weir_memory *memory,
			      const struct charge *charge)
{
	struct weir_poll *poll = current_poll();
	struct finding finding = {};
	const struct sock *sk;
	struct queue queue;
	__u32 room;

	if (!memory || !charge || !poll)
		return 0;
	sk = kernel_cast(memory->sock, struct sock);
	finding.remember = memory->alone_left;
	room = udp_room(sk, poll, charge, &queue, &finding);
	udp_expect(sk, &queue, room, WEIR_FRAGMENT_NONE, &finding);
	memory->reason = finding.reason;
	memory->left = finding.remember;
	memory->alone_left -= finding.remember ?: 1;
	memory->full_from = finding.full_from;
	memory->truesize = finding.truesize;
	memory->known_until_ns = finding.known_until_ns;
	memory_charge(memory);
	return 0;
}

#endif /* WEIR_UDP_QUEUE_H */
