/* SPDX-License-Identifier: GPL-2.0-only */
/* UDP, TCP, ICMP. flow->left is what the IP header leaves for them. */
#ifndef WEIR_PARSE_TRANSPORT_H
#define WEIR_PARSE_TRANSPORT_H

#include "flow.h"

#define TCP_MIN_DOFF 5

/*
 * A datagram that is longer than its IP packet is dropped by the kernel on the
 * way to the socket (__udp4_lib_rcv()); a first fragment is shorter.
 */
static __always_inline enum weir_parse parse_udp(struct cursor *cursor,
						 struct flow *flow, bool usual)
{
	struct udphdr *udp = cursor_take(cursor, sizeof(*udp));
	__u32 udp_len;

	if (!udp || flow->left < sizeof(*udp))
		return WEIR_PARSE_MALFORMED;
	udp_len = bpf_ntohs(udp->len);
	if (udp_len < sizeof(*udp)) {
		if (usual)
			return WEIR_PARSE_UNUSUAL;
		/* A jumbogram's, RFC 2675: __udp6_lib_rcv() */
		if (udp_len || flow->family != WEIR_FAMILY_IPV6 ||
		    flow->fragment != WEIR_FRAGMENT_NONE)
			return WEIR_PARSE_MALFORMED;
		udp_len = flow->left;
	}
	if (udp_len > flow->left && flow->fragment == WEIR_FRAGMENT_NONE)
		return WEIR_PARSE_MALFORMED;
	flow->source_port_be = udp->source;
	flow->port_be = udp->dest;
	flow->udp_len = udp_len;
	return WEIR_PARSE_UDP;
}

static __always_inline enum weir_parse parse_tcp(struct cursor *cursor,
						 struct flow *flow)
{
	struct tcphdr *tcp = cursor_take(cursor, sizeof(*tcp));

	if (!tcp || flow->left < sizeof(*tcp) || tcp->doff < TCP_MIN_DOFF ||
	    (tcp->doff * 4 > flow->left &&
	     flow->fragment == WEIR_FRAGMENT_NONE))
		return WEIR_PARSE_MALFORMED;
	flow->source_port_be = tcp->source;
	flow->port_be = tcp->dest;
	flow->tcp_flags = ((const __u8 *)tcp)[TCP_FLAGS_BYTE];
	return WEIR_PARSE_TCP;
}

static __always_inline enum weir_parse
parse_icmp(struct cursor *cursor, struct flow *flow, enum weir_parse found)
{
	struct icmp_header *icmp = cursor_take(cursor, sizeof(*icmp));

	if (!icmp || flow->left < sizeof(*icmp))
		return WEIR_PARSE_MALFORMED;
	flow->icmp_type = icmp->type;
	return found;
}

#endif /* WEIR_PARSE_TRANSPORT_H */
