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

struct xdp_rxq_info {
	struct net_device *dev;
};

struct xdp_buff {
	struct xdp_rxq_info *rxq;
};

#pragma clang attribute pop

/*
 * What is behind a program's context, which the verifier lets nobody look
 * behind. Read from the stack it is a plain number.
 */
static __always_inline __u64 behind_context(void *ctx)
{
	void *volatile on_stack = ctx;
	__u64 behind = 0;

	if (has_kern_ctx())
		return kernel_address_of(bpf_cast_to_kern_ctx(ctx));
	bpf_probe_read_kernel(&behind, sizeof(behind), (const void *)&on_stack);
	return behind;
}

static __always_inline const struct net_device *
device_of_skb(struct __sk_buff *ctx)
{
	const struct sk_buff *skb =
		kernel_cast(behind_context(ctx), struct sk_buff);

	return kernel_cast(kernel_address(skb, dev), struct net_device);
}

static __always_inline const struct net_device *
device_of_xdp(struct xdp_md *ctx)
{
	const struct xdp_buff *buff =
		kernel_cast(behind_context(ctx), struct xdp_buff);
	const struct xdp_rxq_info *rxq =
		kernel_cast(kernel_address(buff, rxq), struct xdp_rxq_info);

	return kernel_cast(kernel_address(rxq, dev), struct net_device);
}

static __always_inline __u32 vlan_devices_on(const struct net_device *dev)
{
	const struct vlan_info *info;

	if (!bpf_core_field_exists(dev->vlan_info))
		return 0;
	info = kernel_cast(kernel_address(dev, vlan_info), struct vlan_info);
	return info ? kernel_read(info, grp.nr_vlan_devs) : 0;
}

/* The port of a switch whose packets a conduit carries, with tags. */
static __always_inline __u64 switch_port_behind(const struct net_device *dev)
{
	return bpf_core_field_exists(dev->dsa_ptr)
		       ? kernel_address(dev, dsa_ptr)
		       : 0;
}

#endif /* WEIR_DEVICE_H */
