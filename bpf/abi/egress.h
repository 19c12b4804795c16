/* SPDX-License-Identifier: GPL-2.0-only */
/* Queues of egress interfaces that have refused forwarded packets. */
#ifndef WEIR_ABI_EGRESS_H
#define WEIR_ABI_EGRESS_H

#include <linux/types.h>

/*
 * The queue that a packet to some destination was refused by. Addresses in the
 * kernel: the device queue's root discipline still leads to the one that
 * refuses, or it is not the same queue any more.
 */
struct weir_egress {
	__u64 refused_ns; /* last, CLOCK_MONOTONIC */
	__u64 device_queue;
	__u64 root;
	__u64 queue;
	__u64 ops;	  /* its kind's: another may come where it was */
	__u32 in_bytes;	  /* how its limit counts; else in packets */
	__u32 header_len; /* that the device puts before IP, in bytes */
};

#endif /* WEIR_ABI_EGRESS_H */
