/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A NAPI thread whose turn does not come. A batch thread waits for whoever
 * runs, and the scheduler may let him run until its tick (4 ms at 250 Hz),
 * while the ring fills. If somebody runs in between who precedes all normal
 * processes, and be it for a moment, it chooses anew.
 *
 * So where packets come at a rate that could fill a ring in that time, a timer
 * asks whether the thread waits for as long as half a ring takes. As its
 * interrupts cost a busy host several percent, it runs only for some time after
 * a ring may have overflowed.
 */
#ifndef WEIR_TURN_H
#define WEIR_TURN_H

#include "map.h"
#include "abi.h"
#include "task.h"

#define CLOCK_MONOTONIC 1 /* include/uapi/linux/time.h */

/* Set by user space: whether there may be timers, which a kernel with
 * PREEMPT_RT refuses. */
const volatile bool has_timers;

/* Half of the smallest usual ring, a veth's. */
#define TURN_PACKETS 128
/* Their rate is that of so long. */
#define TURN_WINDOW_NS 1000000ULL
/* The scheduler chooses anew by itself after so long... */
#define TURN_NS_MAX 4000000ULL
/* ...and a ring that fills sooner than this does not for want of a turn. */
#define TURN_NS_MIN 333000ULL
/* Who has polled nothing for so long may be gone. */
#define TURN_LEFT_NS 100000000LL
/* For so long after a ring may have overflowed, the next one is expected. */
#define TURN_WANTED_NS 10000000000ULL

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct task_struct___state {
	unsigned int __state; /* 0: runnable */
	int on_cpu;
};

#pragma clang attribute pop

/* Of each input. */
struct turn {
	struct bpf_timer timer;
	__u64 task;	  /* a pointer to its thread */
	__u64 polled_ns;  /* when its last poll ended */
	__u64 since_ns;	  /* when the window began */
	__u64 fills_ns;	  /* in which so many packets come; 0: no matter */
	__u64 overrun_ns; /* when its ring may have overflowed; 0: never */
	__u32 packets;	  /* in the window */
	__u32 armed;
	__u32 full_polls; /* in a row */
	__u32 made;
};

MAP(turns, BPF_MAP_TYPE_ARRAY, 0, WEIR_INPUTS, __u32, struct turn);

/* Inputs that wait. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} due SEC(".maps");

static __always_inline bool waits(const struct turn *turn)
{
	const struct task_struct___state *task = (const void *)turn->task;
	unsigned int state = 1;
	int on_cpu = 1;

	/* One that has ended may be anything by now, but not for long. */
	bpf_core_read(&state, sizeof(state), &task->__state);
	bpf_core_read(&on_cpu, sizeof(on_cpu), &task->on_cpu);
	return !state && !on_cpu;
}

static int ask_for_turn(void *map, __u32 *number, struct turn *turn)
{
	__u64 polled = *(volatile __u64 *)&turn->polled_ns;
	__u64 fills = *(volatile __u64 *)&turn->fills_ns;
	__s64 waited = bpf_ktime_get_ns() - polled;
	__u64 again = fills;

	if (!fills || waited > TURN_LEFT_NS) {
		turn->armed = 0;
		return 0;
	}
	if (waited < (__s64)fills)
		again = fills - waited;
	else if (waits(turn))
		bpf_ringbuf_output(&due, number, sizeof(*number),
				   BPF_RB_FORCE_WAKEUP);
	else if (waited > (__s64)TURN_NS_MAX)
		again = 0;
	turn->armed = again > 0;
	if (again)
		bpf_timer_start(&turn->timer, again, 0);
	return 0;
}

/* At the end of a poll. */
static __always_inline void expect_turn(__u32 number,
					const struct task_struct *task,
					int work, int budget, __u64 now)
{
	struct turn *turn = bpf_map_lookup_elem(&turns, &number);
	__u64 elapsed, fills;

	if (!turn || !has_timers)
		return;
	turn->full_polls = work < budget ? 0 : turn->full_polls + 1;
	if (turn->full_polls >= WEIR_OVERRUN_POLLS)
		turn->overrun_ns = now;
	turn->polled_ns = now;
	turn->packets += work;
	elapsed = now - turn->since_ns;
	if (elapsed < TURN_WINDOW_NS)
		return;
	fills = turn->packets ? elapsed * TURN_PACKETS / turn->packets : 0;
	/* One that is to yield waits on purpose. */
	if (fills < TURN_NS_MIN || fills > TURN_NS_MAX ||
	    task->static_prio > DEFAULT_PRIO || !turn->overrun_ns ||
	    now - turn->overrun_ns > TURN_WANTED_NS)
		fills = 0;
	turn->since_ns = now;
	turn->packets = 0;
	turn->fills_ns = fills;
	turn->task = (__u64)task;
	if (!fills || turn->armed)
		return;
	if (!turn->made) {
		bpf_timer_init(&turn->timer, &turns, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&turn->timer, ask_for_turn);
		turn->made = 1;
	}
	turn->armed = 1;
	bpf_timer_start(&turn->timer, fills, 0);
}

#endif /* WEIR_TURN_H */
