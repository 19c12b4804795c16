/* SPDX-License-Identifier: GPL-2.0-only */
/* Which addresses are this host's. */
#ifndef WEIR_LOCAL_H
#define WEIR_LOCAL_H

#include "abi/interface.h"
#include "map.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

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

static __always_inline bool is_group4(__be32 address_be)
{
	return bpf_ntohl(address_be) >> 28 == 0xe;
}

static __always_inline bool is_group6(const __u32 *address)
{
	return bpf_ntohl(address[0]) >> 24 == 0xff;
}

static __always_inline enum addressed addressed_to4(__be32 address_be)
{
	enum weir_address_kind *kind;

	if (is_group4(address_be) || address_be == 0xffffffff)
		return ADDRESSED_TO_MANY;
	kind = bpf_map_lookup_elem(&local_ipv4, &address_be);
	if (!kind || *kind == WEIR_ADDRESS_UNSURE)
		return ADDRESSED_ELSEWHERE;
	return *kind == WEIR_ADDRESS_BROADCAST ? ADDRESSED_TO_MANY
					       : ADDRESSED_HERE;
}

static __always_inline enum addressed addressed_to6(const __u32 *address)
{
	struct weir_ipv6_address key;

	__builtin_memcpy(&key, address, sizeof(key));
	if (is_group6(address))
		return ADDRESSED_TO_MANY;
	return bpf_map_lookup_elem(&local_ipv6, &key) ? ADDRESSED_HERE
						      : ADDRESSED_ELSEWHERE;
}

/* What nobody routes, or not by its address alone. */
static __always_inline bool is_special4(__be32 address_be)
{
	__u32 first = bpf_ntohl(address_be) >> 24;

	return !first || first == 127 || first >= 224;
}

/* fe80::/10, which routers do not forward (RFC 4291, 2.5.6). */
static __always_inline bool is_link_local6(const __u32 *address)
{
	return (address[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/*
 * May the kernel refuse it as a source? Of IPv6, routers do not ask
 * (ip6_forward()).
 */
static __always_inline bool is_own_source4(__be32 address_be)
{
	return bpf_map_lookup_elem(&local_ipv4, &address_be);
}

#endif /* WEIR_LOCAL_H */
