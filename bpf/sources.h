/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who is admitted to a contested queue, and how much: a count-min sketch
 * (Cormode & Muthukrishnan, 2005) with conservative update (Estan & Varghese,
 * 2002). docs/selective.md has the bounds of its error.
 *
 * Only admitted packets are counted. What a flood can put into the sketch is
 * what it gets into the queue, and discarding counts nothing.
 */
#ifndef WEIR_SOURCES_H
#define WEIR_SOURCES_H

#include "abi.h"
#include "flow.h"
#include "shared.h"

/* So many packets make an era, and as many are remembered at its end. */
#define ERA_PACKETS 1024
/* A source with so few before this packet may be one of very many. */
#define UNKNOWN_PACKETS 2
/* So many of them are not a heavy source's first ones. */
#define UNKNOWN_MATTER 4
/* Sources with less than one part of what is admitted are never shed. */
#define LIGHT_PARTS 128
/* A count that is so many eras old is 0. */
#define ERAS_MAX 15

/*
 * A source is an IPv4 address, or an IPv6 /64, whose host part anyone on that
 * link may choose.
 */
static __always_inline __u64 source_hash(const struct flow *flow)
{
	__u64 address = flow->source[0];

	if (flow->family == WEIR_FAMILY_IPV6)
		address |= (__u64)flow->source[1] << 32;
	return hash_add(hash_seed, address);
}

static __always_inline struct weir_source_count *
source_count(struct weir_contest *contest, __u64 hash, __u32 row)
{
	__u32 column = hash >> row * WEIR_SOURCE_COLUMNS_BITS &
		       (WEIR_SOURCE_COLUMNS - 1);

	return &contest->counts[row * WEIR_SOURCE_COLUMNS + column];
}

static __always_inline __u32 source_packets(const struct weir_contest *contest,
					    struct weir_source_count count)
{
	__u16 eras = contest->era - count.era;

	return eras > ERAS_MAX ? 0 : count.packets >> eras;
}

/* How many packets of this source were admitted of late; rather too many. */
static __always_inline __u32 source_admitted(struct weir_contest *contest,
					     __u64 hash)
{
	__u32 row, packets, least = ~0U;

	for (row = 0; row < WEIR_SOURCE_ROWS; row++) {
		packets = source_packets(contest,
					 *source_count(contest, hash, row));
		if (packets < least)
			least = packets;
	}
	return least;
}

static __always_inline void source_raise(struct weir_contest *contest,
					 __u64 hash, __u32 packets)
{
	struct weir_source_count *count;
	__u32 row;

	for (row = 0; row < WEIR_SOURCE_ROWS; row++) {
		count = source_count(contest, hash, row);
		if (source_packets(contest, *count) < packets)
			count->packets = packets;
		else
			count->packets = source_packets(contest, *count);
		count->era = contest->era;
	}
}

static __always_inline void era_end(struct weir_contest *contest)
{
	contest->era++;
	contest->admitted /= 2;
	contest->heaviest /= 2;
	contest->lighter /= 2;
	contest->unknown /= 2;
}

/* A global function, which the verifier looks at once. */
__noinline int source_admit(struct weir_contest *contest, __u64 hash,
			    __u32 packets)
{
	__u32 before;

	if (!contest)
		return 0;
	before = source_admitted(contest, hash);
	if (before <= UNKNOWN_PACKETS)
		contest->unknown += packets;
	else if (4 * before < 3 * contest->heaviest)
		contest->lighter += packets;
	contest->admitted += packets;
	source_raise(contest, hash, before + packets);
	if (before + packets > contest->heaviest)
		contest->heaviest = before + packets;
	if (contest->admitted >= 2 * ERA_PACKETS)
		era_end(contest);
	return 0;
}

/*
 * Of the queue's places, how many heavy sources leave to the others: half of
 * the others' part of what was admitted. So half the queue at most, and it
 * never runs empty for it. Nothing if most was from sources that were hardly
 * seen before: those are so many that nobody can be told to be light, or are
 * made up.
 */
static __always_inline __u32 places_reserved(const struct weir_contest *contest,
					     __u32 places)
{
	__u32 admitted = contest->admitted ?: 1;
	__u32 light = contest->lighter;
	__u32 reserved;

	if (2 * contest->unknown > admitted)
		return 0;
	/* A heavy source was unknown once, too. */
	if (contest->unknown > UNKNOWN_MATTER)
		light += contest->unknown;
	reserved = ((__u64)places * light / 2 + admitted - 1) / admitted;
	return reserved < places / 2 ? reserved : places / 2;
}

/*
 * Is the room that is left kept for others than this source? The heaviest leave
 * all that is reserved, others as much less as they send less. A global
 * function, for the same reason.
 */
__noinline bool source_must_wait(struct weir_contest *contest, __u64 hash,
				 __u32 room, __u32 reserved)
{
	__u32 packets;

	if (!contest || !reserved || room > reserved)
		return false;
	packets = source_admitted(contest, hash);
	return LIGHT_PARTS * packets >= contest->admitted &&
	       (__u64)room * contest->heaviest <= (__u64)reserved * packets;
}

#endif /* WEIR_SOURCES_H */
