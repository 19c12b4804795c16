/* SPDX-License-Identifier: GPL-2.0-only */
/* IPv6: header and extension headers. */
#ifndef WEIR_PARSE_IP6_H
#define WEIR_PARSE_IP6_H

#include "defect.h"
#include "flow.h"

/* The longest is 2,048 bytes: its length field counts 8 each beyond 8. */
#define IPV6_EXTENSION_MASK 0xfff
#define IPV6_OFFSET_MASK 0xfff8

struct ipv6_extension {
	__u8 next_header;
	__u8 len;
	__u8 routing_type;
	__u8 segments_left;
	__u8 rest[4];
};

struct ipv6_fragment {
	__u8 next_header;
	__u8 reserved;
	__be16 offset_be; /* and, in bit 0, more fragments */
	__be32 id_be;
};

static __always_inline bool parse_ip6_fragment(struct cursor *cursor,
					       struct flow *flow)
{
	struct ipv6_fragment *fragment = cursor_take(cursor, sizeof(*fragment));

	if (!fragment || flow->left < sizeof(*fragment))
		return false;
	flow->left -= sizeof(*fragment);
	flow->protocol = fragment->next_header;
	flow->fragment_id_be = fragment->id_be;
	if (fragment->offset_be & bpf_htons(IPV6_OFFSET_MASK))
		flow->fragment = WEIR_FRAGMENT_LATER;
	/* Neither offset nor more: an atomic fragment, RFC 6946. */
	else if (fragment->offset_be & bpf_htons(1))
		flow->fragment = WEIR_FRAGMENT_FIRST;
	return true;
}

static __always_inline bool parse_ip6_extension(struct cursor *cursor,
						struct flow *flow)
{
	struct ipv6_extension *extension = cursor->pos;
	__u32 len;

	if ((void *)(extension + 1) > cursor->end)
		return false;
	len = 8 + extension->len * 8;
	if (flow->left < len)
		return false;
	if (flow->protocol == IPPROTO_ROUTING && extension->segments_left)
		flow->routed = 1;
	if (flow->protocol == IPPROTO_HOPOPTS)
		flow->optional = 1;
	flow->protocol = extension->next_header;
	flow->left -= len;
	return cursor_skip(cursor, len, IPV6_EXTENSION_MASK);
}

/*
 * Is this a header to look behind? Elsewhere than first, hop-by-hop options are
 * a next header that nobody recognizes (RFC 8200, section 4.1).
 */
static __always_inline bool is_ipv6_extension(__u8 protocol, bool is_first)
{
	return protocol == IPPROTO_ROUTING || protocol == IPPROTO_DSTOPTS ||
	       protocol == IPPROTO_FRAGMENT ||
	       (protocol == IPPROTO_HOPOPTS && is_first);
}

static __always_inline enum weir_parse parse_ip6_chain(struct cursor *cursor,
						       struct flow *flow)
{
	bool had_fragment = false;
	int i;

	for (i = 0; i < WEIR_IPV6_EXTENSIONS; i++) {
		if (!is_ipv6_extension(flow->protocol, i == 0))
			return WEIR_PARSE_TRANSPORT;
		if (flow->protocol != IPPROTO_FRAGMENT) {
			if (!parse_ip6_extension(cursor, flow))
				return WEIR_PARSE_MALFORMED;
			continue;
		}
		/* The kernel drops a second one, also behind an atomic
		 * fragment's (ipv6_frag_rcv()).
		 */
		if (had_fragment || !parse_ip6_fragment(cursor, flow))
			return WEIR_PARSE_MALFORMED;
		if (flow->fragment == WEIR_FRAGMENT_LATER)
			return WEIR_PARSE_LATER_FRAGMENT;
		had_fragment = true;
	}
	return is_ipv6_extension(flow->protocol, false) ? WEIR_PARSE_IPV6_CHAIN
							: WEIR_PARSE_TRANSPORT;
}

static __always_inline enum weir_parse parse_ip6(struct cursor *cursor,
						 struct flow *flow, bool usual)
{
	struct ipv6hdr *ip = cursor_take(cursor, sizeof(*ip));
	__u32 payload_len;

	if (!ip || ip->version != 6)
		return WEIR_PARSE_MALFORMED;
	payload_len = bpf_ntohs(ip->payload_len);
	/* BIG TCP, with a jumbo option: ipv6_gro_complete() */
	if (!payload_len && flow->merged)
		payload_len = flow->left - sizeof(*ip);
	if (sizeof(*ip) + payload_len > flow->left)
		return WEIR_PARSE_MALFORMED;
	flow->family = WEIR_FAMILY_IPV6;
	__builtin_memcpy(flow->source, &ip->saddr, sizeof(flow->source));
	__builtin_memcpy(flow->destination, &ip->daddr,
			 sizeof(flow->destination));
	flow->protocol = ip->nexthdr;
	flow->flowinfo = *(const __be32 *)ip & bpf_htonl(0x0fffffff);
	flow->ttl = ip->hop_limit;
	flow->ip_len = sizeof(*ip) + payload_len;
	flow->left = payload_len;
	if (DEFECT(IPV6_EXTENSIONS_IGNORED)) {
		flow->protocol = IPPROTO_UDP;
		return WEIR_PARSE_TRANSPORT;
	}
	if (is_ipv6_extension(ip->nexthdr, true))
		return usual ? WEIR_PARSE_UNUSUAL
			     : parse_ip6_chain(cursor, flow);
	return WEIR_PARSE_TRANSPORT;
}

#endif /* WEIR_PARSE_IP6_H */
