/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's tables of sockets and of routes, as its helpers look at them. */
#ifndef WEIR_LOOKUP_H
#define WEIR_LOOKUP_H

#include "compat.h"
#include "decide.h"
#include "packet.h"

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

/*
 * A packet for another host: by which interface would it leave? The kernel's
 * own routing decision, rules included.
 */
static __noinline void forward(struct packet *packet, const struct flow *flow,
			       struct prospects *prospects,
			       __u32 *egress_ifindex)
{
	struct bpf_fib_lookup route = {
		.ifindex = packet->ifindex,
	};
	long found;

	if (flow->family == WEIR_FAMILY_IPV4) {
		route.family = AF_INET;
		route.ipv4_src = flow->source[0];
		route.ipv4_dst = flow->destination[0];
	} else {
		route.family = AF_INET6;
		copy_address(route.ipv6_src, flow->source);
		copy_address(route.ipv6_dst, flow->destination);
	}
	found = bpf_fib_lookup(packet->ctx, &route, sizeof(route), 0);
	if (found == BPF_FIB_LKUP_RET_SUCCESS ||
	    found == BPF_FIB_LKUP_RET_NO_NEIGH) {
		prospects->pass = WEIR_REASON_FORWARD;
		*egress_ifindex = route.ifindex;
	} else {
		prospects->pass = WEIR_REASON_NO_ROUTE;
	}
}

#endif /* WEIR_LOOKUP_H */
