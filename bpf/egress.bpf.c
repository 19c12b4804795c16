// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which destinations lead to an egress queue that is full: those of forwarded
 * packets that it has refused. Attached while an interface forwards and there
 * is such a queue. Nothing here runs for a packet that is delivered.
 */
#include "map.h"
#include "alarm.h"
#include "decide.h"
#include "egress_queue.h"
#include "freed.h"
#include <bpf/bpf_tracing.h>

#define ROOT_PARENT (~0U) /* TC_H_ROOT */

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct Qdisc___private {
	long privdata[];
};

struct tbf_sched_data {
	struct Qdisc *qdisc;
};

#pragma clang attribute pop

/* The reader's own network namespace. */
const volatile __u32 netns;

/* Ports have no part in the choice of an egress. */
bool by_address;

/*
 * The queue within tbf; 0 where the kernel has none. Often a module, whose
 * types no cast knows.
 */
static __always_inline __u64 tbf_child(__u64 root)
{
	const struct tbf_sched_data *tbf =
		(const void *)root +
		bpf_core_field_offset(struct Qdisc___private, privdata);

	return bpf_core_type_exists(struct tbf_sched_data)
		       ? (__u64)BPF_CORE_READ(tbf, qdisc)
		       : 0;
}

/* By the name that a user gives it. */
static __always_inline bool is_kind(__u64 queue, const char *wanted, __u32 len)
{
	const struct Qdisc *qdisc = (const void *)queue;
	char id[8] = {};
	bool is_it = true;
	__u32 i;

	bpf_probe_read_kernel(id, sizeof(id), BPF_CORE_READ(qdisc, ops, id));
	for (i = 0; i < len; i++)
		is_it &= id[i] == wanted[i];
	return is_it;
}

#define IS_KIND(queue, wanted) is_kind(queue, wanted, sizeof(wanted))

#define HAS(dev, field) \
	(bpf_core_field_exists((dev)->field) && BPF_CORE_READ(dev, field))

/* Does a filter or a rule see packets first, and may take some elsewhere? */
static __always_inline bool is_filtered(const struct net_device *dev)
{
	return HAS(dev, tcx_egress) || HAS(dev, miniq_egress) ||
	       HAS(dev, nf_hooks_egress);
}

/* The queue that all packets to this device enter, if there is one. */
static __always_inline bool queue_of(const struct net_device *dev, __u32 number,
				     struct weir_egress *egress)
{
	const struct netdev_queue *device_queue =
		(const void *)BPF_CORE_READ(dev, _tx) +
		number * bpf_core_type_size(struct netdev_queue);
	const struct Qdisc *root = BPF_CORE_READ(device_queue, qdisc);
	const struct Qdisc *queue;

	/* One of several, by the packet's hash: the others may have room. */
	if (BPF_CORE_READ(root, parent) != ROOT_PARENT &&
	    BPF_CORE_READ(dev, real_num_tx_queues) != 1)
		return false;
	/* The first transmit queue, where all of them have this one. */
	egress->device_queue = (__u64)BPF_CORE_READ(root, dev_queue);
	egress->root = (__u64)root;
	egress->queue = egress->root;
	if (IS_KIND(egress->root, "tbf"))
		egress->queue = tbf_child(egress->root);
	queue = (const void *)egress->queue;
	egress->ops = (__u64)BPF_CORE_READ(queue, ops);
	egress->header_len = BPF_CORE_READ(dev, hard_header_len);
	egress->in_bytes = IS_KIND(egress->queue, "bfifo");
	return egress->in_bytes || IS_KIND(egress->queue, "pfifo");
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(weir_overfull, struct sk_buff *skb, void *location,
	     enum skb_drop_reason reason)
{
	struct weir_screened_key key = {};
	struct weir_egress egress = {};
	const struct net_device *dev;

	if (reason != bpf_core_enum_value(enum skb_drop_reason,
					  SKB_DROP_REASON_QDISC_DROP))
		return 0;
	dev = BPF_CORE_READ(skb, dev);
	key.ifindex = BPF_CORE_READ(skb, skb_iif);
	/* What this host sends itself does not pass by a gate. */
	if (!dev || !key.ifindex ||
	    BPF_CORE_READ(dev, nd_net.net, ns.inum) != netns)
		return 0;
	key.egress_ifindex = BPF_CORE_READ(dev, ifindex);
	if (is_filtered(dev) ||
	    !queue_of(dev, BPF_CORE_READ(skb, queue_mapping), &egress) ||
	    !destination_of(skb, &key))
		return 0;
	/* Another reason, such as a length that tbf never sends. */
	if (egress_room(&egress) >=
	    egress_need(&egress, BPF_CORE_READ(skb, len)))
		return 0;
	if (by_address)
		egress_any_port(&key);
	egress.refused_ns = bpf_ktime_get_ns();
	ring(WEIR_CAUSE_EGRESS_QUEUE, egress.refused_ns);
	bpf_map_update_elem(&egresses, &key, &egress, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
