// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells what takes an interface's packets before IP sees them.
 *
 * Run by BPF_PROG_TEST_RUN on the interface, never attached. Netlink shows a
 * macvlan or VLAN interface only in the namespace that it has been moved to;
 * the lower device knows of it wherever it is (__netif_receive_skb_core()).
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

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
	void *rx_handler;
	struct vlan_info *vlan_info; /* none without CONFIG_VLAN_8021Q */
};

struct sk_buff___device {
	struct net_device *dev;
};

#pragma clang attribute pop

struct weir_device seen;

SEC("tc")
int weir_device(struct __sk_buff *ctx)
{
	/*
	 * The context is the kernel's skb, but the verifier lets nobody look
	 * behind it. Read from the stack it is a plain number (Linux 6.1 has
	 * no bpf_cast_to_kern_ctx()).
	 */
	struct __sk_buff *volatile on_stack = ctx;
	struct sk_buff___device *skb = NULL;
	struct net_device *dev;

	bpf_probe_read_kernel(&skb, sizeof(skb), (const void *)&on_stack);
	dev = BPF_CORE_READ(skb, dev);
	seen.ifindex = BPF_CORE_READ(dev, ifindex);
	seen.rx_handler = (__u64)BPF_CORE_READ(dev, rx_handler);
	seen.vlan_devices = 0;
	if (bpf_core_field_exists(dev->vlan_info))
		seen.vlan_devices =
			BPF_CORE_READ(dev, vlan_info, grp.nr_vlan_devs);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
