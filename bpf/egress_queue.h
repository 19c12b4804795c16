/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An egress interface's queue that takes every packet until it is full: pfifo
 * or bfifo (net/sched/sch_fifo.c), alone or within tbf. Its fill and its limit
 * are read where the kernel keeps them. Other disciplines tell packets apart,
 * and refuse some while they take others.
 */
#ifndef WEIR_EGRESS_QUEUE_H
#define WEIR_EGRESS_QUEUE_H

#include "compat.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct Qdisc_ops {
	char id[16];
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 backlog;
};

struct Qdisc {
	unsigned int limit;
	const struct Qdisc_ops *ops;
	__u32 parent;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

struct netdev_queue {
	struct Qdisc *qdisc;
};

#pragma clang attribute pop

/* All ports of an address, and all protocols. */
static __always_inline void egress_any_port(struct weir_screened_key *key)
{
	key->port_be = 0;
	key->target = WEIR_TARGET_NONE;
}

/*
 * Is it what the device queue still has? What is freed meanwhile stays readable
 * and has been emptied.
 */
static __always_inline bool egress_is_still(const struct weir_egress *egress,
					    const struct Qdisc *queue)
{
	const struct netdev_queue *device_queue =
		kernel_cast(egress->device_queue, struct netdev_queue);

	return kernel_address(device_queue, qdisc) == egress->root &&
	       kernel_address(queue, dev_queue) == egress->device_queue &&
	       kernel_address(queue, ops) == egress->ops;
}

/*
 * How much more it takes, in packets or in bytes. Not known of one that is half
 * empty: if that is less than a poll brings, it is emptied while the poll
 * lasts, and takes more.
 */
static __always_inline __u32 egress_room(const struct weir_egress *egress)
{
	const struct Qdisc *queue = kernel_cast(egress->queue, struct Qdisc);
	__u32 used, limit;

	if (!egress_is_still(egress, queue))
		return ROOM_UNKNOWN;
	limit = kernel_read(queue, limit);
	used = egress->in_bytes ? kernel_read(queue, qstats.backlog)
				: kernel_read(queue, q.qlen);
	if (used < limit / 2)
		return ROOM_UNKNOWN;
	return used < limit ? limit - used : 0;
}

/* What a packet of so many bytes, as it is sent, takes of that. */
static __always_inline __u32 egress_need(const struct weir_egress *egress,
					 __u32 len)
{
	return egress->in_bytes ? len : 1;
}

#endif /* WEIR_EGRESS_QUEUE_H */
