/* SPDX-License-Identifier: GPL-2.0-only */
/* A flow, copied out for user space. */
#ifndef WEIR_PARSED_H
#define WEIR_PARSED_H

#include "parse.h"

/* Everything that weir_parsed says of itself; to is all zero before. */
static __always_inline void parsed_from(const struct flow *flow,
					enum weir_parse parse,
					struct weir_parsed *to)
{
	to->parse = parse;
	if (parse == WEIR_PARSE_MALFORMED)
		return;
	to->ethertype = bpf_ntohs(flow->ethertype_be);
	to->vlan_tags = flow->vlan_tags;
	if (flow->family == WEIR_FAMILY_NONE)
		return;
	to->family = flow->family;
	to->protocol = flow->protocol;
	to->fragment = flow->fragment;
	to->routed = flow->routed;
	to->left = flow->left;
	/* An atomic fragment has a number too, but is whole. */
	if (flow->fragment)
		to->fragment_id = flow->family == WEIR_FAMILY_IPV4
					  ? bpf_ntohs(flow->fragment_id_be)
					  : bpf_ntohl(flow->fragment_id_be);
	to->source_port = bpf_ntohs(flow->source_port_be);
	to->destination_port = bpf_ntohs(flow->port_be);
	to->udp_len = flow->udp_len;
	to->tcp_flags = flow->tcp_flags;
	to->icmp_type = flow->icmp_type;
	__builtin_memcpy(to->source, flow->source, sizeof(to->source));
	__builtin_memcpy(to->destination, flow->destination,
			 sizeof(to->destination));
}

#endif /* WEIR_PARSED_H */
