/* SPDX-License-Identifier: GPL-2.0-only */
/* A flow as the kernel's lookup helpers want it. */
#ifndef WEIR_LOOKUP_H
#define WEIR_LOOKUP_H

#include "flow.h"
#include "memory.h"

#define AF_INET 2
#define AF_INET6 10

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

#endif /* WEIR_LOOKUP_H */
