/* SPDX-License-Identifier: GPL-2.0-only */
/* This interface, and which addresses are this host's. */
#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include "abi.h"
#include "defect.h"
#include "flow.h"
#include "shared.h"

/* Set before the gate is attached. */
struct weir_interface interface;

/* TCP ports whose connections are protected, whoever opened them; a bit each.
 */
__u64 protected_ports[WEIR_PORT_WORDS];

MAP(local_ipv4, BPF_MAP_TYPE_HASH, 0, WEIR_LOCAL_ADDRESSES, __be32,
    enum weir_address_kind);

MAP(local_ipv6, BPF_MAP_TYPE_HASH, 0, WEIR_LOCAL_ADDRESSES,
    struct weir_ipv6_address, enum weir_address_kind);

/* Whose an IP address is. */
enum addressed {
	ADDRESSED_ELSEWHERE,
	ADDRESSED_HERE,
	ADDRESSED_TO_MANY, /* multicast or broadcast */
};

/* Has nobody looked for too long at addresses, and at what diverts packets? */
static __always_inline bool is_stale(void)
{
	struct weir_poll *poll = current_poll();

	if (!poll)
		return false;
	poll_moment(poll);
	return interface.fresh_until_ns &&
	       poll->now_ns > interface.fresh_until_ns;
}

static __always_inline bool is_protected_port(__u16 port)
{
	return protected_ports[port / 64] >> port % 64 & 1;
}

static __always_inline bool is_own_mac(const __be16 *mac)
{
	return mac[0] == interface.mac[0] && mac[1] == interface.mac[1] &&
	       mac[2] == interface.mac[2];
}

/* To several stations: broadcast is multicast to all. */
static __always_inline bool is_group_mac(const __be16 *mac)
{
	return mac[0] & bpf_htons(0x0100);
}

static __always_inline enum addressed addressed_to4(__be32 address_be)
{
	__u32 first = bpf_ntohl(address_be) >> 28;
	enum weir_address_kind *kind;

	if (first == 0xe || address_be == 0xffffffff)
		return ADDRESSED_TO_MANY;
	kind = bpf_map_lookup_elem(&local_ipv4, &address_be);
	if (!kind)
		return ADDRESSED_ELSEWHERE;
	return *kind == WEIR_ADDRESS_BROADCAST ? ADDRESSED_TO_MANY
					       : ADDRESSED_HERE;
}

static __always_inline enum addressed addressed_to6(const __u32 *address)
{
	struct weir_ipv6_address key;

	__builtin_memcpy(&key, address, sizeof(key));
	if (key.octets[0] == 0xff)
		return ADDRESSED_TO_MANY;
	return bpf_map_lookup_elem(&local_ipv6, &key) ? ADDRESSED_HERE
						      : ADDRESSED_ELSEWHERE;
}

static __always_inline enum addressed addressed_to(const struct flow *flow)
{
	if (DEFECT(ADDRESS_UNCHECKED))
		return ADDRESSED_HERE;
	return flow->family == WEIR_FAMILY_IPV4
		       ? addressed_to4(flow->destination[0])
		       : addressed_to6(flow->destination);
}

#endif /* WEIR_ADDRESS_H */
