/* SPDX-License-Identifier: GPL-2.0-only */
/* What crosses the boundary between traced packets and their reader. */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include <linux/types.h>

/* Most bytes of a packet that are copied: its headers. */
#define WEIR_TRACE_SNAPLEN 128

/* Within so long, a budget of packets is followed. */
#define WEIR_TRACE_WINDOW_NS 100000000

/*
 * Where a packet has come to. The first two are of the poll that brings it;
 * received: it is an skb, before taps and tc; woken and runs: a thread, by what
 * its socket tells; consumed: freed, and not for want of anything.
 * X(NAME, "name as printed", "for a person")
 */
#define WEIR_STEPS(X)                                     \
	X(SCHEDULED, "scheduled", "poll asked for")       \
	X(POLLED, "polled", "poll begins")                \
	X(RECEIVED, "received", "received")               \
	X(QUEUED, "queued", "in the socket's queue")      \
	X(WOKEN, "woken", "wakes")                        \
	X(RUNS, "runs", "runs")                           \
	X(READ, "read", "read by")                        \
	X(EGRESS, "egress", "forwarded, at the queue of") \
	X(SENT, "sent", "handed to the driver of")        \
	X(DROPPED, "dropped", "dropped")                  \
	X(CONSUMED, "consumed", "done with")

#define WEIR_STEP_ENUM(name, text, description) WEIR_STEP_##name,
enum weir_step { WEIR_STEPS(WEIR_STEP_ENUM) };
#undef WEIR_STEP_ENUM

struct weir_trace_event {
	__u64 packet; /* its number */
	__u64 at_ns;  /* CLOCK_MONOTONIC */
	__u64 place;  /* dropped: the kernel's code that did it */
	__u32 step;   /* enum weir_step */
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
