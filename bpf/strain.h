/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What tells a sleeping governor that a CPU is short: its NAPI thread waits
 * long for each turn, finds a ring that may have overflowed meanwhile, or takes
 * more than input's share while others want the CPU. The scheduler keeps the
 * times anyway; they are compared where a NAPI poll ends, so that nothing runs
 * while no packet comes, and no timer at all.
 */
#ifndef WEIR_STRAIN_H
#define WEIR_STRAIN_H

#include "map.h"
#include "alarm.h"
#include "input.h"
#include "refusals.h"
#include <bpf/bpf_tracing.h>

/* Over how long times are compared. */
#define STRAIN_WINDOW_NS 20000000ULL
/* Whoever waits for less of the time than this does not want the CPU. */
#define STRAIN_WAITS_PERMILLE 50
/* Long waits may be its receivers' doing, which is no reason to act. To find
 * out costs every CPU something, so it is done this seldom, for all that wait
 * then: each has a window that ends within so long. */
#define STRAIN_AGAIN_NS 1000000000LL
#define STRAIN_LASTS_NS (2 * (__s64)STRAIN_WINDOW_NS)

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct sched_info {
	unsigned long pcount;	      /* turns */
	unsigned long long run_delay; /* waited for them */
};

struct sched_entity___runs {
	__u64 sum_exec_runtime;
};

struct task_struct___runs {
	struct sched_entity___runs se;
	struct sched_info sched_info;
};

#pragma clang attribute pop

/* A NAPI thread runs softirqs, too: other instances are polled in them. */
static __always_inline bool is_polled_by(const struct napi_struct *napi,
					 const struct task_struct *task)
{
	return napi->thread == task;
}

/* Of each input. */
MAP(strains, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, WEIR_INPUTS, __u32,
    struct weir_strain);

/* When waits were last told of. */
__u64 suspected_ns;

/* Has its ring been full again and again? */
static __always_inline bool is_standing(const struct weir_strain *strain)
{
	return strain->full > WEIR_CONTENDED_POLLS * (strain->drained + 1);
}

static __always_inline void strain_compare(struct weir_strain *strain,
					   const struct weir_strain *now)
{
	__u64 elapsed = now->seen_ns - strain->seen_ns;
	__u64 waited = now->waited_ns - strain->waited_ns;
	__u64 ran = now->ran_ns - strain->ran_ns;
	bool over = ran * WEIR_SHARE_ONE > elapsed * strain->share;

	/* Of a thread that has just come nothing is known. */
	if (!strain->seen_ns)
		return;
	if (waited * 1000 > elapsed * STRAIN_WAITS_PERMILLE &&
	    (over || is_standing(strain)) && try_gates(now->seen_ns)) {
		strain->over++;
	} else if ((strain->overruns ||
		    waited > strain->wait_ns * (now->turns - strain->turns)) &&
		   is_time(&suspected_ns, now->seen_ns, STRAIN_LASTS_NS,
			   STRAIN_AGAIN_NS)) {
		if (strain->suspected_ns == suspected_ns)
			return;
		strain->suspected_ns = suspected_ns;
		strain->waits++;
		tell(WEIR_CAUSE_CPU_WAIT);
	}
}

/* At the end of a NAPI poll, on its thread. */
static __always_inline void find_strain(struct napi_struct *napi,
					const struct task_struct *task,
					int work, int budget)
{
	const struct task_struct___runs *runs = (const void *)task;
	struct weir_strain now = {}, *strain;
	__u32 *number = number_of(task);

	strain = number ? bpf_map_lookup_elem(&strains, number) : NULL;
	if (!strain)
		return;
	now.seen_ns = bpf_ktime_get_ns();
	compare_refusals(napi, now.seen_ns);
	if (!strain->wait_ns ||
	    !bpf_core_field_exists(runs->sched_info.run_delay))
		return;
	strain->full_polls = work < budget ? 0 : strain->full_polls + 1;
	strain->overruns += strain->full_polls == WEIR_OVERRUN_POLLS;
	if (work < budget)
		strain->drained++;
	else
		strain->full++;
	if (now.seen_ns - strain->seen_ns < STRAIN_WINDOW_NS)
		return;
	now.ran_ns = runs->se.sum_exec_runtime;
	now.waited_ns = runs->sched_info.run_delay;
	now.turns = runs->sched_info.pcount;
	strain_compare(strain, &now);
	strain->seen_ns = now.seen_ns;
	strain->ran_ns = now.ran_ns;
	strain->waited_ns = now.waited_ns;
	strain->turns = now.turns;
	strain->overruns = 0;
	strain->full = 0;
	strain->drained = 0;
}

#endif /* WEIR_STRAIN_H */
