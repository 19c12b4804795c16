/* SPDX-License-Identifier: GPL-2.0-only */
/* Packets for other hosts: which interface would they leave by? */
#ifndef WEIR_FORWARD_H
#define WEIR_FORWARD_H

#include "finding.h"
#include "lookup.h"

/* The kernel's own routing decision, rules included. */
static __noinline void forward(struct packet *packet, const struct flow *flow,
			       struct finding *finding)
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
	finding->remember = WEIR_REMEMBERED;
	if (found == BPF_FIB_LKUP_RET_SUCCESS ||
	    found == BPF_FIB_LKUP_RET_NO_NEIGH) {
		finding->reason = WEIR_REASON_FORWARD;
		finding->egress_ifindex = route.ifindex;
	} else {
		finding->reason = WEIR_REASON_NO_ROUTE;
	}
}

#endif /* WEIR_FORWARD_H */
