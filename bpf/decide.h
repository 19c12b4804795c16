/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Why a packet passes or is discarded: decide() says so, and nothing else does.
 *
 * A new kind of queue takes a file with one function, which says for how many
 * packets the queue has room; a pair of reasons in verdict.h; and a call of it
 * in slow_path.h.
 */
#ifndef WEIR_DECIDE_H
#define WEIR_DECIDE_H

#include "verdict.h"
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

/* Where a function that gives reasons has none yet. Not a reason. */
#define NO_REASON (-1)

/* Queues and budgets without a bound, or with one that is not known. */
#define ROOM_UNKNOWN (~0U)

#define VERDICT_OF_REASON(name, verdict, kind, text, description) \
	[WEIR_REASON_##name] = WEIR_VERDICT_##verdict,
static const volatile __u8 verdict_of[WEIR_REASON_COUNT] = {
	WEIR_REASONS(VERDICT_OF_REASON)};
#undef VERDICT_OF_REASON

#define KIND_OF_REASON(name, verdict, kind, text, description) \
	[WEIR_REASON_##name] = WEIR_KIND_##kind,
static const volatile __u8 kind_of[WEIR_REASON_COUNT] = {
	WEIR_REASONS(KIND_OF_REASON)};
#undef KIND_OF_REASON

#define BOUND_OF_REASON(name, verdict, kind, text, description) \
	[WEIR_REASON_##name] = BOUND_OF_KIND_##kind,
#define BOUND_OF_KIND(name, bound, addressed, text, description) \
	BOUND_OF_KIND_##name = WEIR_BOUND_##bound,
enum { WEIR_KINDS(BOUND_OF_KIND) };
static const volatile __u8 bound_of[WEIR_REASON_COUNT] = {
	WEIR_REASONS(BOUND_OF_REASON)};
#undef BOUND_OF_KIND
#undef BOUND_OF_REASON

/* The reasons of shares are the last, and their kinds the first. */
#define ONE_LESS(name, verdict, kind, text, description) -1
enum { FIRST_SHARE_REASON = WEIR_REASON_COUNT WEIR_SHARE_REASONS(ONE_LESS) };
#undef ONE_LESS

#define IS_AT_ITS_KIND(name, verdict, kind, text, description)        \
	_Static_assert(WEIR_REASON_##name ==                          \
			       FIRST_SHARE_REASON + WEIR_KIND_##kind, \
		       "share_reason() adds them");
WEIR_SHARE_REASONS(IS_AT_ITS_KIND)
#undef IS_AT_ITS_KIND

static __always_inline bool is_share(__u32 reason)
{
	return reason >= FIRST_SHARE_REASON;
}

static __always_inline enum weir_verdict verdict_of_reason(__u32 reason)
{
	/* Clang knows more of it than the verifier may know. */
	barrier_var(reason);
	return reason < WEIR_REASON_COUNT ? verdict_of[reason]
					  : WEIR_VERDICT_PASS;
}

static __always_inline enum weir_kind kind_of_reason(__u32 reason)
{
	barrier_var(reason);
	return reason < WEIR_REASON_COUNT ? kind_of[reason] : WEIR_KIND_OTHER;
}

static __always_inline enum weir_bound bound_of_reason(__u32 reason)
{
	barrier_var(reason);
	return reason < WEIR_REASON_COUNT ? bound_of[reason]
					  : WEIR_BOUND_UNKNOWN;
}

/* Why packets of a kind are discarded past their share, if they ever are. */
static __always_inline int share_reason(__u32 kind)
{
	return kind < WEIR_REASON_COUNT - FIRST_SHARE_REASON
		       ? FIRST_SHARE_REASON + kind
		       : NO_REASON;
}

static __always_inline int full_reason(__u32 pass)
{
	switch (pass) {
#define FULL_REASON(name, full)  \
	case WEIR_REASON_##name: \
		return WEIR_REASON_##full;
		WEIR_FULL_REASONS(FULL_REASON)
#undef FULL_REASON
	default:
		return NO_REASON;
	}
}

/* All that bears on what becomes of a packet, whoever has found it out. */
struct prospects {
	__u32 pass;	/* the reason for which it passes if nothing stops it */
	__u32 room;	/* packets that the queue that it is for takes */
	__u32 yields;	/* 1: that room is kept for sources that send less */
	__u32 budget;	/* packets that its channel may have admitted in this
			   poll; only looked at where there is room */
	__u32 good_for; /* packets for which all this holds; 0: this one */
	__u32 serves;	/* 1: it is of a connection that a listener accepted */
	__u32 egress_ifindex; /* if it is forwarded; else 0 */
};

/* Nothing is known yet that would stop the packet. */
static __always_inline void prospects_begin(struct prospects *packet,
					    __u32 good_for)
{
	packet->room = ROOM_UNKNOWN;
	packet->yields = 0;
	packet->serves = 0;
	packet->egress_ifindex = 0;
	packet->good_for = good_for;
}

static __always_inline __u32 decide(const struct prospects *packet)
{
	int over = share_reason(kind_of_reason(packet->pass));
	int full = full_reason(packet->pass);

	if (!packet->room && full != NO_REASON)
		return full;
	if (packet->yields)
		return WEIR_REASON_UDP_SOURCE;
	if (!packet->budget && over != NO_REASON)
		return over;
	return packet->pass;
}

#endif /* WEIR_DECIDE_H */
