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
	return dev && !kernel_read(dev, rx_handler) && !vlan_devices_on(dev);
}

/* The address may be told late: the kernel goes by the device's. */
static __always_inline bool is_address_of(const struct net_device *dev,
					  const __be16 *mac)
{
	__u64 address = kernel_address(dev, dev_addr);
	__be16 own[3] = {};

	if (has_rdonly_cast())
		__builtin_memcpy(own,
				 kernel_cast(address, struct ethhdr)->h_dest,
				 sizeof(own));
	else if (bpf_probe_read_kernel(own, sizeof(own), (const void *)address))
		return true;
	return is_same_mac(mac, own);
}

/*
 * Will the kernel take a frame to this address for another host's
 * (PACKET_OTHERHOST), and drop it (ip_rcv_core())?
 */
static __always_inline bool is_for_other_host_xdp(struct xdp_md *xdp,
						  const __be16 *mac)
{
	const struct net_device *dev;

	if (is_group_mac(mac))
		return false;
	dev = device_of_xdp(xdp);
	return !is_address_of(dev, mac) && is_end(dev);
}

/* told: the interface's own. */
static __always_inline bool is_for_other_host(const struct either *packet,
					      const __be16 *mac,
					      const __be16 *told)
{
	if (packet->skb)
		return packet->skb->pkt_type == PACKET_OTHERHOST &&
		       is_end(device_of_skb(packet->skb));
	return !is_same_mac(mac, told) &&
	       is_for_other_host_xdp(packet->xdp, mac);
}

#endif /* WEIR_OTHER_HOST_H */
