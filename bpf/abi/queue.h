/* SPDX-License-Identifier: GPL-2.0-only */
/* Socket queues: what was admitted, what packets are charged, and who contests.
 */
#ifndef WEIR_ABI_QUEUE_H
#define WEIR_ABI_QUEUE_H

#include <linux/types.h>

/* How many sockets' queue states are remembered at once (a power of two). */
#define WEIR_QUEUE_SLOTS 4096

/*
 * What is known about one UDP socket's receive queue beyond what the socket
 * itself says. One cache line.
 */
struct weir_queue_slot {
	/* The kernel's struct sock *, mixed with the group that its packets
	 * are sent to, if any: only ever compared. */
	__u64 sock;
	__u64 poll; /* the NAPI poll in which the gate last looked */
	/* Bytes charged to the queue that in_flight has been set off against.
	 */
	__u32 charged_seen;
	/* Bytes admitted in this poll that have not been charged yet. */
	__u32 in_flight;
	__u64 head;	  /* the first packet in it at the last look; 0: none */
	__u64 doubted_ns; /* when a packet was last seen not to arrive, or 0 */
	__u32 arrives;	  /* since then all of a poll were seen to arrive */
	__u32 largest;	  /* charge of what was admitted in this poll */
	__u32 taken_seen; /* bytes taken by readers and not given back */
	__u32 moved;	  /* a reader has taken some in this poll, or since */
};

/* How many interfaces with a gate are taught what packets are charged. */
#define WEIR_CHARGE_ROWS 64
/* Classes of lengths: of 16 bytes, and from 2,048 on of 2,048. */
#define WEIR_CHARGE_CLASSES 160

/* An interface, by its network namespace's inode number and its own. */
struct weir_charge_key {
	__u32 netns;
	__u32 ifindex;
};

/* What the kernel charges for packets of one class of lengths. */
struct weir_charge {
	__u64 learned_ns; /* CLOCK_MONOTONIC */
	__u32 truesize;	  /* bytes: the smallest of late */
	__u32 from;	  /* the least IP length of the class */
};

/* The same of an interface's packets, and of one fragment of several. */
struct weir_charges {
	__u64 confirmed_ns; /* when the kernel last refused any */
	/* The NAPI poll in which the kernel was asked again; 0: not yet. */
	__u64 asked_poll;
	__u32 asked_looks; /* since then */
	__u32 condensed; /* what is taken may be charged less: skb_condense() */
	struct weir_charge least[2]; /* of the shortest class that is known */
	struct weir_charge of[2 * WEIR_CHARGE_CLASSES];
};

/* How many contested queues are followed at once (a power of two). */
#define WEIR_CONTESTS 64

/* The sketch of who sends to one: rows, and places in each (a power of two). */
#define WEIR_SOURCE_ROWS 4
#define WEIR_SOURCE_COLUMNS_BITS 10
#define WEIR_SOURCE_COLUMNS (1 << WEIR_SOURCE_COLUMNS_BITS)

/* What was admitted from the sources that share a place. */
struct weir_source_count {
	__u16 era; /* halved with each that ends */
	__u16 packets;
};

/*
 * A UDP socket's queue that was full of late, and who was admitted to it: all
 * counts are of packets, and halved when an era ends.
 */
struct weir_contest {
	__u64 sock;	/* the kernel's struct sock *, only ever compared */
	__u64 until_ns; /* CLOCK_MONOTONIC */
	__u32 truesize; /* bytes charged for a packet, as last known */
	__u32 era;
	__u32 admitted; /* all, but for what the era's end has halved */
	__u32 heaviest; /* of the source that most were admitted from */
	__u32 lighter;	/* from sources with clearly fewer than that... */
	__u32 unknown;	/* ...and from those that were hardly seen before */
	struct weir_source_count
		counts[WEIR_SOURCE_ROWS * WEIR_SOURCE_COLUMNS]; /* row by row */
};

#endif /* WEIR_ABI_QUEUE_H */
