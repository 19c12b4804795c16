// SPDX-License-Identifier: GPL-2.0-only
/*
 * The way of single packets through the kernel, for `weir trace`: when input
 * was asked for and began, when the packet came to the stack, to a socket and
 * to the process that reads it, or to an egress, and where it was dropped
 * (Mogul & Ramakrishnan, section 7.3, figures 7-4 to 7-8).
 *
 * Which packets: a packet socket's filter sees what netif_receive_skb() was
 * told of just before, on the same CPU, and so knows the skb's address; the
 * other programs know the packet by that. Nothing is attached otherwise.
 */
#include "trace.h"
#include "compat.h"
#include "either.h"
#include "map.h"
#include "stages.h"
#include "task.h"
#include <bpf/bpf_tracing.h>
#include <linux/if_packet.h>
#include <linux/in.h>

#define MSG_PEEK 2
/* CONFIG_NR_CPUS is no more. */
#define MANY_CPUS 8192

const volatile bool filtered;
/* Of packets that are followed, in one window on one CPU. */
const volatile __u32 budget;
/* How many more are to be followed; of two CPUs, both may take the last. */
__s64 left;
/* Not followed: too many at once; and events that the ring had no room for. */
__u64 skipped, lost;

/* What one CPU is at. */
struct at_work {
	__u64 raised_ns; /* a softirq for input, that has not begun */
	__u64 scheduled_ns;
	__u64 entered_ns;  /* this one; 0: none */
	__u64 switched_ns; /* to the thread that runs */
	__u64 polled_ns;   /* the last poll's end */
	__u64 skb;	   /* just received; 0: taken */
	__u64 received_ns;
	__u64 telling; /* 1 + whose socket tells its readers; 0: none */
	__u64 window_ns;
	__u64 taken;
	__u64 numbers;
	__u32 tid; /* who has received that skb */
	char comm[16];
	__u32 pad;
};

struct followed {
	__u64 number;
	/* Told of once: whoever has the socket can have it tell its readers
	 * again and again (SO_RCVLOWAT). */
	__u64 queued;
};

struct turn {
	__u64 sk;
	__u64 read;
};

struct awaited {
	__u64 number;
	__u64 skb;
};

MAP_OF_ONE(at_work, at_works, BPF_MAP_TYPE_PERCPU_ARRAY, 0, struct at_work);
/* Packets that are followed, by the skb's address. The oldest is forgotten. */
MAP(follow, BPF_MAP_TYPE_LRU_HASH, 0, 8192, __u64, struct followed);
/* Threads that a packet has woken and that do not run yet: its number. */
MAP(woken, BPF_MAP_TYPE_LRU_HASH, 0, 1024, __u32, __u64);
/* When kernel threads were woken last. */
MAP(wakes, BPF_MAP_TYPE_LRU_HASH, 0, 1024, __u32, __u64);
/* How often such sockets were read. */
MAP(reads_of, BPF_MAP_TYPE_LRU_HASH, 0, 8192, __u64, __u64);
/* Which packets a read to come is of. */
MAP(awaited_reads, BPF_MAP_TYPE_LRU_HASH, 0, 8192, struct turn, struct awaited);
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

static __always_inline void set_event(struct weir_trace_event *event,
				      __u64 packet, enum weir_step step)
{
	event->packet = packet;
	event->at_ns = bpf_ktime_get_ns();
	event->step = step;
	event->cpu = bpf_get_smp_processor_id();
}

static __always_inline void tell(struct weir_trace_event *event)
{
	if (bpf_ringbuf_output(&events, event, sizeof(*event), 0))
		__sync_fetch_and_add(&lost, 1);
}

/* By whoever runs here. */
static __always_inline void tell_of(__u64 packet, enum weir_step step,
				    __u64 place, __u32 detail)
{
	struct weir_trace_event event = {.place = place, .detail = detail};

	set_event(&event, packet, step);
	event.tid = (__u32)bpf_get_current_pid_tgid();
	bpf_get_current_comm(event.comm, sizeof(event.comm));
	tell(&event);
}

static __always_inline struct followed *numbered(__u64 skb)
{
	return bpf_map_lookup_elem(&follow, &skb);
}

static __always_inline void end(const struct sk_buff *skb)
{
	__u64 key = (__u64)skb;

	bpf_map_delete_elem(&follow, &key);
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(weir_raised, unsigned int softirq)
{
	struct at_work *it = at_work();

	if (it && softirq == NET_RX_SOFTIRQ && !it->raised_ns)
		it->raised_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(weir_entered, unsigned int softirq)
{
	struct at_work *it = at_work();

	if (!it || softirq != NET_RX_SOFTIRQ)
		return 0;
	it->entered_ns = bpf_ktime_get_ns();
	it->scheduled_ns = it->raised_ns;
	it->raised_ns = 0;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(weir_left, unsigned int softirq)
{
	struct at_work *it = at_work();

	if (!it)
		return 0;
	it->telling = 0;
	if (softirq == NET_RX_SOFTIRQ)
		it->entered_ns = 0;
	return 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(weir_polled)
{
	struct at_work *it = at_work();

	if (!it)
		return 0;
	it->telling = 0;
	it->polled_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(weir_waking, struct task_struct *task)
{
	struct weir_trace_event event = {};
	struct at_work *it = at_work();
	__u64 now = bpf_ktime_get_ns(), packet;
	__u32 tid = task->pid;

	if (task->flags & PF_KTHREAD)
		bpf_map_update_elem(&wakes, &tid, &now, BPF_ANY);
	if (!it || !it->telling)
		return 0;
	/* Of several, the first. */
	packet = it->telling - 1;
	it->telling = 0;
	set_event(&event, packet, WEIR_STEP_WOKEN);
	event.tid = tid;
	bpf_probe_read_kernel(event.comm, sizeof(event.comm), task->comm);
	tell(&event);
	bpf_map_update_elem(&woken, &tid, &packet, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(weir_switched, bool preempted, struct task_struct *from,
	     struct task_struct *to)
{
	struct weir_trace_event event = {};
	struct at_work *it = at_work();
	__u32 tid = to->pid;
	__u64 *packet;

	if (it) {
		it->telling = 0;
		it->switched_ns = bpf_ktime_get_ns();
	}
	packet = bpf_map_lookup_elem(&woken, &tid);
	if (!packet)
		return 0;
	set_event(&event, *packet, WEIR_STEP_RUNS);
	event.tid = tid;
	bpf_probe_read_kernel(event.comm, sizeof(event.comm), to->comm);
	tell(&event);
	bpf_map_delete_elem(&woken, &tid);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(weir_received, struct sk_buff *skb)
{
	struct at_work *it = at_work();

	/* Whatever was there before, it is another packet. */
	end(skb);
	if (!it)
		return 0;
	it->skb = (__u64)skb;
	it->received_ns = bpf_ktime_get_ns();
	it->tid = (__u32)bpf_get_current_pid_tgid();
	bpf_get_current_comm(it->comm, sizeof(it->comm));
	return 0;
}

/* When the poll was asked for that has brought this packet, and began. */
static __always_inline void set_poll(struct weir_trace_arrival *arrival,
				     const struct at_work *it)
{
	__u64 *woke;

	arrival->softirq = it->entered_ns != 0;
	if (it->entered_ns) {
		arrival->scheduled_ns = it->scheduled_ns;
		arrival->began_ns = it->entered_ns;
	} else {
		woke = bpf_map_lookup_elem(&wakes, &it->tid);
		arrival->scheduled_ns = woke ? *woke : 0;
		arrival->began_ns = it->switched_ns;
	}
	/* Of several polls in turn, the last one's; it was not asked for. */
	if (it->polled_ns > arrival->began_ns) {
		arrival->began_ns = it->polled_ns;
		arrival->scheduled_ns = 0;
	}
}

static __always_inline bool is_within_budget(struct at_work *it)
{
	if (it->received_ns - it->window_ns > WEIR_TRACE_WINDOW_NS) {
		it->window_ns = it->received_ns;
		it->taken = 0;
	}
	return it->taken++ < budget;
}

static __always_inline void take(struct __sk_buff *skb)
{
	const struct either packet = either_skb(skb);
	struct weir_trace_arrival *arrival;
	struct at_work *it = at_work();
	struct followed followed = {};
	__u32 len = packet.len;
	__u64 number;

	if (!it || !it->skb || left <= 0 || !len)
		return;
	if (!is_within_budget(it)) {
		__sync_fetch_and_add(&skipped, 1);
		return;
	}
	arrival = bpf_ringbuf_reserve(&events, sizeof(*arrival), 0);
	if (!arrival) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	__sync_fetch_and_sub(&left, 1);
	number = it->numbers++ * MANY_CPUS + bpf_get_smp_processor_id();
	__builtin_memset(arrival, 0, sizeof(*arrival));
	set_event(&arrival->event, number, WEIR_STEP_RECEIVED);
	arrival->event.at_ns = it->received_ns;
	arrival->event.tid = it->tid;
	__builtin_memcpy(arrival->event.comm, it->comm, sizeof(it->comm));
	set_poll(arrival, it);
	arrival->wire_len = len;
	if (len > WEIR_TRACE_SNAPLEN)
		len = WEIR_TRACE_SNAPLEN;
	arrival->captured_len =
		either_copy(&packet, arrival->bytes, len, WEIR_TRACE_SNAPLEN);
	followed.number = number;
	bpf_map_update_elem(&follow, &it->skb, &followed, BPF_ANY);
	it->skb = 0;
	bpf_ringbuf_submit(arrival, 0);
}

SEC("socket")
int weir_trace_take(struct __sk_buff *skb)
{
	take(skb);
	return 0;
}

SEC("socket")
int weir_trace_tap(struct __sk_buff *skb)
{
	if (skb->pkt_type == PACKET_OUTGOING)
		return 0;
	if (filtered)
		bpf_tail_call(skb, &stages, WEIR_STAGE_FILTER);
	else
		take(skb);
	return 0;
}

/* How many packets a UDP socket holds. */
static __always_inline __u32 waiting(const struct sock *sk)
{
	const struct udp_sock *udp = (const void *)sk;

	return BPF_CORE_READ(sk, sk_receive_queue.qlen) +
	       BPF_CORE_READ(udp, reader_queue.qlen);
}

/*
 * UDP frees in silence what has been read, but each call takes one packet, in
 * their order: it is known whose turn comes when.
 */
static __always_inline void await_read(const struct sock *sk, __u64 skb,
				       __u64 number)
{
	struct awaited awaited = {.number = number, .skb = skb};
	struct turn turn = {.sk = (__u64)sk};
	__u64 none = 0, *reads;

	bpf_map_update_elem(&reads_of, &turn.sk, &none, BPF_NOEXIST);
	reads = bpf_map_lookup_elem(&reads_of, &turn.sk);
	if (!reads)
		return;
	turn.read = *reads + waiting(sk);
	bpf_map_update_elem(&awaited_reads, &turn, &awaited, BPF_ANY);
}

/* What a socket has just put into its queue is the last packet there. */
static __always_inline int readable(const struct sock *sk)
{
	__u64 skb = (__u64)BPF_CORE_READ(sk, sk_receive_queue.prev);
	struct followed *followed = numbered(skb);
	bool tells = followed && !followed->queued;
	struct at_work *it = at_work();

	if (it)
		it->telling = tells ? 1 + followed->number : 0;
	if (!tells)
		return 0;
	followed->queued = 1;
	tell_of(followed->number, WEIR_STEP_QUEUED, 0, 0);
	if (BPF_CORE_READ(sk, sk_protocol) == IPPROTO_UDP)
		await_read(sk, skb, followed->number);
	return 0;
}

/* Since Linux 6.3... */
SEC("?tp_btf/sk_data_ready")
int BPF_PROG(weir_readable, const struct sock *sk)
{
	return readable(sk);
}

/* ...and before. */
SEC("?fentry/sock_def_readable")
int BPF_PROG(weir_readable_old, const struct sock *sk)
{
	return readable(sk);
}

/*
 * The number of a packet that is followed. Some skbs are freed in silence, such
 * as TCP's acknowledgements: what has their memory then, and was not received,
 * is another packet.
 */
static __always_inline struct followed *
still_numbered(const struct sk_buff *skb)
{
	struct followed *followed = numbered((__u64)skb);

	if (!followed || BPF_CORE_READ(skb, skb_iif))
		return followed;
	end(skb);
	return NULL;
}

static __always_inline void end_by(const struct sk_buff *skb,
				   enum weir_step step, __u64 place,
				   __u32 detail)
{
	struct followed *followed = still_numbered(skb);

	if (!followed)
		return;
	tell_of(followed->number, step, place, detail);
	end(skb);
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(weir_copied, struct sk_buff *skb)
{
	end_by(skb, WEIR_STEP_READ, 0, 0);
	return 0;
}

/* Since Linux 6.3. */
SEC("?tp_btf/sock_recv_length")
int BPF_PROG(weir_read, struct sock *sk, int len, int flags)
{
	struct turn turn = {.sk = (__u64)sk};
	__u64 *reads = bpf_map_lookup_elem(&reads_of, &turn.sk);
	struct awaited *awaited;

	if (!reads || len < 0 || flags & MSG_PEEK)
		return 0;
	turn.read = __sync_add_and_fetch(reads, 1);
	awaited = bpf_map_lookup_elem(&awaited_reads, &turn);
	if (!awaited)
		return 0;
	tell_of(awaited->number, WEIR_STEP_READ, 0, 0);
	bpf_map_delete_elem(&follow, &awaited->skb);
	bpf_map_delete_elem(&awaited_reads, &turn);
	return 0;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(weir_at_egress, struct sk_buff *skb)
{
	struct followed *followed = still_numbered(skb);

	if (followed)
		tell_of(followed->number, WEIR_STEP_EGRESS, 0,
			BPF_CORE_READ(skb, dev, ifindex));
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(weir_sent, struct sk_buff *skb, struct net_device *dev)
{
	end_by(skb, WEIR_STEP_SENT, 0, dev->ifindex);
	return 0;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(weir_freed, struct sk_buff *skb, void *location,
	     enum skb_drop_reason reason)
{
	end_by(skb, WEIR_STEP_DROPPED, (__u64)location, reason);
	return 0;
}

SEC("tp_btf/consume_skb")
int BPF_PROG(weir_consumed, struct sk_buff *skb)
{
	end_by(skb, WEIR_STEP_CONSUMED, 0, 0);
	return 0;
}

/* For user space, which knows the types of variables and of maps alone. */
struct weir_trace_arrival arrival_type;

char LICENSE[] SEC("license") = "GPL";
