/* SPDX-License-Identifier: GPL-2.0-only */
/* What programs read of tasks and of the scheduler. */
#ifndef WEIR_TASK_H
#define WEIR_TASK_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#define NET_RX_SOFTIRQ 3      /* include/linux/interrupt.h */
#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define MAX_RT_PRIO 100	      /* include/linux/sched/prio.h */
#define SCHED_IDLE 5	      /* include/uapi/linux/sched.h */
#define DEFAULT_PRIO 120      /* of nice 0: include/linux/sched/prio.h */
/* From this nice value on a process weighs less than a tenth of one of nice 0
 * (sched_prio_to_weight[]). */
#define LIGHT_NICE 11

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct thread_info {
	__u32 cpu;
};

struct cred;
struct css_set;
struct nsproxy;
struct pid;

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int prio;
	int static_prio;
	unsigned int policy;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	__u64 start_time;
	const struct cred *real_cred;
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
	char comm[16];
};

/*
 * Fair processes that are runnable, in all groups, the running one too; and of
 * them those of SCHED_IDLE, or of a group with cpu.idle.
 */
struct cfs_rq {
	unsigned int h_nr_runnable; /* since 6.14 */
	unsigned int h_nr_idle;	    /* since 6.14 */
};

struct cfs_rq___before {
	unsigned int h_nr_running; /* with delayed ones since 6.12 */
	unsigned int idle_h_nr_running;
};

/* Those of a scheduler that is a BPF program (sched_ext, since 6.12). */
struct scx_rq {
	__u32 nr_running;
};

struct rq {
	struct cfs_rq cfs;
	struct scx_rq scx;
};

/* With CONFIG_FAIR_GROUP_SCHED; the same type, for that field. */
struct cfs_rq___group {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq___group *cfs_rq;
};

struct task_struct___fair {
	struct sched_entity se;
};

#pragma clang attribute pop

/* Comes before everybody who is weighed. */
static __always_inline bool is_real_time(const struct task_struct *task)
{
	return task->prio < MAX_RT_PRIO;
}

/* Is to run only when nobody else wants to. */
static __always_inline bool is_leftover(const struct task_struct *task)
{
	return task->policy == SCHED_IDLE;
}

/*
 * Hardly weighs anything: it has what nobody else wants, too. It is counted
 * among those that are runnable, as the kernel does; SCHED_IDLE is not.
 */
static __always_inline bool is_light(const struct task_struct *task)
{
	return !is_real_time(task) &&
	       task->static_prio >= DEFAULT_PRIO + LIGHT_NICE;
}

static __always_inline __u32 task_cpu(const struct task_struct *task)
{
	return task->thread_info.cpu;
}

/*
 * Processes that are runnable on a task's CPU, but for those that are to run
 * only when nobody else wants to; 0: the kernel does not tell. By way of the
 * task, as not every kernel lists its run queues' symbol. One too few while one
 * of those others has just gone to sleep: h_nr_idle may have it for a while.
 */
static __always_inline __u32 runnable_beside(const struct task_struct *task)
{
	const struct task_struct___fair *fair = (const void *)task;
	const struct cfs_rq___before *before;
	__u32 runnable, leftover = 0;
	const struct rq *rq;

	if (!bpf_core_field_exists(fair->se.cfs_rq->rq))
		return 0;
	rq = BPF_CORE_READ(fair, se.cfs_rq, rq);
	before = (const void *)&rq->cfs;
	if (bpf_core_field_exists(rq->cfs.h_nr_runnable))
		runnable = BPF_CORE_READ(rq, cfs.h_nr_runnable);
	else
		runnable = BPF_CORE_READ(before, h_nr_running);
	if (bpf_core_field_exists(rq->cfs.h_nr_idle))
		leftover = BPF_CORE_READ(rq, cfs.h_nr_idle);
	else if (bpf_core_field_exists(before->idle_h_nr_running))
		leftover = BPF_CORE_READ(before, idle_h_nr_running);
	if (bpf_core_field_exists(rq->scx))
		runnable += BPF_CORE_READ(rq, scx.nr_running);
	return runnable > leftover ? runnable - leftover : 0;
}

#endif /* WEIR_TASK_H */
