// SPDX-License-Identifier: GPL-2.0-only
/*
 * The generator's packets on their way to a receiver, for the lab: when input
 * was scheduled, when it began, when each packet came to IP, and when the
 * receiver was woken and ran; each as the time since the packet was made, by
 * its number in its flow. What began before the packet was made was not for it.
 */
#include "abi.h"
#include "compat.h"
#include "map.h"
#include "task.h"
#include "trace.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

/* The receiver, its port, its CPU; and who polls; 0: softirqs. */
const volatile __u16 port;
const volatile __u32 cpu;
const volatile int receiver;
const volatile int poller;

/* Of a packet, up to where its receiver runs. */
struct weir_steps {
	__u64 since_made_ns[WEIR_STEP_RUNS + 1]; /* 0: not for this packet */
};

MAP(packets, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, 1, __u32, struct weir_steps);

__u64 scheduled_ns, began_ns;
/*
 * The first packet at IP since the receiver went to sleep, if its time is not
 * 0, and the last that the receiver was woken for: NAPI hands several to IP
 * before the first of them goes on.
 */
struct weir_stamp first, woken_for;

/* The first time counts. */
static __always_inline void step(const struct weir_stamp *packet,
				 enum weir_step step, __u64 at_ns)
{
	__u32 number = packet->sequence;
	struct weir_steps *steps = bpf_map_lookup_elem(&packets, &number);

	if (steps && !steps->since_made_ns[step] && at_ns > packet->sent_ns)
		steps->since_made_ns[step] = at_ns - packet->sent_ns;
}

static __always_inline bool is_input(unsigned int softirq)
{
	return !poller && softirq == NET_RX_SOFTIRQ &&
	       bpf_get_smp_processor_id() == cpu;
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(weir_raised, unsigned int softirq)
{
	if (is_input(softirq))
		scheduled_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(weir_entered, unsigned int softirq)
{
	if (is_input(softirq))
		began_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(weir_waking, struct task_struct *task)
{
	if (poller && task->pid == poller)
		scheduled_ns = bpf_ktime_get_ns();
	if (task->pid == receiver && first.sent_ns) {
		woken_for = first;
		step(&woken_for, WEIR_STEP_WOKEN, bpf_ktime_get_ns());
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(weir_switched, bool preempted, struct task_struct *from,
	     struct task_struct *to)
{
	if (poller && to->pid == poller)
		began_ns = bpf_ktime_get_ns();
	if (from->pid == receiver && !preempted)
		first.sent_ns = 0;
	if (to->pid == receiver)
		step(&woken_for, WEIR_STEP_RUNS, bpf_ktime_get_ns());
	return 0;
}

/* Where the driver hands over to the stack, before a gate at tc. */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(weir_received, struct sk_buff *skb)
{
	struct {
		struct iphdr ip;
		struct udphdr udp;
		struct weir_stamp stamp;
	} __attribute__((packed)) packet;
	__u64 now_ns = bpf_ktime_get_ns();

	if (bpf_get_smp_processor_id() != cpu ||
	    bpf_probe_read_kernel(&packet, sizeof(packet), skb->data) ||
	    packet.ip.version != 4 || packet.ip.protocol != IPPROTO_UDP ||
	    packet.udp.dest != bpf_htons(port))
		return 0;
	if (!first.sent_ns)
		first = packet.stamp;
	step(&packet.stamp, WEIR_STEP_SCHEDULED, scheduled_ns);
	step(&packet.stamp, WEIR_STEP_POLLED, began_ns);
	step(&packet.stamp, WEIR_STEP_RECEIVED, now_ns);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
