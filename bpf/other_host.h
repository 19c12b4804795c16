/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames for another host of the link, by their MAC address. */
#ifndef WEIR_OTHER_HOST_H
#define WEIR_OTHER_HOST_H

#include "device.h"
#include "either.h"
#include "flow.h"
#include <linux/if_packet.h>

/*
 * An interface on top of it may have an address of its own, and get them
 * (macvlan, VLANs, bridges).
 */
static __always_inline bool is_end(const struct net_device *dev)
{
	return dev && !BPF_CORE_READ(dev, rx_handler) && !vlan_devices_on(dev);
}

/* The address may be told late: the kernel goes by the device's. */
static __always_inline bool is_address_of(const struct net_device *dev,
					  const __be16 *mac)
{
	const void *address = BPF_CORE_READ(dev, dev_addr);
	__be16 own[3] = {};

	return bpf_probe_read_kernel(own, sizeof(own), address) ||
	       is_same_mac(mac, own);
}

/*
 * Will the kernel take a frame to this address for another host's
 * (PACKET_OTHERHOST), and drop it (ip_rcv_core())? told: the interface's own.
 */
static __always_inline bool is_for_other_host(const struct either *packet,
					      const __be16 *mac,
					      const __be16 *told)
{
	const struct net_device *dev;

	if (packet->skb)
		return packet->skb->pkt_type == PACKET_OTHERHOST &&
		       is_end(device_of_skb(packet->skb));
	if (is_group_mac(mac) || is_same_mac(mac, told))
		return false;
	dev = device_of_xdp(packet->xdp);
	return !is_address_of(dev, mac) && is_end(dev);
}

#endif /* WEIR_OTHER_HOST_H */
