/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What stands before the IP header: Ethernet's, or nothing on the interfaces
 * that have none (ARPHRD_NONE, ARPHRD_PPP, ARPHRD_RAWIP: WireGuard, tun, PPP).
 * There the kernel keeps the protocol beside the packet (skb->protocol).
 */
#ifndef WEIR_LINK_H
#define WEIR_LINK_H

#include "flow.h"
#include <linux/if_packet.h>

/* Set before loading: the verifier removes the code for the other kind. */
const volatile bool no_ethernet;

#define LINK_HEADER_LEN (no_ethernet ? 0 : sizeof(struct ethernet))

/* What the IP version says that a bare packet is; 0: neither. */
static __always_inline __be16 bare_ethertype(const __u8 *first)
{
	switch (*first >> 4) {
	case 4:
		return bpf_htons(ETH_P_IP);
	case 6:
		return bpf_htons(ETH_P_IPV6);
	default:
		return 0;
	}
}

/* Steps over the link's header. False: the packet is cut short. */
static __always_inline bool take_link(struct cursor *cursor,
				      __be16 *ethertype_be)
{
	const struct ethernet *eth;

	if (no_ethernet) {
		if (cursor->pos + 1 > cursor->end)
			return false;
		*ethertype_be = bare_ethertype(cursor->pos);
		return true;
	}
	eth = cursor_take(cursor, sizeof(*eth));
	if (!eth)
		return false;
	*ethertype_be = eth->ethertype_be;
	return true;
}

/*
 * Not what its first bytes say: one that this host has sent itself has no link
 * header (dev_loopback_xmit()), and on an interface without such headers
 * another protocol's packet may begin as IP's do.
 */
static __always_inline bool is_misnamed(const struct __sk_buff *skb,
					struct cursor cursor)
{
	__be16 ethertype_be;

	if (skb->pkt_type == PACKET_LOOPBACK)
		return true;
	return no_ethernet && take_link(&cursor, &ethertype_be) &&
	       ethertype_be != skb->protocol;
}

#endif /* WEIR_LINK_H */
