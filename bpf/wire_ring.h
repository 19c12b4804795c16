/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The generator's wire ends in a ring as a NIC's does: what finds it full is
 * gone, at no cost to the host. A veth's full ring costs the host dearly: the
 * sender takes the frame back, to the page pool from which it came, and takes
 * the lock of that pool that the receiver needs for each packet that it frees.
 * So the generator looks into the ring first.
 */
#ifndef WEIR_WIRE_RING_H
#define WEIR_WIRE_RING_H

#include "compat.h"
#include <bpf/bpf_tracing.h>

/* Frames that the kernel keeps before it hands them to an interface's driver:
 * DEV_MAP_BULK_SIZE, kernel/bpf/devmap.c. */
#define BULK 16
/* What alloc_netdev_mqs() places a driver's own part by. */
#define NETDEV_ALIGN 32

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct ptr_ring {
	int producer;
	int size;
	void **queue;
};

struct veth_rq {
	struct ptr_ring xdp_ring;
};

struct veth_priv {
	struct net_device *peer;
	struct veth_rq *rq;
};

#pragma clang attribute pop

/* Set by user space before a run: where packets go; the ring is to be found. */
__u32 output_ifindex;
__u32 output_netns;
/* An address in the kernel, once the first frames have shown it; 0: unknown. */
__u64 wire_ring;
/* Frames that the kernel keeps still, and the first of them since when. */
__u32 kept;
__u64 kept_since_ns;
/* How many more fit for certain. */
__u32 fitting;

static __always_inline struct veth_priv *
veth_priv_of(const struct net_device *device)
{
	__u64 own = bpf_core_type_size(struct net_device);

	own = (own + NETDEV_ALIGN - 1) & ~(__u64)(NETDEV_ALIGN - 1);
	return (void *)device + own;
}

/* veth_select_rxq() and veth_xdp_xmit(), drivers/net/veth.c. */
static __always_inline __u64 ring_behind(const struct net_device *output)
{
	struct net_device *peer = BPF_CORE_READ(veth_priv_of(output), peer);
	__u32 queues = BPF_CORE_READ(peer, real_num_rx_queues);
	__u64 queue = queues ? bpf_get_smp_processor_id() % queues : 0;
	__u64 first = (__u64)BPF_CORE_READ(veth_priv_of(peer), rq);

	if (!first)
		return 0;
	return first + queue * bpf_core_type_size(struct veth_rq) +
	       bpf_core_field_offset(struct veth_rq, xdp_ring);
}

/* When the kernel has handed over the frames that it kept. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(weir_handed, const struct net_device *from,
	     const struct net_device *to)
{
	if ((__u32)to->ifindex != output_ifindex ||
	    to->nd_net.net->ns.inum != output_netns)
		return 0;
	kept = 0;
	if (!wire_ring && bpf_core_type_exists(struct veth_rq)) {
		wire_ring = ring_behind(to);
		/* Of another ring, before. */
		fitting = 0;
	}
	return 0;
}

/* Is there room for a frame? One bulk's is looked for at a time. */
static __always_inline bool wire_has_room(void)
{
	struct ptr_ring *ring = (void *)wire_ring;
	void **queue, *last;
	__u32 size, at;

	if (!ring)
		return true;
	if (!fitting) {
		size = BPF_CORE_READ(ring, size);
		queue = BPF_CORE_READ(ring, queue);
		at = BPF_CORE_READ(ring, producer) + kept + BULK - 1;
		if (!size || bpf_probe_read_kernel(&last, sizeof(last),
						   queue + at % size))
			return true;
		if (last)
			return false;
		fitting = BULK;
	}
	fitting--;
	return true;
}

static __always_inline bool wire_takes_frame(__u64 now_ns)
{
	if (!wire_has_room())
		return false;
	if (!kept++)
		kept_since_ns = now_ns;
	return true;
}

#endif /* WEIR_WIRE_RING_H */
