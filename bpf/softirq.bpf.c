// SPDX-License-Identifier: GPL-2.0-only
/*
 * Softirq mode: how much of each CPU receive softirqs take from processes, in
 * each period. The gate discards by it (limit.h).
 *
 * Mogul & Ramakrishnan, section 7: what input has used is added up at the end
 * of each round of polling, and cleared at the end of the period or when the
 * CPU is idle.
 */
#include "shared.h"
#include "task.h"
#include <bpf/bpf_tracing.h>

struct napi_struct;

/* Set by user space. */
__u64 period_ns;

/*
 * Whose time runs from now on? A process that is interrupted loses it; one that
 * ends up here by sending to this host (loopback, veth) spends it. Beneath the
 * idle task, a process that is to run only when nobody else wants to, or a
 * kernel thread, such as ksoftirqd or an interrupt's, it is whoever else's is
 * runnable.
 */
static __always_inline enum weir_softirq_time
whose_time(const struct weir_softirq *softirq)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	bool leftover = is_leftover(task);
	__u32 own;

	if (task->pid && !(task->flags & PF_KTHREAD)) {
		if (!softirq->from_interrupt)
			return WEIR_SOFTIRQ_OWN;
		if (!leftover)
			return WEIR_SOFTIRQ_TAKEN;
	}
	own = task->pid && !leftover && !is_real_time(task);
	return runnable_beside(task) > own ? WEIR_SOFTIRQ_TAKEN
					   : WEIR_SOFTIRQ_SPARE;
}

/*
 * What was taken past the limit is owed: discarding costs, too, and the paper's
 * interrupts that stay off do not. A quarter of each period's share is input's
 * all the same, so that something is always admitted.
 */
static __always_inline __u64 owed(const struct weir_softirq *softirq)
{
	__u64 limit_ns = softirq->limit * period_ns / WEIR_SHARE_ONE;
	__u64 most = limit_ns - limit_ns / 4, over;

	if (!limit_ns || softirq->period_taken_ns < limit_ns)
		return 0;
	over = softirq->period_taken_ns - limit_ns;
	return over < most ? over : most;
}

static __always_inline void mark(struct weir_softirq *softirq, __u64 now)
{
	softirq->marked_ns = now;
	softirq->unmarked = 0;
	softirq->share = 0;
	softirq->time = whose_time(softirq);
	if (now - softirq->period_began_ns >= period_ns) {
		softirq->period_began_ns = now;
		softirq->period_taken_ns = owed(softirq);
		softirq->limit = 0;
	}
	/* Until now everybody has had what they wanted. */
	if (softirq->time == WEIR_SOFTIRQ_SPARE)
		softirq->period_taken_ns = 0;
	if (softirq->time == WEIR_SOFTIRQ_TAKEN)
		softirq->share =
			softirq->period_taken_ns * WEIR_SHARE_ONE / period_ns;
}

/* What has been used since the last mark. */
static __always_inline void settle(struct weir_softirq *softirq, __u64 now)
{
	__u64 took = now - softirq->marked_ns;

	softirq->used_ns += took;
	if (softirq->time != WEIR_SOFTIRQ_TAKEN)
		return;
	softirq->taken_ns += poll_time(took);
	softirq->period_taken_ns += poll_time(took);
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(weir_sirq_raise, unsigned int vec_nr)
{
	struct weir_softirq *softirq;

	if (vec_nr != NET_RX_SOFTIRQ)
		return 0;
	softirq = this_softirq();
	/* One that raises itself has not finished what it was raised for. */
	if (softirq && (softirq->in_interrupt ||
			(softirq->marked_ns && softirq->from_interrupt)))
		softirq->raised = 1;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(weir_sirq_begin, unsigned int vec_nr)
{
	struct weir_softirq *softirq;

	if (vec_nr != NET_RX_SOFTIRQ)
		return 0;
	softirq = this_softirq();
	if (!softirq)
		return 0;
	softirq->from_interrupt = softirq->raised;
	softirq->raised = 0;
	mark(softirq, bpf_ktime_get_ns());
	return 0;
}

/* NAPI threads poll too, but not in a softirq. */
SEC("tp_btf/napi_poll")
int BPF_PROG(weir_sirq_poll, struct napi_struct *napi, int work, int budget)
{
	struct weir_softirq *softirq = this_softirq();
	__u64 now;

	if (!softirq || !softirq->marked_ns)
		return 0;
	now = bpf_ktime_get_ns();
	settle(softirq, now);
	mark(softirq, now);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(weir_sirq_end, unsigned int vec_nr)
{
	struct weir_softirq *softirq;

	if (vec_nr != NET_RX_SOFTIRQ)
		return 0;
	softirq = this_softirq();
	if (!softirq || !softirq->marked_ns)
		return 0;
	settle(softirq, bpf_ktime_get_ns());
	softirq->marked_ns = 0;
	softirq->share = 0;
	return 0;
}

/*
 * Interrupts that can bring packets: a device's, a timer's (NAPI that was
 * deferred), and another CPU's (RPS): x86's two, then arm64's. User space loads
 * those that the kernel has.
 */
#define INTERRUPT_PROGRAM(name, tracepoint, inside)            \
	SEC("?tp_btf/" tracepoint)                             \
	int BPF_PROG(name)                                     \
	{                                                      \
		struct weir_softirq *softirq = this_softirq(); \
                                                               \
		if (softirq)                                   \
			softirq->in_interrupt = inside;        \
		return 0;                                      \
	}

INTERRUPT_PROGRAM(weir_irq_in, "irq_handler_entry", 1)
INTERRUPT_PROGRAM(weir_irq_out, "irq_handler_exit", 0)
INTERRUPT_PROGRAM(weir_timer_in, "local_timer_entry", 1)
INTERRUPT_PROGRAM(weir_timer_out, "local_timer_exit", 0)
INTERRUPT_PROGRAM(weir_call_in, "call_function_single_entry", 1)
INTERRUPT_PROGRAM(weir_call_out, "call_function_single_exit", 0)
INTERRUPT_PROGRAM(weir_ipi_in, "ipi_entry", 1)
INTERRUPT_PROGRAM(weir_ipi_out, "ipi_exit", 0)

char LICENSE[] SEC("license") = "GPL";
