/* SPDX-License-Identifier: GPL-2.0-only */
/* What a channel's packets have cost, and may. */
#ifndef WEIR_ABI_ACCOUNT_H
#define WEIR_ABI_ACCOUNT_H

#include <linux/types.h>

#include "channel.h"

/*
 * How many channels each CPU charges one by one (a power of two). The first
 * places are the kinds' own, for all that have none.
 */
#define WEIR_ACCOUNTS 64

/* After this long without a packet an account may be taken by another. */
#define WEIR_ACCOUNT_IDLE_NS 1000000000ULL

/*
 * How many channels of one poll are noted; where there are more, the meter goes
 * through all accounts (a power of two).
 */
#define WEIR_TOUCHES 8

/* The whole of a CPU, as a limit. */
#define WEIR_LIMIT_ONE 1024

/*
 * What the packets of one channel that were admitted on one CPU have cost
 * there, and may. All times in nanoseconds. Two cache lines.
 */
struct weir_account {
	struct weir_channel_key key;
	__u64 poll;	 /* the last in which one was admitted */
	__u32 in_poll;	 /* how many are not charged yet */
	__u32 shed;	 /* discarded for its limit, about; grows */
	__u64 used_ns;	 /* CLOCK_MONOTONIC, of that poll */
	__s64 tokens_ns; /* what may be used at once; below 0: owed */
	/* Ever; of kinds' own places those of channels that had a place, too.
	 */
	__u64 charged_ns;
	__u64 packets;
	/* Of late: their cost is one by the other. */
	__u64 cost_ns;
	__u64 cost_packets;
	__u64 filled_ns; /* when tokens were last added, CLOCK_MONOTONIC */
	/* Set by user space: a limit, and until when it holds. */
	__u64 limited_until_ns;
	__u32 limit; /* of WEIR_LIMIT_ONE */
	/* A listener's: 1 once a connection that it accepted has been seen. */
	__u32 serves;
	/* Likewise, of a kind's own place: its packets are many, and the CPU is
	 * short (cookie.h). */
	__u64 short_until_ns;
	__u64 pad2;
};

#endif /* WEIR_ABI_ACCOUNT_H */
