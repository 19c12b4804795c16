/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a forwarded packet was going that a queue has refused, so it is freed.
 */
#ifndef WEIR_FREED_H
#define WEIR_FREED_H

#include "compat.h"
#include "flow.h"
#include "parse_ip6.h"

/* As target_of() has it, of a packet that is in no frame any more. */
static __always_inline void transport_of(const void *header, __u8 protocol,
					 struct weir_screened_key *key)
{
	__be16 ports_be[2] = {};
	__u8 flags = 0;

	key->target = WEIR_TARGET_FORWARD;
	if (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)
		return;
	bpf_probe_read_kernel(ports_be, sizeof(ports_be), header);
	key->port_be = ports_be[1];
	key->target = WEIR_TARGET_UDP;
	if (protocol == IPPROTO_UDP)
		return;
	bpf_probe_read_kernel(&flags, sizeof(flags), header + TCP_FLAGS_BYTE);
	key->target = (flags & (TCP_SYN | TCP_NO_REQUEST)) == TCP_SYN
			      ? WEIR_TARGET_TCP_SYN
			      : WEIR_TARGET_TCP;
}

/*
 * Where it was going: of no target, if the ports are in another fragment or
 * behind IPv6's further headers. Does it tell of others that go there? No
 * fragment does.
 */
static __always_inline bool destination_of(const struct sk_buff *skb,
					   struct weir_screened_key *key)
{
	const void *ip = skb->head + skb->network_header;
	struct ipv6hdr ip6 = {};
	struct iphdr ip4 = {};

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		bpf_probe_read_kernel(&ip4, sizeof(ip4), ip);
		key->family = WEIR_FAMILY_IPV4;
		key->address[0] = ip4.daddr;
		if (ip4.frag_off & bpf_htons(IPV4_OFFSET_MASK))
			return false;
		transport_of(ip + ip4.ihl * 4, ip4.protocol, key);
		return !(ip4.frag_off & bpf_htons(IPV4_FRAGMENT_MASK));
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return false;
	bpf_probe_read_kernel(&ip6, sizeof(ip6), ip);
	key->family = WEIR_FAMILY_IPV6;
	__builtin_memcpy(key->address, &ip6.daddr, sizeof(key->address));
	if (is_ipv6_extension(ip6.nexthdr, true))
		return false;
	transport_of(ip + sizeof(ip6), ip6.nexthdr, key);
	return true;
}

#endif /* WEIR_FREED_H */
