/* SPDX-License-Identifier: GPL-2.0-only */
/* Whose time input takes: softirqs, CPUs and NAPI threads. */
#ifndef WEIR_ABI_GOVERNOR_H
#define WEIR_ABI_GOVERNOR_H

#include <linux/types.h>

/* The whole of a CPU's time. */
#define WEIR_SHARE_ONE 1000

/*
 * More packets than one poll takes. So many with no end of a poll between them:
 * whoever saw them end is gone, and nothing ends a period any more.
 */
#define WEIR_UNMARKED_MAX 1024

/*
 * No poll takes so long by itself (64 packets): the hypervisor or an interrupt
 * had the CPU, and the packets are not to pay for that.
 */
#define WEIR_POLL_NS_MAX 1000000ULL

/* Whose time a receive softirq runs in. */
enum weir_softirq_time {
	WEIR_SOFTIRQ_SPARE, /* nobody's: no process wants the CPU */
	WEIR_SOFTIRQ_OWN,   /* its sender's: of packets sent on this CPU */
	WEIR_SOFTIRQ_TAKEN, /* another process's */
};

/*
 * Per CPU: what receive softirqs take from processes. All times in nanoseconds.
 * One cache line.
 */
struct weir_softirq {
	/* The clock at the last mark (it began, or a poll in it ended); 0: no
	 * receive softirq runs. */
	__u64 marked_ns;
	__u64 period_began_ns;
	__u64 period_taken_ns;	     /* in this period */
	__u64 used_ns;		     /* ever */
	__u64 taken_ns;		     /* ever */
	enum weir_softirq_time time; /* since the last mark */
	/* period_taken_ns, in parts of WEIR_SHARE_ONE of a period; 0 where
	 * nothing is taken. */
	__u32 share;
	__u32 unmarked; /* packets since then for which share was too much */
	__u32 limit;	/* as share; the one that it was too much for; or 0 */
	__u16 in_interrupt;
	__u16 raised;	      /* the next one was raised in an interrupt */
	__u16 from_interrupt; /* this one was */
	__u16 pad;
};

/* How many NAPI threads are governed at once. */
#define WEIR_INPUTS 64

/* How many processes are known to be woken by network input. */
#define WEIR_CONSUMERS 4096

/*
 * So many polls in a row that took a whole budget (64): about as much waited as
 * a small ring holds (veth: 256), so it may have overflowed.
 */
#define WEIR_OVERRUN_POLLS 3
/*
 * Where no packet was discarded, so many: all that a small ring holds. A few
 * full polls, with waits between them, are also what clients make that wait for
 * answers.
 */
#define WEIR_CONTENDED_POLLS 4

/* What a CPU is at. */
enum weir_running {
	WEIR_RUNNING_IDLE,
	WEIR_RUNNING_INPUT,    /* a governed NAPI thread */
	WEIR_RUNNING_CONSUMER, /* a process that input wakes */
	WEIR_RUNNING_STRANGER, /* any other, or a thread of the kernel's */
	WEIR_RUNNING_HOST,     /* its real-time threads, and weir itself */
	WEIR_RUNNING_LIGHT, /* a process that hardly weighs anything, or is to
			     * run when nobody else wants to */
};

/*
 * What one CPU's time went to: written on that CPU alone but for the counts.
 * Two cache lines.
 */
struct weir_cpu {
	__u64 since_ns; /* when what runs now began to, CLOCK_MONOTONIC */
	__u64 stranger_ns;
	enum weir_running running;
	__u32 input;	 /* which, if it is one */
	__u32 inputs;	 /* those that last ran here */
	__s32 waiting;	 /* of them, those that wait for the CPU */
	__s32 consumers; /* runnable here, or running */
	__s32 light;	 /* likewise: processes that hardly weigh anything */
	__u32 wanted;	 /* strangers that were runnable at the last switch */
	__u32 crowded;	 /* more than one is runnable */
	__u64 crowded_ns;
	__u64 idle_ns;
	__u64 light_ns; /* of it, of light processes */
	__u32 receives; /* who runs has taken packets from a socket */
	__u32 counts;	/* how often `consumers` and `light` have begun anew */
	__u64 busy_ns;	/* of consumers that keep input waiting */
	__u64 busy_since_ns; /* when one ran after none was runnable; or 0 */
	__u64 pad_line[3];
};

/*
 * One governed NAPI thread. All times in nanoseconds; counters only grow.
 */
struct weir_input {
	__u64 ran_ns;
	__u64 taken_ns;	 /* of it, while a stranger waited for the CPU */
	__u64 intruded;	 /* how often that began */
	__u64 woken;	 /* of it, by a wake-up, not as its turn came */
	__u64 wasted_ns; /* of it, for packets that were discarded */
	__u64 held_ns;	 /* waited while a stranger ran */
	__u64 packets;
	__u64 discarded; /* of them */
	__u64 beside;	 /* packets of other channels, admitted meanwhile */
	__u64 polled_ns; /* when its last poll ended, or it began to run */
	__u64 stranger_then_ns; /* cpu->stranger_ns as it began to wait */
	/* What polls that discarded everything took of late, and discarded. */
	__u64 vain_ns;
	__u64 vain_packets;
	__u64 carried_ns; /* from its last poll's end until it last stopped */
	__u32 cpu;
	__u32 waiting;
	__u32 home; /* the CPU among whose inputs it is, once it has run */
	__u32 full_polls; /* in a row */
	__u32 overruns;	  /* polls before which the ring may have been full */
	__u32 wakes;	  /* it has been woken and has not run since */
	__u32 contended; /* of overruns, those of several channels that go on */
	__u32 pad;
};

#endif /* WEIR_ABI_GOVERNOR_H */
