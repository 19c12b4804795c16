/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is to be asked of the routing table about a packet, if routing is all
 * that it needs. The tests are those of ip_rcv_core(), ip_route_input_slow()
 * and ip6_forward(); what they refuse, they refuse themselves.
 */
#ifndef WEIR_FORWARD_ASK_H
#define WEIR_FORWARD_ASK_H

#include "checksum.h"
#include "compat.h"
#include "flow.h"
#include "local.h"

/* Multicast, link-local, and ::/64 with the unspecified and loopback ones. */
static __always_inline bool is_special6(const __u32 *address)
{
	return *(const __u8 *)address == 0xff || is_link_local6(address) ||
	       (!address[0] && !address[1]);
}

static __always_inline bool has_valid_checksum(const struct iphdr *ip)
{
	return checksum_fold(checksum_add(0, (const __u32 *)ip, 5)) == 0xffff;
}

/* What is to be asked of the routing table; false: not for the fast path. */
static __always_inline bool question4(const struct iphdr *ip,
				      struct bpf_fib_lookup *route)
{
	/* An error takes the way of what it is about. */
	if (ip->version != 4 || ip->ihl != 5 || ip->ttl <= 1 ||
	    ip->protocol == IPPROTO_ICMP || is_special4(ip->saddr) ||
	    is_special4(ip->daddr) || !has_valid_checksum(ip) ||
	    is_own_source4(ip->saddr))
		return false;
	route->family = AF_INET;
	route->tos = ip->tos;
	route->l4_protocol = ip->protocol;
	route->tot_len = bpf_ntohs(ip->tot_len);
	route->ipv4_src = ip->saddr;
	route->ipv4_dst = ip->daddr;
	return route->tot_len >= sizeof(*ip);
}

static __always_inline bool question6(const struct ipv6hdr *ip,
				      struct bpf_fib_lookup *route)
{
	const __u32 *source = ip->saddr.in6_u.u6_addr32;
	const __u32 *destination = ip->daddr.in6_u.u6_addr32;
	__u32 len = bpf_ntohs(ip->payload_len) + sizeof(*ip);

	/* Hop-by-hop options are every router's business. ICMPv6 as above, and
	 * the router may answer for a neighbour (proxy NDP). */
	if (ip->version != 6 || ip->hop_limit <= 1 ||
	    ip->nexthdr == IPPROTO_HOPOPTS || ip->nexthdr == IPPROTO_ICMPV6 ||
	    len > 0xffff || is_special6(source) || is_special6(destination) ||
	    addressed_to6(source) != ADDRESSED_ELSEWHERE)
		return false;
	route->family = AF_INET6;
	route->flowinfo = *(const __be32 *)ip & bpf_htonl(0x0fffffff);
	route->l4_protocol = ip->nexthdr;
	route->tot_len = len;
	copy_address(route->ipv6_src, source);
	copy_address(route->ipv6_dst, destination);
	return true;
}

#endif /* WEIR_FORWARD_ASK_H */
