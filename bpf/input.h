/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom a CPU's time goes to, as the governor sees it: input, those that consume
 * what it brings, and strangers. The kernel's threads are told apart as
 * processes are: they decrypt, write back and compact for a process or for all.
 */
#ifndef WEIR_INPUT_H
#define WEIR_INPUT_H

#include "abi.h"
#include "task.h"

/* How long a process that input has woken is taken for a consumer. */
#define CONSUMER_NS 1000000000ULL
#define CONSUMER_SCORE_MAX 4
/* Once may have been an interrupt's doing. */
#define CONSUMER_SCORE_MIN 2
/* One that has run for so long since it slept computes: a queue that has room
 * is drained sooner. */
#define COMPUTING_NS 5000000ULL
/* How long a channel counts as full after its last discarded packet. */
#define FULL_NS 20000000ULL

/* Among whom a runnable process is counted that input has woken. */
enum weir_counted {
	WEIR_COUNTED_NOWHERE,
	WEIR_COUNTED_CONSUMER,
	WEIR_COUNTED_COMPUTING,
};

struct weir_consumer {
	__u64 woken_ns; /* by input, last */
	__u64 began_ns; /* to run, last */
	__u64 ran_ns;	/* before, since it slept */
	__u32 cpu;	/* where it is runnable */
	__u16 counted;	/* among whom: enum weir_counted */
	__u16 from_input;
	/* Wake-ups by input less others, within bounds: an interrupt that comes
	 * while input runs wakes others, too. */
	__s32 score;
	__u32 pad;
};

/* Every CPU's; user space reads it, and gives it as many places as needed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_INPUTS);
	__type(key, __u32);
	__type(value, struct weir_input);
} inputs SEC(".maps");

/* By thread number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WEIR_INPUTS);
	__type(key, __u32);
	__type(value, __u32);
} input_of_thread SEC(".maps");

/* By thread number, as the initial namespace has it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, WEIR_CONSUMERS);
	__type(key, __u32);
	__type(value, struct weir_consumer);
} consumers SEC(".maps");

/* Numbers of inputs that there is news of. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} news SEC(".maps");

/* Set by user space: weir's own process. */
__u32 own_tgid;

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

	return bpf_map_lookup_elem(&consumers, &pid);
}

/*
 * Strangers' part, had everybody who was runnable had the same. Input counts
 * as the consumers that it works for, and as one while there is none.
 */
static __always_inline __u64 fair_part(const struct weir_cpu *cpu, __u64 ran)
{
	__u64 strangers = cpu->wanted;
	__u64 others = cpu->consumers > 1 ? cpu->consumers : 1;

	return ran * strangers / (strangers + others);
}

/* A stranger runs; has nobody else anything to do with what input brought? */
static __always_inline bool is_alone(const struct weir_cpu *cpu)
{
	return cpu->consumers <= 0 &&
	       cpu->computing <= (__s32)cpu->runs_computing;
}

/* The CPU's time until now goes to what it was at. On that CPU only. */
static __always_inline void settle(struct weir_cpu *cpu, __u64 now)
{
	__u64 ran = now - cpu->since_ns;
	struct weir_input *input;

	cpu->since_ns = now;
	if (cpu->crowded)
		cpu->crowded_ns += ran;
	if (cpu->wanted)
		cpu->entitled_ns += fair_part(cpu, ran);
	if (cpu->running == WEIR_RUNNING_IDLE ||
	    cpu->running == WEIR_RUNNING_LEFTOVER) {
		cpu->idle_ns += ran;
	} else if (cpu->running == WEIR_RUNNING_STRANGER) {
		cpu->stranger_ns += ran;
		if (is_alone(cpu))
			cpu->alone_ns += ran;
	} else if (cpu->running == WEIR_RUNNING_INPUT) {
		input = input_at(cpu->input);
		if (!input)
			return;
		input->ran_ns += ran;
		if (cpu->wanted)
			input->taken_ns += ran;
	}
}

/* Wakes the governor, once for each time that it asked for it. */
static __always_inline void tell(struct weir_input *input, __u32 number)
{
	if (!input->armed)
		return;
	input->armed = 0;
	bpf_ringbuf_output(&news, &number, sizeof(number), BPF_RB_FORCE_WAKEUP);
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
	input->alone_then_ns = cpu->alone_ns + (is_alone(cpu) ? running : 0);
	input->waits_from_ns = now;
	input->cpu = cpu_number;
	input->waiting = 1;
	__sync_fetch_and_add(&cpu->waiting, 1);
}

/*
 * Held for longer than the timeout (Mogul & Ramakrishnan, section 6.6.1); or
 * for a part of that with nothing left for consumers to do. A shorter wait only
 * makes batches of packets, which cost less.
 */
static __always_inline __u64 stalled(__u64 held, __u64 alone, __u64 timeout)
{
	__u64 beside = held > alone ? held - alone : 0;
	__u64 batch = timeout / WEIR_BATCH_PART;

	return (alone > batch ? alone - batch : 0) +
	       (beside > timeout ? beside - timeout : 0);
}

static __always_inline void end_waiting(struct weir_input *input, __u64 now)
{
	struct weir_cpu *cpu;
	__u64 held = 0, alone = 0;

	if (!input->waiting)
		return;
	input->waiting = 0;
	if (now > input->waits_from_ns + WEIR_LATE_NS)
		input->late_ns += now - input->waits_from_ns - WEIR_LATE_NS;
	cpu = cpu_at(input->cpu);
	if (!cpu)
		return;
	__sync_fetch_and_add(&cpu->waiting, -1);
	if (cpu->stranger_ns > input->stranger_then_ns)
		held = cpu->stranger_ns - input->stranger_then_ns;
	if (cpu->alone_ns > input->alone_then_ns)
		alone = cpu->alone_ns - input->alone_then_ns;
	input->held_ns += held;
	input->stalled_ns += stalled(held, alone, input->timeout_ns);
}

/* Strangers that are runnable on a CPU, beside so many others. */
static __always_inline __u32 strangers_of(const struct weir_cpu *cpu,
					  __u32 runnable, __s32 others)
{
	__s32 known = others + cpu->waiting;

	if (cpu->consumers > 0)
		known += cpu->consumers;
	return (__s32)runnable > known ? (__s32)runnable - known : 0;
}

#endif /* WEIR_INPUT_H */
