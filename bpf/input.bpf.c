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
#include "compat.h"
#include "input.h"
#include "meter.h"
#include "shared.h"
#include "strain.h"
#include <bpf/bpf_tracing.h>

/* The cost of a discarded packet is the average over so many, and less. */
#define VAIN_PACKETS 16384
/* What one is thought to cost before any has been seen. */
#define DISCARD_COST_NS 150

/* What a process is now. */
static __always_inline enum weir_counted
role_of(const struct task_struct *task, const struct weir_consumer *consumer,
	__u64 now)
{
	if (is_light(task))
		return WEIR_COUNTED_LIGHT;
	if (!consumer || now - consumer->brought_ns >= WEIR_CONSUMER_NS ||
	    consumer->score < CONSUMER_SCORE_MIN ||
	    consumer->ran_ns >= COMPUTING_NS)
		return WEIR_COUNTED_NOWHERE;
	return WEIR_COUNTED_CONSUMER;
}

static __always_inline void keep_score(struct weir_consumer *consumer)
{
	if (consumer->from_input && consumer->score < CONSUMER_SCORE_MAX)
		consumer->score++;
	if (!consumer->from_input && consumer->score > -CONSUMER_SCORE_MAX)
		consumer->score--;
	consumer->from_input = 0;
}

static __always_inline void count_at(struct weir_cpu *cpu, __u32 counted,
				     __s32 by)
{
	if (counted == WEIR_COUNTED_CONSUMER)
		__sync_fetch_and_add(&cpu->consumers, by);
	else if (counted == WEIR_COUNTED_LIGHT)
		__sync_fetch_and_add(&cpu->light, by);
}

static __always_inline void count_as(struct weir_consumer *consumer,
				     __u32 cpu_number, __u32 counted)
{
	struct weir_cpu *cpu = cpu_at(consumer->cpu);

	/* Its count may have begun anew since. */
	if (!cpu || consumer->counts != cpu->counts)
		consumer->counted = WEIR_COUNTED_NOWHERE;
	if (consumer->counted == counted && consumer->cpu == cpu_number)
		return;
	if (cpu)
		count_at(cpu, consumer->counted, -1);
	cpu = cpu_at(cpu_number);
	if (!cpu)
		return;
	consumer->counted = counted;
	consumer->cpu = cpu_number;
	consumer->counts = cpu->counts;
	count_at(cpu, counted, 1);
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
	bool takes = cpu->receives;
	struct weir_input *input;

	if (cpu->running == WEIR_RUNNING_INPUT) {
		input = input_at(cpu->input);
		if (!input)
			return;
		input->carried_ns += now - input->polled_ns;
		/* One that has been let go waits for nobody. */
		if (!sleeps && number_of(prev))
			begin_waiting(input, cpu_number, cpu, now);
	} else if (cpu->running != WEIR_RUNNING_IDLE &&
		   cpu->running != WEIR_RUNNING_HOST) {
		consumer = takes ? consumer_made(prev) : consumer_of(prev);
		if (!consumer)
			return;
		if (takes)
			consumer->took = receptions;
		else if (receptions_unseen)
			takes = consumer->took == receptions &&
				role_of(prev, consumer, now) ==
					WEIR_COUNTED_CONSUMER;
		consumer->ran_ns += now - consumer->began_ns;
		if (takes) {
			consumer->brought_ns = now;
			consumer->ran_ns = 0;
			if (consumer->score < CONSUMER_SCORE_MIN)
				consumer->score = CONSUMER_SCORE_MIN;
		}
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
	struct weir_poll *poll = current_poll();
	struct weir_cpu *before;
	__u32 runnable;

	if (!input)
		return;
	end_waiting(input);
	input->cpu = cpu_number;
	if (!input->polled_ns || input->home != cpu_number) {
		before = cpu_at(input->home);
		if (input->polled_ns && before)
			__sync_fetch_and_add(&before->inputs, -1);
		__sync_fetch_and_add(&cpu->inputs, 1);
		input->home = cpu_number;
		/* What was discarded while nobody watched is none of its. */
		if (poll) {
			poll->discarded_seen = poll->discarded;
			poll->discards_seen = poll->discards;
			poll->beside_seen = poll->beside;
		}
	}
	input->polled_ns = now;
	cpu->input = number;
	runnable = runnable_beside(task);
	cpu->crowded = runnable > 1 + (cpu->light > 0 ? cpu->light : 0);
	cpu->wanted = strangers_of(cpu, runnable, 1);
	if (cpu->wanted) {
		input->intruded++;
		input->woken += input->wakes;
	}
	input->wakes = 0;
}

static __always_inline enum weir_running kind_of(const struct task_struct *next,
						 __u32 cpu_number, __u64 now)
{
	struct weir_consumer *consumer;
	enum weir_counted role;

	if (!next->pid)
		return WEIR_RUNNING_IDLE;
	if ((next->flags & PF_KTHREAD && is_real_time(next)) ||
	    next->tgid == own_tgid)
		return WEIR_RUNNING_HOST;
	consumer = is_light(next) ? consumer_made(next) : consumer_of(next);
	role = role_of(next, consumer, now);
	if (consumer) {
		consumer->began_ns = now;
		/* The kernel does not count it, either. */
		count_as(consumer, cpu_number,
			 is_leftover(next) ? WEIR_COUNTED_NOWHERE : role);
	}
	if (role == WEIR_COUNTED_CONSUMER)
		return WEIR_RUNNING_CONSUMER;
	return role == WEIR_COUNTED_LIGHT || is_leftover(next)
		       ? WEIR_RUNNING_LIGHT
		       : WEIR_RUNNING_STRANGER;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(weir_switch, bool preempt, struct task_struct *prev,
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
	cpu->receives = 0;
	if (cpu->consumers <= 0)
		cpu->busy_since_ns = 0;
	if (number) {
		enter_input(next, cpu, cpu_number, *number, now);
		cpu->running = WEIR_RUNNING_INPUT;
		return 0;
	}
	cpu->running = kind_of(next, cpu_number, now);
	cpu->wanted = 0;
	if (cpu->running == WEIR_RUNNING_IDLE) {
		/* Whatever was miscounted. */
		cpu->consumers = 0;
		cpu->light = 0;
		cpu->counts++;
	} else if (cpu->running == WEIR_RUNNING_CONSUMER) {
		cpu->wanted = strangers_of(cpu, runnable_beside(next), 0);
		if (!cpu->busy_since_ns)
			cpu->busy_since_ns = now;
	} else if (cpu->running == WEIR_RUNNING_STRANGER) {
		cpu->wanted = strangers_of(cpu, runnable_beside(next), 0);
		if (!cpu->wanted)
			cpu->wanted = 1;
	}
	return 0;
}

/*
 * Whom input wakes consumes what it brings; and so does a kernel thread that a
 * consumer wakes, by what it asks of the kernel (as an NFQUEUE fills and
 * empties, a worker resizes the table of its packets).
 */
static __always_inline bool brings(const struct weir_cpu *cpu,
				   const struct task_struct *task)
{
	return cpu->running == WEIR_RUNNING_INPUT ||
	       (cpu->running == WEIR_RUNNING_CONSUMER &&
		task->flags & PF_KTHREAD);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(weir_waking, struct task_struct *task)
{
	struct weir_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct weir_consumer *consumer;

	if (!cpu || !brings(cpu, task) || number_of(task) ||
	    task->tgid == own_tgid)
		return 0;
	consumer = consumer_made(task);
	if (!consumer)
		return 0;
	consumer->brought_ns = bpf_ktime_get_ns();
	consumer->from_input = 1;
	return 0;
}

/* One of the network's, or of a user-mode screen's (NFQUEUE). */
static __always_inline bool brings_packets(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return family == AF_INET || family == AF_INET6 ||
	       (family == AF_NETLINK && sk->sk_protocol == NETLINK_NETFILTER);
}

/*
 * So does who takes it from a socket: one whose queue is full does not sleep,
 * and nothing wakes it. What that means is found out when he has stopped. As a
 * call for each packet costs a loaded server some of its capacity, this is not
 * always attached: then whoever took packets when it last was still does.
 * Kernel 6.3 and later.
 */
SEC("?tp_btf/sock_recv_length")
int BPF_PROG(weir_received, struct sock *sk, int length)
{
	struct weir_cpu *cpu;

	if (length < 0 || !brings_packets(sk))
		return 0;
	cpu = cpu_at(bpf_get_smp_processor_id());
	if (cpu)
		cpu->receives = 1;
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(weir_wakeup, struct task_struct *task)
{
	__u32 cpu_number = task_cpu(task);
	struct weir_cpu *cpu = cpu_at(cpu_number);
	__u32 *number = number_of(task);
	struct weir_consumer *consumer;
	struct weir_input *input;
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
	/* What a stranger has run until now, it ran alone. */
	if (cpu_number == bpf_get_smp_processor_id())
		settle(cpu, now);
	become_runnable(consumer, cpu_number, role_of(task, consumer, now));
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(weir_migrate, struct task_struct *task, int to)
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

/*
 * How many frames, as NAPI counts its work, were the discarded packets? A
 * buffer that GRO merged came as one frame for each packet, one that a sender
 * never cut up as one in all: then more packets were seen than frames came.
 */
static __always_inline __u64 frames_of(__u64 packets, __u64 buffers, __u64 seen,
				       __u32 work)
{
	__u64 whole = seen > work ? seen - work : 0;

	return packets > buffers + whole ? packets - whole : buffers;
}

/* What one poll discarded, in frames: what did that cost? */
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
		input->vain_ns += poll_time(took);
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
static __always_inline void charge(struct weir_input *input, __u64 took,
				   __u64 discarded, __u32 work)
{
	__u64 wasted = waste(input, took, discarded, work);

	if (discarded && discarded >= work) {
		input->wasted_ns += input->carried_ns;
	} else if (work) {
		share_out(took + input->carried_ns, wasted);
	} else {
		input->carried_ns += took;
		return;
	}
	input->carried_ns = 0;
}

static __always_inline void count_poll(struct weir_input *input, int work,
				       int budget, bool several)
{
	input->packets += work;
	input->full_polls = work < budget ? 0 : input->full_polls + 1;
	if (input->full_polls < WEIR_OVERRUN_POLLS)
		return;
	input->overruns++;
	input->contended +=
		several && input->full_polls >= WEIR_CONTENDED_POLLS;
}

/* Whose the CPU was in this poll. */
static __always_inline void meter_poll(int work, int budget, bool on_thread)
{
	struct weir_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct weir_poll *poll = current_poll();
	__u64 now, took, discarded, discards, beside;
	struct weir_input *input;

	if (!cpu || !poll)
		return;
	/* This poll's own: another's, in softirq, is not input's next. */
	discarded = poll->discarded - poll->discarded_seen;
	discards = poll->discards - poll->discards_seen;
	beside = poll->beside - poll->beside_seen;
	poll->discarded_seen = poll->discarded;
	poll->discards_seen = poll->discards;
	poll->beside_seen = poll->beside;
	if (cpu->running != WEIR_RUNNING_INPUT)
		return;
	input = input_at(cpu->input);
	if (!input)
		return;
	now = bpf_ktime_get_ns();
	took = now - input->polled_ns;
	input->polled_ns = now;
	poll->ended_ns = now;
	if (on_thread)
		count_poll(input, work, budget, poll->touches > 1);
	if (discarded != discards)
		discarded = frames_of(discarded, discards,
				      discarded + admitted_packets(), work);
	charge(input, took, discarded, work);
	if (discarded) {
		poll->full_ns = now;
	} else if (poll->full_id && now - poll->full_ns > FULL_NS) {
		poll->full_id = 0;
	}
	input->beside += beside;
}

/* The queue probe's program calls it. */
SEC("tp_btf/napi_poll")
int BPF_PROG(weir_polled, struct napi_struct *napi, int work, int budget)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	bool on_thread = is_polled_by(napi, task);

	if (on_thread)
		find_strain(napi, task, work, budget);
	if (watched)
		meter_poll(work, budget, on_thread);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
