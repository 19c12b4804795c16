/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether the gate sleeps, and what wakes it.
 *
 * Early discard can only help where the kernel would drop late, and the kernel
 * says so itself, at no cost until it does. Until then the gate leaves at its
 * first branch. Whoever rings clears the flag, so that the next packet is
 * looked at; user space sets it again once nothing has rung for a while.
 */
#ifndef WEIR_ALARM_H
#define WEIR_ALARM_H

#include "shared.h"
#include "verdict.h"

/* Whoever goes on ringing is heard again this seldom: the gates of all CPUs
 * read the line that this writes. */
#define ALARM_AGAIN_NS 100000000ULL

static __always_inline bool is_asleep(void)
{
	struct weir_alarm *it = the_alarm();

	return it && *(volatile __u32 *)&it->asleep;
}

/* User space is to look, though the gate has nothing to do. */
static __always_inline void tell(enum weir_cause cause)
{
	__u32 number = cause;

	bpf_ringbuf_output(&rings, &number, sizeof(number),
			   BPF_RB_FORCE_WAKEUP);
}

static __always_inline void wake(struct weir_alarm *it, enum weir_cause cause)
{
	if (*(volatile __u32 *)&it->asleep) {
		*(volatile __u32 *)&it->asleep = 0;
		__sync_fetch_and_add(&it->woken[cause], 1);
	}
	tell(cause);
}

/* Something is wrong. */
static __always_inline void ring(enum weir_cause cause, __u64 now)
{
	struct weir_alarm *it = the_alarm();

	if (!it)
		return;
	/* Gates may be awake for another reason, and the governor not. */
	if (!*(volatile __u32 *)&it->asleep &&
	    now - it->rung_ns <= ALARM_AGAIN_NS)
		return;
	*(volatile __u64 *)&it->rung_ns = now;
	wake(it, cause);
}

/* Whether it is time for what is done seldom, or was begun so lately that who
 * asks now belongs to it. */
static __always_inline bool is_time(__u64 *begun_ns, __u64 now, __s64 lasts,
				    __s64 seldom)
{
	__s64 since = now - *(volatile __u64 *)begun_ns;

	if (since > seldom)
		*(volatile __u64 *)begun_ns = now;
	return since > seldom || since <= lasts;
}

/*
 * CPU time is short: is there something to discard? Whether that is tried now;
 * one trial is for every CPU.
 */
static __always_inline bool try_gates(__u64 now)
{
	struct weir_alarm *it = the_alarm();

	if (!it ||
	    !is_time(&it->tried_ns, now, WEIR_TRIAL_NS, WEIR_TRY_AGAIN_NS))
		return false;
	wake(it, WEIR_CAUSE_CPU_SHARE);
	return true;
}

/* The next packet is of another poll. Has the gate discarded any in this? */
static __always_inline void end_poll(void)
{
	struct weir_poll *poll = current_poll();

	if (!poll)
		return;
	poll->number++;
	if (poll->discarded == poll->discarded_rung)
		return;
	poll->discarded_rung = poll->discarded;
	ring(WEIR_CAUSE_UDP_QUEUE, bpf_ktime_get_ns());
}

#endif /* WEIR_ALARM_H */
