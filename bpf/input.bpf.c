// SPDX-License-Identifier: GPL-2.0-only
/*
 * The governor's eyes: what network input costs the CPU that a NAPI thread runs
 * on, and whom.
 *
 * The kernel's own accounting does not tell: it is tick-based or leaves
 * interrupts out, and knows no discarded packets. Here the clock is read where
 * the scheduler switches, on the CPUs of governed threads only; elsewhere a
 * switch costs a map lookup or two.
 */
#include "input.h"
#include "meter.h"
#include "queue_map.h"
#include <bpf/bpf_tracing.h>

struct napi_struct;

/* The cost of a discarded packet is the average over so many, and less. */
#define VAIN_PACKETS 16384
/* What one is thought to cost before any has been seen. */
#define DISCARD_COST_NS 150

/* What a process is, or has become, that input has woken. */
static __always_inline enum weir_counted
role_of(const struct weir_consumer *consumer, const struct weir_poll *poll,
	__u64 now)
{
	if (consumer->score < CONSUMER_SCORE_MIN)
		return WEIR_COUNTED_NOWHERE;
	/* One whose queue is full does not sleep, so nothing wakes it. */
	if (poll && poll->full_id)
		return WEIR_COUNTED_CONSUMER;
	if (now - consumer->woken_ns >= CONSUMER_NS)
		return WEIR_COUNTED_NOWHERE;
	return consumer->ran_ns < COMPUTING_NS ? WEIR_COUNTED_CONSUMER
					       : WEIR_COUNTED_COMPUTING;
}

static __always_inline void keep_score(struct weir_consumer *consumer)
{
	if (consumer->from_input && consumer->score < CONSUMER_SCORE_MAX)
		consumer->score++;
	if (!consumer->from_input && consumer->score > -CONSUMER_SCORE_MAX)
		consumer->score--;
	consumer->from_input = 0;
}

static __always_inline struct weir_poll *this_poll(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&napi_polls, &zero);
}

static __always_inline void count_at(__u32 cpu_number, __u32 counted, __s32 by)
{
	struct weir_cpu *cpu = cpu_at(cpu_number);

	if (!cpu)
		return;
	if (counted == WEIR_COUNTED_CONSUMER)
		__sync_fetch_and_add(&cpu->consumers, by);
	else if (counted == WEIR_COUNTED_COMPUTING)
		__sync_fetch_and_add(&cpu->computing, by);
}

static __always_inline void count_as(struct weir_consumer *consumer,
				     __u32 cpu_number, __u32 counted)
{
	if (consumer->counted == counted && consumer->cpu == cpu_number)
		return;
	count_at(consumer->cpu, consumer->counted, -1);
	consumer->counted = counted;
	consumer->cpu = cpu_number;
	count_at(cpu_number, counted, 1);
}

static __always_inline void leave_runnable(struct weir_consumer *consumer)
{
	count_as(consumer, consumer->cpu, WEIR_COUNTED_NOWHERE);
}

/* Where nobody looks, nobody is counted. */
static __always_inline void become_runnable(struct weir_consumer *consumer,
					    __u32 cpu_number, __u32 counted)
{
	struct weir_cpu *cpu = cpu_at(cpu_number);

	if (cpu && cpu->inputs)
		count_as(consumer, cpu_number, counted);
}

static __always_inline void leave_cpu(const struct task_struct *prev,
				      struct weir_cpu *cpu, __u32 cpu_number,
				      bool sleeps, __u64 now)
{
	struct weir_consumer *consumer;
	struct weir_input *input;

	if (cpu->running == WEIR_RUNNING_INPUT) {
		input = input_at(cpu->input);
		if (!input)
			return;
		input->carried_ns += now - input->polled_ns;
		/* One that has been let go waits for nobody. */
		if (!sleeps && number_of(prev))
			begin_waiting(input, cpu_number, cpu, now);
	} else if (cpu->running == WEIR_RUNNING_CONSUMER ||
		   cpu->running == WEIR_RUNNING_STRANGER) {
		consumer = consumer_of(prev);
		if (!consumer)
			return;
		consumer->ran_ns += now - consumer->began_ns;
		if (sleeps)
			leave_runnable(consumer);
	}
}

/* An input thread runs here from now on. */
static __always_inline void enter_input(const struct task_struct *task,
					struct weir_cpu *cpu, __u32 cpu_number,
					__u32 number, __u64 now)
{
	struct weir_input *input = input_at(number);
	struct weir_cpu *before;
	__u32 runnable;

	if (!input)
		return;
	end_waiting(input, now);
	input->cpu = cpu_number;
	if (!input->polled_ns || input->home != cpu_number) {
		before = cpu_at(input->home);
		if (input->polled_ns && before)
			__sync_fetch_and_add(&before->inputs, -1);
		__sync_fetch_and_add(&cpu->inputs, 1);
		input->home = cpu_number;
	}
	input->polled_ns = now;
	cpu->input = number;
	runnable = runnable_beside(task);
	cpu->crowded = runnable > 1;
	cpu->wanted = strangers_of(cpu, runnable, 1);
	if (cpu->wanted) {
		input->intruded++;
		input->woken += input->wakes;
	}
	input->wakes = 0;
}

/* Every input that waits here is held by a stranger from now on. */
static __always_inline void tell_waiting(struct weir_cpu *cpu)
{
	struct weir_input *input = input_at(cpu->input);

	/* Of several threads the last that ran speaks for all. */
	if (cpu->waiting > 0 && input && input->waiting)
		tell(input, cpu->input);
}

static __always_inline enum weir_running kind_of(const struct task_struct *next,
						 struct weir_cpu *cpu,
						 __u32 cpu_number, __u64 now)
{
	struct weir_consumer *consumer;
	enum weir_counted role;

	cpu->runs_computing = 0;
	if (!next->pid)
		return WEIR_RUNNING_IDLE;
	if ((next->flags & PF_KTHREAD && is_real_time(next)) ||
	    next->tgid == own_tgid)
		return WEIR_RUNNING_HOST;
	consumer = consumer_of(next);
	if (!consumer)
		return is_leftover(next) ? WEIR_RUNNING_LEFTOVER
					 : WEIR_RUNNING_STRANGER;
	consumer->began_ns = now;
	role = role_of(consumer, this_poll(), now);
	/* Not counted: runnable_beside() does not, either. */
	if (is_leftover(next)) {
		leave_runnable(consumer);
		return role == WEIR_COUNTED_CONSUMER ? WEIR_RUNNING_CONSUMER
						     : WEIR_RUNNING_LEFTOVER;
	}
	count_as(consumer, cpu_number, role);
	cpu->runs_computing = role == WEIR_COUNTED_COMPUTING;
	return role == WEIR_COUNTED_CONSUMER ? WEIR_RUNNING_CONSUMER
					     : WEIR_RUNNING_STRANGER;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev,
	     struct task_struct *next, unsigned int prev_state)
{
	__u32 cpu_number = bpf_get_smp_processor_id();
	struct weir_cpu *cpu = cpu_at(cpu_number);
	__u32 *number = number_of(next);
	__u64 now;

	if (!cpu || (!number && !cpu->inputs))
		return 0;
	now = bpf_ktime_get_ns();
	/* Until now nobody looked here. */
	if (!cpu->inputs) {
		cpu->running = WEIR_RUNNING_IDLE;
		cpu->crowded = 0;
		cpu->since_ns = now;
	}
	settle(cpu, now);
	leave_cpu(prev, cpu, cpu_number, !preempt && prev_state, now);
	cpu->crowded = cpu->waiting > 0;
	if (number) {
		enter_input(next, cpu, cpu_number, *number, now);
		cpu->running = WEIR_RUNNING_INPUT;
		return 0;
	}
	cpu->running = kind_of(next, cpu, cpu_number, now);
	cpu->wanted = 0;
	if (cpu->running == WEIR_RUNNING_IDLE) {
		/* Whatever was miscounted. */
		cpu->consumers = 0;
		cpu->computing = 0;
	} else if (cpu->running == WEIR_RUNNING_CONSUMER) {
		cpu->wanted = strangers_of(cpu, runnable_beside(next), 0);
	} else if (cpu->running == WEIR_RUNNING_STRANGER) {
		cpu->wanted = strangers_of(cpu, runnable_beside(next), 0);
		if (!cpu->wanted)
			cpu->wanted = 1;
		tell_waiting(cpu);
	}
	return 0;
}

/* Whom input wakes consumes what it brings. */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *task)
{
	struct weir_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct weir_consumer *consumer, found = {};
	__u32 pid = task->pid;

	if (!cpu || cpu->running != WEIR_RUNNING_INPUT || number_of(task) ||
	    task->tgid == own_tgid)
		return 0;
	consumer = bpf_map_lookup_elem(&consumers, &pid);
	if (consumer) {
		consumer->woken_ns = bpf_ktime_get_ns();
		consumer->from_input = 1;
		return 0;
	}
	found.woken_ns = bpf_ktime_get_ns();
	found.from_input = 1;
	bpf_map_update_elem(&consumers, &pid, &found, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(woken, struct task_struct *task)
{
	__u32 cpu_number = task_cpu(task);
	struct weir_cpu *cpu = cpu_at(cpu_number);
	__u32 *number = number_of(task);
	struct weir_consumer *consumer;
	struct weir_input *input;
	enum weir_counted role;
	__u64 now;

	if (!cpu || !cpu->inputs)
		return 0;
	now = bpf_ktime_get_ns();
	if (number) {
		input = input_at(*number);
		if (!input || (cpu->running == WEIR_RUNNING_INPUT &&
			       cpu->input == *number))
			return 0;
		input->wakes = 1;
		begin_waiting(input, cpu_number, cpu, now);
		if (cpu->running == WEIR_RUNNING_STRANGER)
			tell(input, *number);
		return 0;
	}
	consumer = consumer_of(task);
	if (!consumer)
		return 0;
	keep_score(consumer);
	/* It slept, wherever that was. */
	consumer->ran_ns = 0;
	if (is_leftover(task))
		return 0;
	role = role_of(consumer, this_poll(), now);
	if (role == WEIR_COUNTED_NOWHERE)
		return 0;
	/* What a stranger has run until now, it ran alone. */
	if (cpu_number == bpf_get_smp_processor_id())
		settle(cpu, now);
	become_runnable(consumer, cpu_number, role);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(migrated, struct task_struct *task, int to)
{
	struct weir_consumer *consumer = consumer_of(task);
	__u32 role;

	if (!consumer || !consumer->counted)
		return 0;
	role = consumer->counted;
	leave_runnable(consumer);
	become_runnable(consumer, to, role);
	return 0;
}

/* What one poll discarded: what did that cost? */
static __always_inline __u64 waste(struct weir_input *input, __u64 took,
				   __u64 discarded, __u32 work)
{
	__u64 cost = DISCARD_COST_NS;

	if (!discarded)
		return 0;
	input->discarded += discarded;
	/* A whole poll for nothing tells what one packet costs. */
	if (discarded >= work) {
		input->wasted_ns += took;
		input->vain_ns += took;
		input->vain_packets += discarded;
		if (input->vain_packets > VAIN_PACKETS) {
			input->vain_ns /= 2;
			input->vain_packets /= 2;
		}
		return took;
	}
	if (input->vain_packets)
		cost = input->vain_ns / input->vain_packets;
	cost *= discarded;
	if (cost > took)
		cost = took;
	input->wasted_ns += cost;
	return cost;
}

/*
 * Whom the poll that has just ended is charged to. One that discarded all was
 * in vain, and so is what came before it; one that found nothing came for
 * whoever comes next.
 */
static __always_inline void charge(struct weir_input *input,
				   struct weir_poll *poll, __u64 took,
				   __u64 discarded, __u32 work)
{
	__u64 wasted = waste(input, took, discarded, work);

	if (discarded && discarded >= work) {
		input->wasted_ns += input->carried_ns;
	} else if (work) {
		share_out(poll, took + input->carried_ns, wasted);
	} else {
		input->carried_ns += took;
		return;
	}
	input->carried_ns = 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(polled, struct napi_struct *napi, int work, int budget)
{
	struct weir_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct weir_poll *poll = this_poll();
	__u64 now, took, discarded, beside, shed;
	struct weir_input *input;

	if (!cpu || !poll)
		return 0;
	/* This poll's own: another's, in softirq, is not input's next. */
	discarded = poll->discarded - poll->discarded_seen;
	beside = poll->beside - poll->beside_seen;
	shed = poll->shed - poll->shed_seen;
	poll->shed_seen = poll->shed;
	poll->discarded_seen = poll->discarded;
	poll->beside_seen = poll->beside;
	if (cpu->running != WEIR_RUNNING_INPUT)
		return 0;
	input = input_at(cpu->input);
	if (!input)
		return 0;
	now = bpf_ktime_get_ns();
	took = now - input->polled_ns;
	input->polled_ns = now;
	poll->ended_ns = now;
	input->packets += work;
	input->shed += shed;
	input->full_polls = work < budget ? 0 : input->full_polls + 1;
	if (input->full_polls >= WEIR_OVERRUN_POLLS) {
		input->overruns++;
		if (poll->touches > 1) {
			input->mixed++;
			input->contended +=
				input->full_polls >= WEIR_CONTENDED_POLLS;
		}
		/* Shares are wanted where there is more than one flooded queue.
		 */
		if (is_divisible(poll))
			tell(input, cpu->input);
	}
	charge(input, poll, took, discarded, work);
	if (discarded) {
		poll->full_ns = now;
	} else if (poll->full_id && now - poll->full_ns > FULL_NS) {
		poll->full_id = 0;
	}
	if (beside) {
		input->beside += beside;
		tell(input, cpu->input);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
