/* SPDX-License-Identifier: GPL-2.0-only */
/* What crosses the boundary between traced packets and their reader. */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include <linux/types.h>

/* Most bytes of a packet that are copied: its headers. */
#define WEIR_TRACE_SNAPLEN 128

/* Within so long, a budget of packets is followed. */
#define WEIR_TRACE_WINDOW_NS 100000000

/* Programs that the tap hands packets on to. */
enum weir_trace_stage {
	WEIR_TRACE_FILTER,
	WEIR_TRACE_TAKE,
	WEIR_TRACE_STAGES,
};

/* Where a packet has come to. */
enum weir_trace_step {
	WEIR_TRACE_RECEIVED, /* an skb, before taps and tc */
	WEIR_TRACE_QUEUED,   /* a socket has it, and tells its readers */
	WEIR_TRACE_WOKEN,    /* a thread, by that */
	WEIR_TRACE_RUNS,     /* that thread */
	WEIR_TRACE_READ,     /* copied to a process */
	WEIR_TRACE_EGRESS,   /* forwarded: at an egress queue */
	WEIR_TRACE_SENT,     /* handed to the egress's driver */
	WEIR_TRACE_DROPPED,
	WEIR_TRACE_CONSUMED, /* freed, and not for want of anything */
	WEIR_TRACE_STEPS,
};

struct weir_trace_event {
	__u64 packet; /* its number */
	__u64 at_ns;  /* CLOCK_MONOTONIC */
	__u64 place;  /* dropped: the kernel's code that did it */
	__u32 step;   /* enum weir_trace_step */
	__u32 cpu;
	__u32 tid;    /* who runs there; woken: who is woken */
	__u32 detail; /* egress, sent: interface; dropped: reason */
	char comm[16];
};

/* The first event of a packet. */
struct weir_trace_arrival {
	struct weir_trace_event event;
	/* When the poll was asked for, and when it began; 0: not known. */
	__u64 scheduled_ns;
	__u64 began_ns;
	__u32 wire_len;
	__u32 captured_len;
	__u32 softirq; /* 1: received by one, on top of that thread */
	__u32 pad;
	__u8 bytes[WEIR_TRACE_SNAPLEN];
};

#endif /* WEIR_TRACE_H */
