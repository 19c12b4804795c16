/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Selective dropping within a full channel (Mogul & Ramakrishnan, section
 * 10.3): while a queue is contested, heavy sources are shed before it is full,
 * so that light ones find room. docs/selective.md.
 */
#ifndef WEIR_CONTEST_H
#define WEIR_CONTEST_H

#include "shared.h"
#include "queue.h"
#include "sources.h"

/* A queue counts as contested for this long after it was full, or a source was
 * shed. */
#define CONTESTED_NS 1000000000ULL
/* Longest probe for a place. */
#define CONTEST_PROBES 4

/* This socket's place, or else one that may be taken; NULL: there is none. */
static __always_inline struct weir_contest *contest_place(__u64 sock, __u64 now)
{
	__u32 hash = hash_add(hash_seed, sock) >> 32, i;
	struct weir_contest *contest, *free = NULL;

	for (i = 0; i < CONTEST_PROBES; i++) {
		contest = contest_at(hash + i);
		if (!contest || contest->sock == sock)
			return contest;
		if (!free && now > contest->until_ns)
			free = contest;
	}
	return free;
}

/* The queue is full. */
static __always_inline void contest_go_on(struct weir_contest *contest,
					  __u64 sock, const struct queue *queue,
					  __u64 now)
{
	if (now > contest->until_ns) {
		/* Everything that was counted is too old. */
		contest->era += ERAS_MAX + 1;
		contest->admitted = 0;
		contest->heaviest = 0;
		contest->lighter = 0;
		contest->unknown = 0;
	}
	/* Before 6.18 a queue is known to be full even if nothing is known of
	 * what packets are charged. */
	if (queue->truesize || contest->sock != sock)
		contest->truesize = queue->truesize;
	contest->sock = sock;
	contest->until_ns = now + CONTESTED_NS;
}

/*
 * A queue that is kept from being full teaches nothing any more: what a packet
 * was last charged is too old to refuse one as not fitting, and good enough to
 * tell much room from little.
 */
static __always_inline __u32 contest_room(struct weir_contest *contest,
					  struct queue *queue, __u32 room)
{
	if (queue->truesize) {
		contest->truesize = queue->truesize;
		return room;
	}
	queue->truesize = contest->truesize;
	return queue_room(queue);
}

/*
 * Is what room the queue has kept for lighter sources than this packet's? A
 * packet that is admitted counts for its source.
 */
static __always_inline void contest_judge(__u64 sock, struct queue *queue,
					  const struct charge *charge,
					  __u64 now,
					  struct prospects *prospects)
{
	struct weir_contest *contest = contest_place(sock, now);
	__u32 reserved, room;

	if (!contest)
		return;
	if (!prospects->room)
		return contest_go_on(contest, sock, queue, now);
	if (contest->sock != sock || now > contest->until_ns)
		return;
	room = contest_room(contest, queue, prospects->room);
	if (!queue->truesize)
		return;
	reserved = places_reserved(contest, queue->limit / queue->truesize);
	/* Who sent it counts for each packet. */
	if (reserved)
		prospects->good_for = 0;
	if (!reserved ||
	    !source_must_wait(contest, charge->source, room, reserved)) {
		source_admit(contest, charge->source, charge->packets);
		return;
	}
	contest->until_ns = now + CONTESTED_NS;
	prospects->yields = 1;
}

#endif /* WEIR_CONTEST_H */
