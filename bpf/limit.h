/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Softirq mode: past input's share of the CPU everything is discarded until the
 * period ends (Mogul & Ramakrishnan, section 7), but what keeps the network
 * together.
 */
#ifndef WEIR_LIMIT_H
#define WEIR_LIMIT_H

#include "slow_path.h"
#include "parse.h"
#include "shared.h"

#define IPPROTO_VRRP 112
#define PORT_BFD 3784 /* of a single hop (RFC 5881) */

/* Groups that no router forwards to: 224.0.0.0/24, and ff02::/16, whatever its
 * flags (RFC 5771, section 4; RFC 4291, section 2.7). */
static __always_inline bool is_link_group4(__be32 address_be)
{
	return (address_be & bpf_htonl(0xffffff00)) == bpf_htonl(0xe0000000);
}

static __always_inline bool is_link_group6(const __u8 *address)
{
	return address[0] == 0xff && (address[1] & 0xf) == 2;
}

/*
 * What routers tell each other (VRRP, OSPF, PIM, BFD, ...): to a group of the
 * link, or what its receivers take from neighbours alone. One that misses it
 * takes over another's addresses, or routes around it.
 */
static __always_inline bool
is_between_routers(struct cursor cursor, __u8 protocol, __u8 ttl, bool to_link)
{
	struct udphdr *udp;

	switch (protocol) {
	case IPPROTO_UDP:
		udp = cursor_take(&cursor, sizeof(*udp));
		return ttl == TTL_ON_LINK && udp &&
		       udp->dest == bpf_htons(PORT_BFD);
	case IPPROTO_VRRP:
		return ttl == TTL_ON_LINK;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
	case IPPROTO_TCP:
	case IPPROTO_FRAGMENT:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
		return false;
	default:
		return to_link;
	}
}

/* Neighbour discovery or MLD, which goes behind one hop-by-hop option. */
static __always_inline bool is_control6(struct cursor cursor)
{
	struct ipv6hdr *ip6 = cursor_take(&cursor, sizeof(*ip6));
	struct ipv6_opt_hdr *options;
	struct icmp_header *icmp;
	__u8 kind, next;

	if (!ip6)
		return false;
	next = ip6->nexthdr;
	if (next == IPPROTO_HOPOPTS) {
		options = cursor_take(&cursor, 8);
		if (!options || options->hdrlen)
			return false;
		next = options->nexthdr;
	}
	if (is_between_routers(cursor, next, ip6->hop_limit,
			       is_link_group6(ip6->daddr.in6_u.u6_addr8)))
		return true;
	icmp = cursor_take(&cursor, sizeof(*icmp));
	if (next != IPPROTO_ICMPV6 || !icmp)
		return false;
	kind = kind_of_reason(icmpv6_reason(icmp->type, ip6->hop_limit,
					    ip6->saddr.in6_u.u6_addr32));
	return kind == WEIR_KIND_NEIGHBOUR || kind == WEIR_KIND_GROUP;
}

/*
 * The class that no limit holds for: every ethertype but IP's (ARP, LACP,
 * STP, ...), behind VLAN tags too, and IP's own neighbours, groups and routers.
 */
static __always_inline bool is_control(struct cursor cursor)
{
	struct flow flow = {};
	struct iphdr *ip4;

	if (!take_link(&cursor, &flow.ethertype_be) ||
	    !parse_vlan_tags(&cursor, &flow))
		return true;
	if (flow.ethertype_be == bpf_htons(ETH_P_IPV6))
		return is_control6(cursor);
	if (flow.ethertype_be != bpf_htons(ETH_P_IP))
		return true;
	ip4 = cursor_take(&cursor, sizeof(*ip4));
	if (!ip4)
		return false;
	if (ip4->protocol == IPPROTO_IGMP)
		return igmp_reason(ip4->ttl, ip4->daddr) == WEIR_REASON_GROUP;
	return is_between_routers(cursor, ip4->protocol, ip4->ttl,
				  is_link_group4(ip4->daddr));
}

/* Have receive softirqs taken so much of this CPU? */
static __always_inline bool have_taken(const struct weir_softirq *softirq,
				       __u32 share)
{
	return softirq && softirq->share >= share &&
	       softirq->unmarked < WEIR_UNMARKED_MAX;
}

static __always_inline bool is_over_limit(const struct weir_softirq *softirq)
{
	return have_taken(softirq, interface.input_share);
}

/*
 * The last quarter of input's share is for what a queue bounds, or nobody
 * knows: a flood of what nothing bounds is to cost no receiver its packets.
 */
static __always_inline bool is_past_its_part(__u32 reason)
{
	struct weir_softirq *softirq;

	if (!interface.limited ||
	    bound_of_reason(reason) != WEIR_BOUND_NOTHING ||
	    verdict_of_reason(reason) != WEIR_VERDICT_PASS)
		return false;
	softirq = this_softirq();
	/* Past it, this one has passed already as of the class above. */
	if (!have_taken(softirq, interface.input_share / 4 * 3) ||
	    is_over_limit(softirq))
		return false;
	softirq->unmarked++;
	return true;
}

/* They have, and is the packet one that pays for it? */
static __always_inline bool is_past_limit(struct cursor cursor)
{
	struct weir_softirq *softirq = this_softirq();

	if (!is_over_limit(softirq))
		return false;
	softirq->unmarked++;
	softirq->limit = interface.input_share;
	return !is_control(cursor);
}

/* Global functions, which the verifier looks at once, whoever calls them. */
__noinline bool xdp_is_past_limit(struct xdp_md *ctx)
{
	return is_past_limit(cursor_of(ctx));
}

__noinline bool skb_is_past_limit(struct __sk_buff *skb)
{
	return is_past_limit(cursor_of(skb));
}

#endif /* WEIR_LIMIT_H */
