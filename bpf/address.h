/* SPDX-License-Identifier: GPL-2.0-only */
/* This interface, and whether a packet is for its host. */
#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include "abi.h"
#include "defect.h"
#include "flow.h"
#include "local.h"
#include "shared.h"

/* Set before the gate is attached. */
struct weir_interface interface;

/* TCP ports whose connections are protected, whoever opened them; a bit each.
 */
__u64 protected_ports[WEIR_PORT_WORDS];

/* Is it later than that? 0 is never. */
static __always_inline bool is_past(const __u64 *until_ns)
{
	struct weir_poll *poll = current_poll();

	if (!poll)
		return false;
	poll_moment(poll);
	return *until_ns && poll->now_ns > *until_ns;
}

/* Has nobody looked for too long at addresses, and at what diverts packets? */
static __always_inline bool is_stale(void)
{
	return is_past(&interface.fresh_until_ns);
}

static __always_inline bool is_protected_port(__u16 port)
{
	return protected_ports[port / 64] >> port % 64 & 1;
}

static __always_inline bool is_own_mac(const __be16 *mac)
{
	return is_same_mac(mac, interface.mac);
}

/*
 * A tag of VLAN 0 gives a priority alone. Where no VLAN interface is, the
 * kernel takes it off (__netif_receive_skb_core()).
 */
static __always_inline bool is_of_vlan(__u32 tag)
{
	return tag & VLAN_ID_MASK || interface.vlans;
}

static __always_inline enum addressed addressed_to(const struct flow *flow)
{
	if (DEFECT(ADDRESS_UNCHECKED))
		return ADDRESSED_HERE;
	return flow->family == WEIR_FAMILY_IPV4
		       ? addressed_to4(flow->destination[0])
		       : addressed_to6(flow->destination);
}

/* Multicast routing takes what is for a group, and nothing else
 * (ip_route_input_mc(), ip6_mc_input()). */
static __always_inline bool is_routed_group(const struct flow *flow)
{
	if (!interface.routes_groups)
		return false;
	return flow->family == WEIR_FAMILY_IPV4
		       ? is_group4(flow->destination[0])
		       : is_group6(flow->destination);
}

#endif /* WEIR_ADDRESS_H */
