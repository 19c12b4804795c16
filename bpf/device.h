/* SPDX-License-Identifier: GPL-2.0-only */
/* The interface that a packet has come in by, as the kernel knows it. */
#ifndef WEIR_DEVICE_H
#define WEIR_DEVICE_H

#include "compat.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct vlan_group {
	unsigned int nr_vlan_devs;
};

struct vlan_info {
	struct vlan_group grp;
};

struct net_device {
	int ifindex;
	struct possible_net nd_net;
	const unsigned char *dev_addr;
	void *rx_handler;
	struct vlan_info *vlan_info; /* none without CONFIG_VLAN_8021Q */
};

struct sk_buff___device {
	struct net_device *dev;
};

struct xdp_rxq_info {
	struct net_device *dev;
};

struct xdp_buff {
	struct xdp_rxq_info *rxq;
};

#pragma clang attribute pop

/*
 * What is behind a program's context, which the verifier lets nobody look
 * behind. Read from the stack it is a plain number (Linux 6.1 has no
 * bpf_cast_to_kern_ctx()).
 */
static __always_inline const void *behind_context(void *ctx)
{
	void *volatile on_stack = ctx;
	const void *behind = NULL;

	bpf_probe_read_kernel(&behind, sizeof(behind), (const void *)&on_stack);
	return behind;
}

static __always_inline const struct net_device *
device_of_skb(struct __sk_buff *ctx)
{
	const struct sk_buff___device *skb = behind_context(ctx);

	return BPF_CORE_READ(skb, dev);
}

static __always_inline const struct net_device *
device_of_xdp(struct xdp_md *ctx)
{
	const struct xdp_buff *buff = behind_context(ctx);

	return BPF_CORE_READ(buff, rxq, dev);
}

static __always_inline __u32 vlan_devices_on(const struct net_device *dev)
{
	if (!bpf_core_field_exists(dev->vlan_info))
		return 0;
	return BPF_CORE_READ(dev, vlan_info, grp.nr_vlan_devs);
}

#endif /* WEIR_DEVICE_H */
