/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom a CPU's time goes to, as the governor sees it: input, those that consume
 * what it brings, and strangers. The kernel's threads are told apart as
 * processes are: they decrypt, write back and compact for a process or for all.
 */
#ifndef WEIR_INPUT_H
#define WEIR_INPUT_H

#include "map.h"
#include "abi.h"
#include "task.h"

/* How long a process that was brought something is taken for a consumer. */
#define WEIR_CONSUMER_NS 1000000000ULL
#define CONSUMER_SCORE_MAX 4
/* Once may have been an interrupt's doing. */
#define CONSUMER_SCORE_MIN 2
/* One that has run for so long since it slept or took a packet computes. */
#define COMPUTING_NS 5000000ULL
/* From then on consumers of which one or another is always runnable keep input
 * waiting: a small ring has filled. */
#define BUSY_NS 1000000ULL
/* How long a channel counts as full after its last discarded packet. */
#define FULL_NS 20000000ULL

/* Among whom a runnable process is counted. */
enum weir_counted {
	WEIR_COUNTED_NOWHERE,
	WEIR_COUNTED_CONSUMER,
	WEIR_COUNTED_LIGHT,
};

/* A process that input has woken, that has taken a packet, or that is light. */
struct weir_consumer {
	__u64 brought_ns; /* something by input, last */
	__u64 began_ns;	  /* to run, last */
	__u64 ran_ns;	  /* before, since it slept or took something */
	__u32 cpu;	  /* where it is runnable */
	__u16 counted;	  /* among whom: enum weir_counted */
	__u16 from_input;
	/* Wake-ups by input less others, within bounds: an interrupt that comes
	 * while input runs wakes others, too. */
	__s32 score;
	__u32 watch;  /* in which watch it was seen */
	__u32 took;   /* a packet, last: in which watch of receptions */
	__u32 counts; /* in which of that CPU's counts it is counted */
};

/* Every CPU's; user space reads it, and gives it as many places as needed. */
MAP(cpus, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, 1, __u32, struct weir_cpu);

MAP(inputs, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, WEIR_INPUTS, __u32,
    struct weir_input);

/* By thread number. */
MAP(input_of_thread, BPF_MAP_TYPE_HASH, 0, WEIR_INPUTS, __u32, __u32);

/* By thread number, as the initial namespace has it. */
MAP(consumers, BPF_MAP_TYPE_LRU_HASH, 0, WEIR_CONSUMERS, __u32,
    struct weir_consumer);

/* Set by user space: weir's own process, whether somebody is watched, and which
 * watch this is. Of an earlier one nothing is known to be as it was. */
__u32 own_tgid;
__u32 watched;
__u32 watch;
/* Likewise: which watch of receptions this is, or was the last, and whether it
 * is over. */
__u32 receptions;
__u32 receptions_unseen;

static __always_inline struct weir_cpu *cpu_at(__u32 number)
{
	return bpf_map_lookup_elem(&cpus, &number);
}

static __always_inline struct weir_input *input_at(__u32 number)
{
	return bpf_map_lookup_elem(&inputs, &number);
}

/* Which input a thread is, if it is one. */
static __always_inline __u32 *number_of(const struct task_struct *task)
{
	__u32 pid = task->pid;

	if (!(task->flags & PF_KTHREAD))
		return NULL;
	return bpf_map_lookup_elem(&input_of_thread, &pid);
}

static __always_inline struct weir_consumer *
consumer_of(const struct task_struct *task)
{
	__u32 pid = task->pid;
	struct weir_consumer *found = bpf_map_lookup_elem(&consumers, &pid);

	return found && found->watch == watch ? found : NULL;
}

/* The same, made where there is none; NULL: there is no place. */
static __always_inline struct weir_consumer *
consumer_made(const struct task_struct *task)
{
	struct weir_consumer *found = consumer_of(task), made = {};
	__u32 pid = task->pid;

	if (found)
		return found;
	made.watch = watch;
	bpf_map_update_elem(&consumers, &pid, &made, BPF_ANY);
	return bpf_map_lookup_elem(&consumers, &pid);
}

/* The CPU's time until now goes to what it was at. On that CPU only. */
static __always_inline void settle(struct weir_cpu *cpu, __u64 now)
{
	__u64 ran = now - cpu->since_ns, busy;
	struct weir_input *input;

	cpu->since_ns = now;
	if (cpu->crowded)
		cpu->crowded_ns += ran;
	if (cpu->running == WEIR_RUNNING_LIGHT)
		cpu->light_ns += ran;
	if (cpu->running == WEIR_RUNNING_IDLE ||
	    cpu->running == WEIR_RUNNING_LIGHT) {
		cpu->idle_ns += ran;
	} else if (cpu->running == WEIR_RUNNING_STRANGER) {
		cpu->stranger_ns += ran;
	} else if (cpu->running == WEIR_RUNNING_CONSUMER) {
		busy = now - cpu->busy_since_ns;
		if (busy > BUSY_NS + ran)
			cpu->busy_ns += ran;
		else if (busy > BUSY_NS)
			cpu->busy_ns += busy - BUSY_NS;
	} else if (cpu->running == WEIR_RUNNING_INPUT) {
		input = input_at(cpu->input);
		if (!input)
			return;
		input->ran_ns += ran;
		if (cpu->wanted)
			input->taken_ns += ran;
	}
}

/* An input thread is runnable and does not run. */
static __always_inline void begin_waiting(struct weir_input *input,
					  __u32 cpu_number,
					  struct weir_cpu *cpu, __u64 now)
{
	__u64 running = 0;

	if (input->waiting)
		return;
	if (cpu->running == WEIR_RUNNING_STRANGER && now > cpu->since_ns)
		running = now - cpu->since_ns;
	input->stranger_then_ns = cpu->stranger_ns + running;
	input->cpu = cpu_number;
	input->waiting = 1;
	__sync_fetch_and_add(&cpu->waiting, 1);
}

static __always_inline void end_waiting(struct weir_input *input)
{
	struct weir_cpu *cpu;

	if (!input->waiting)
		return;
	input->waiting = 0;
	cpu = cpu_at(input->cpu);
	if (!cpu)
		return;
	__sync_fetch_and_add(&cpu->waiting, -1);
	if (cpu->stranger_ns > input->stranger_then_ns)
		input->held_ns += cpu->stranger_ns - input->stranger_then_ns;
}

/* Strangers that are runnable on a CPU, beside so many others. */
static __always_inline __u32 strangers_of(const struct weir_cpu *cpu,
					  __u32 runnable, __s32 others)
{
	__s32 known = others + cpu->waiting;

	if (cpu->consumers > 0)
		known += cpu->consumers;
	if (cpu->light > 0)
		known += cpu->light;
	return (__s32)runnable > known ? (__s32)runnable - known : 0;
}

#endif /* WEIR_INPUT_H */
