/* SPDX-License-Identifier: GPL-2.0-only */
/* One UDP socket's queue: what becomes of a packet for it, and of the next. */
#ifndef WEIR_UDP_QUEUE_H
#define WEIR_UDP_QUEUE_H

#include "account.h"
#include "finding.h"
#include "queue.h"

/* For how many packets has it room, besides those on their way to it? */
static __always_inline __u32 udp_room(const struct sock *sk,
				      struct weir_poll *poll,
				      struct queue *queue,
				      struct finding *finding)
{
	__u32 room, in_flight;

	queue_read(sk, poll, queue);
	in_flight = queue_in_flight(queue, poll);
	/* What a filter drops never arrives: only what is there counts. */
	if (kernel_pointer(sk, sk_filter))
		in_flight = 0;
	room = queue_room(queue, in_flight);
	finding->udp_len = queue->udp_len;
	finding->truesize = queue->truesize;
	finding->known_until_ns = queue->known_until_ns;
	finding->reason = room ? WEIR_REASON_UDP_ROOM : WEIR_REASON_UDP_FULL;
	if (DEFECT(ROOM_RESERVED) && room && room < finding->remember)
		finding->remember = room;
	if (queue->asks)
		finding->remember = 0;
	return room;
}

/*
 * This packet takes its place in the queue before it gets there. Not so the
 * first fragment of a datagram that may never be whole, nor a shorter packet,
 * which is charged less.
 */
static __always_inline void udp_expect(const struct queue *queue, __u32 room,
				       __u32 udp_len, __u32 fragment,
				       struct finding *finding)
{
	if (!room || room >= QUEUE_ROOM_FOR_ANY_POLL)
		return;
	if (DEFECT(ROOM_RESERVED)) {
		queue_expect(queue, finding->remember ?: 1);
		return;
	}
	/* Room for only a few: each packet counts. */
	finding->remember = 0;
	if (udp_len >= queue->udp_len &&
	    (fragment == WEIR_FRAGMENT_NONE || DEFECT(FRAGMENT_EXPECTED)))
		queue_expect(queue, 1);
}

/*
 * The next packet, not a fragment, for a socket that was looked at in this NAPI
 * poll: only its queue can have changed. A global function, which the verifier
 * looks at once.
 */
__noinline int udp_judge_next(struct weir_memory *memory, __u32 udp_len)
{
	struct weir_poll *poll = current_poll();
	struct finding finding = {};
	const struct sock *sk;
	struct queue queue;
	__u32 room;

	if (!memory || !poll)
		return 0;
	sk = kernel_cast(memory->sock, struct sock);
	finding.remember = memory->alone_left;
	room = udp_room(sk, poll, &queue, &finding);
	udp_expect(&queue, room, udp_len, WEIR_FRAGMENT_NONE, &finding);
	memory->reason = finding.reason;
	memory->left = finding.remember;
	memory->alone_left -= finding.remember ?: 1;
	memory->udp_len = finding.udp_len;
	memory->truesize = finding.truesize;
	memory->known_until_ns = finding.known_until_ns;
	memory_charge(memory);
	return 0;
}

#endif /* WEIR_UDP_QUEUE_H */
