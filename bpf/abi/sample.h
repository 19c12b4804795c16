/* SPDX-License-Identifier: GPL-2.0-only */
/* Samples of what the gate discards. */
#ifndef WEIR_ABI_SAMPLE_H
#define WEIR_ABI_SAMPLE_H

#include <linux/types.h>

/* Samples of discards: how many of each CPU are kept (a power of two)... */
#define WEIR_SAMPLES 512
/* ...and of how many bytes: the longest usual headers, up to the ports. */
#define WEIR_SAMPLE_LEN 104

/* A discarded packet, for those that were discarded since the last sample. */
struct weir_sample {
	__u64 number;  /* on this CPU, from 1; 0: it is being written */
	__u32 packets; /* that it stands for, itself included */
	__u32 ifindex;
	__u32 reason;		     /* enum weir_reason */
	__u32 len;		     /* of the bytes that there are */
	__u8 bytes[WEIR_SAMPLE_LEN]; /* the frame's first */
};

/* Per CPU: which discard is sampled next. */
struct weir_sampler {
	__u64 number;	 /* of the last sample */
	__u64 period_ns; /* when this period began, CLOCK_MONOTONIC */
	__u32 seen;	 /* discards in it... */
	__u32 taken;	 /* ...and samples */
	__u32 packets;	 /* discards since the last sample */
	__u32 due;	 /* so many are, when the next is taken */
	__u32 gap;	 /* how many are between two, in the mean */
	__u32 pad;
};

#endif /* WEIR_ABI_SAMPLE_H */
