/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's tables of sockets and of routes, as its helpers look at them. */
#ifndef WEIR_LOOKUP_H
#define WEIR_LOOKUP_H

#include "compat.h"
#include "flow.h"

/* Fills the tuple; its size tells the helper which family it is. */
static __always_inline __u32 tuple_of(const struct flow *flow,
				      struct bpf_sock_tuple *tuple)
{
	if (flow->family == WEIR_FAMILY_IPV4) {
		tuple->ipv4.saddr = flow->source[0];
		tuple->ipv4.daddr = flow->destination[0];
		tuple->ipv4.sport = flow->source_port_be;
		tuple->ipv4.dport = flow->port_be;
		return sizeof(tuple->ipv4);
	}
	copy_address(tuple->ipv6.saddr, flow->source);
	copy_address(tuple->ipv6.daddr, flow->destination);
	tuple->ipv6.sport = flow->source_port_be;
	tuple->ipv6.dport = flow->port_be;
	return sizeof(tuple->ipv6);
}

/* net->bpf.run_array[]: programs that redirect lookups (BPF_SK_LOOKUP). */
#define NETNS_BPF_SK_LOOKUP 1

/*
 * Does a program choose the socket (BPF_SK_LOOKUP)? The helpers run it too, and
 * one that keeps count (turns, limits) would decide otherwise for the kernel.
 */
static __always_inline bool lookup_is_steered(__u64 net)
{
	const struct net *netns = kernel_cast(net, struct net);

	return kernel_address(netns, bpf.run_array[NETNS_BPF_SK_LOOKUP]);
}

/*
 * The kernel's own routing decision, rules included, for a packet of this
 * length; of any for 0. The helper, told of none, takes the skb's own.
 */
static __always_inline long route_of(void *ctx, const struct flow *flow,
				     __u32 ifindex, __u16 length,
				     struct bpf_fib_lookup *route)
{
	bool is_ip6 = flow->family == WEIR_FAMILY_IPV6;

	__builtin_memset(route, 0, sizeof(*route));
	route->family = is_ip6 ? AF_INET6 : AF_INET;
	if (is_ip6)
		route->flowinfo = flow->flowinfo;
	else
		route->tos = flow->flowinfo;
	route->l4_protocol = flow->protocol;
	route->tot_len = length ?: 1;
	route->sport = flow->source_port_be;
	route->dport = flow->port_be;
	route->ifindex = ifindex;
	/* IPv4's is the first word. */
	copy_address(route->ipv6_src, flow->source);
	copy_address(route->ipv6_dst, flow->destination);
	return bpf_fib_lookup(ctx, route, sizeof(*route), 0);
}

/* Does such a decision lead on, by route->ifindex? */
static __always_inline bool leads_on(long decision)
{
	return decision == BPF_FIB_LKUP_RET_SUCCESS ||
	       decision == BPF_FIB_LKUP_RET_NO_NEIGH;
}

#endif /* WEIR_LOOKUP_H */
