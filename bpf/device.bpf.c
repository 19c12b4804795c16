// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells what takes an interface's packets before IP sees them.
 *
 * Run by BPF_PROG_TEST_RUN on the interface, never attached. Netlink shows a
 * macvlan or VLAN interface only in the namespace that it has been moved to;
 * the lower device knows of it wherever it is (__netif_receive_skb_core()).
 */
#include "abi.h"
#include "device.h"

struct weir_device seen;

SEC("tc")
int weir_device(struct __sk_buff *ctx)
{
	const struct net_device *dev = device_of_skb(ctx);

	seen.ifindex = kernel_read(dev, ifindex);
	seen.rx_handler = kernel_address(dev, rx_handler);
	seen.dsa_ptr = switch_port_behind(dev);
	seen.vlan_devices = vlan_devices_on(dev);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
