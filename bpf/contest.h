/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Selective dropping within a full channel (Mogul & Ramakrishnan, section
 * 10.3): while a queue is contested, heavy sources are shed before it is full,
 * so that light ones find room. docs/selective.md.
 */
#ifndef WEIR_CONTEST_H
#define WEIR_CONTEST_H

#include "contest_map.h"
#include "queue.h"
#include "sources.h"
#include "workspace.h"

/* So long after a queue was full, or a source shed, it is contested. */
#define CONTESTED_NS 1000000000ULL
/* So many places are looked at for one. */
#define CONTEST_PROBES 4

/* This socket's place, or else one that may be taken; NULL: there is none. */
static __always_inline struct weir_contest *
contest_place(const struct sock *sk, __u64 now, __u32 *place)
{
	__u64 sock = kernel_address_of(sk);
	__u32 hash = ((hash_seed ^ sock) * 0x9e3779b97f4a7c15ULL) >> 32;
	struct weir_contest *contest, *free = NULL;
	__u32 i;

	for (i = 0; i < CONTEST_PROBES; i++) {
		contest = contest_at(hash + i);
		if (!contest)
			return NULL;
		if (contest->sock == sock) {
			*place = (hash + i) & (WEIR_CONTESTS - 1);
			return contest;
		}
		if (!free && now > contest->until_ns) {
			*place = (hash + i) & (WEIR_CONTESTS - 1);
			free = contest;
		}
	}
	return free;
}

/* The queue is full. */
static __always_inline void contest_go_on(struct weir_contest *contest,
					  const struct sock *sk,
					  const struct queue *queue, __u64 now)
{
	if (now > contest->until_ns) {
		/* Everything that was counted is too old. */
		contest->era += ERAS_MAX + 1;
		contest->admitted = 0;
		contest->heaviest = 0;
		contest->lighter = 0;
		contest->unknown = 0;
	}
	contest->sock = (__u64)sk;
	contest->truesize = queue->truesize;
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

/* Of the room that the queue has, how much is this packet's source to see? */
static __noinline __u32 contest_judge(const struct sock *sk,
				      struct queue *queue, __u32 room,
				      const struct flow *flow,
				      struct finding *finding)
{
	struct weir_poll *poll = current_poll();
	struct weir_contest *contest;
	__u32 place;
	__u64 now;

	if (!poll)
		return room;
	now = poll->now_ns;
	contest = contest_place(sk, now, &place);
	if (!contest)
		return room;
	if (!room) {
		contest_go_on(contest, sk, queue, now);
		return 0;
	}
	if (contest->sock != (__u64)sk || now > contest->until_ns)
		return room;
	room = contest_room(contest, queue, room);
	if (!queue->truesize)
		return room;
	finding->contest = 1 + place;
	finding->room = room;
	finding->reserved =
		places_reserved(contest, queue->limit / queue->truesize);
	if (!finding->reserved)
		return room;
	/* Who sent it counts for each packet. */
	finding->remember = 0;
	if (!source_must_wait(contest, source_hash(flow), room,
			      finding->reserved))
		return room;
	contest->until_ns = now + CONTESTED_NS;
	finding->reason = WEIR_REASON_UDP_SOURCE;
	return 0;
}

#endif /* WEIR_CONTEST_H */
