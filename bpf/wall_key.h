/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet's flow at the wall, and the flow that it may be in answer to. */
#ifndef WEIR_WALL_KEY_H
#define WEIR_WALL_KEY_H

#include "flow.h"
#include "wall.h"
#include <linux/icmpv6.h>

#define ICMP_ECHO_REPLY 0
#define ICMP_ECHO_REQUEST 8

static __always_inline void key_of(const struct flow *flow,
				   struct weir_wall_key *key)
{
	bool whole = flow->fragment == WEIR_FRAGMENT_NONE;

	__builtin_memset(key, 0, sizeof(*key));
	copy_address(key->source, flow->source);
	copy_address(key->destination, flow->destination);
	key->source_port_be = whole ? flow->source_port_be : 0;
	key->port_be = whole ? flow->port_be : 0;
	key->protocol = flow->protocol;
	key->family = flow->family;
	key->fragment = !whole;
	key->icmp_type = whole ? flow->icmp_type : 0;
}

static __always_inline __u8 reverse_icmp_type(const struct weir_wall_key *key)
{
	bool v6 = key->protocol == IPPROTO_ICMPV6;
	__u8 request = v6 ? ICMPV6_ECHO_REQUEST : ICMP_ECHO_REQUEST;
	__u8 reply = v6 ? ICMPV6_ECHO_REPLY : ICMP_ECHO_REPLY;

	if (key->icmp_type == reply)
		return request;
	return key->icmp_type == request ? reply : key->icmp_type;
}

/* The flow in the other direction. Can a packet of this one answer it? */
static __always_inline bool reverse_of(const struct weir_wall_key *key,
				       struct weir_wall_key *reverse)
{
	__builtin_memset(reverse, 0, sizeof(*reverse));
	copy_address(reverse->source, key->destination);
	copy_address(reverse->destination, key->source);
	reverse->source_port_be = key->port_be;
	reverse->port_be = key->source_port_be;
	reverse->protocol = key->protocol;
	reverse->family = key->family;
	/* Else whoever forges an inside address would be answered. */
	reverse->side = !key->side;
	reverse->fragment = key->fragment;
	/* It does not say to what: it would answer every flow. */
	if (key->fragment)
		return false;
	if (key->protocol != IPPROTO_ICMP && key->protocol != IPPROTO_ICMPV6)
		return true;
	reverse->icmp_type = reverse_icmp_type(key);
	return reverse->icmp_type == (key->protocol == IPPROTO_ICMPV6
					      ? ICMPV6_ECHO_REQUEST
					      : ICMP_ECHO_REQUEST);
}

#endif /* WEIR_WALL_KEY_H */
