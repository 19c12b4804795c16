/* SPDX-License-Identifier: GPL-2.0-only */
/* IPv4: header, options, fragments. */
#ifndef WEIR_PARSE_IP4_H
#define WEIR_PARSE_IP4_H

#include "defect.h"
#include "flow.h"

#define IPV4_MIN_IHL 5
#define IPV4_OPTIONS_MAX 40
#define IPV4_OPTIONS_MASK 0x3f
#define IPV4_OPTION_END 0
#define IPV4_OPTION_NOOP 1
#define IPV4_OPTION_LSRR 131 /* loose source and record route */
#define IPV4_OPTION_SSRR 137 /* strict */

/* Behind the last one there are zeros. */
struct ip4_options {
	__u32 words[IPV4_OPTIONS_MAX / 4 + 1];
};

enum ip4_options_say {
	IPV4_OPTIONS_NOTHING,
	IPV4_OPTIONS_ROUTE,
	IPV4_OPTIONS_BROKEN, /* one contradicts itself: the kernel drops it */
};

/*
 * RFC 791, as __ip_options_compile() reads them. A global function over a copy,
 * which the verifier looks at once: else it would follow all ways to arrange
 * them.
 */
__noinline int ip4_options_say(const struct ip4_options *options, __u32 len)
{
	const __u8 *bytes = (const __u8 *)options;
	int say = IPV4_OPTIONS_NOTHING, i;
	__u64 at = 0;

	if (!options)
		return IPV4_OPTIONS_BROKEN;
	for (i = 0; i <= IPV4_OPTIONS_MAX; i++) {
		barrier_var(at);
		if (at >= IPV4_OPTIONS_MAX || bytes[at] == IPV4_OPTION_END)
			return at > len ? IPV4_OPTIONS_BROKEN : say;
		if (bytes[at] == IPV4_OPTION_NOOP) {
			at++;
			continue;
		}
		if (bytes[at] == IPV4_OPTION_LSRR ||
		    bytes[at] == IPV4_OPTION_SSRR)
			say = IPV4_OPTIONS_ROUTE;
		if (bytes[at + 1] == 1)
			return IPV4_OPTIONS_BROKEN;
		at += bytes[at + 1];
	}
	/* There are no more octets than turns: one without a length. */
	return IPV4_OPTIONS_BROKEN;
}

static __always_inline bool parse_ip4_options(struct cursor *cursor,
					      struct flow *flow, __u32 len)
{
	const __u32 *words = cursor->pos;
	struct ip4_options options = {};
	__u32 i;
	int say;

	if (!cursor_skip(cursor, len, IPV4_OPTIONS_MASK))
		return false;
	for (i = 0; i < IPV4_OPTIONS_MAX / 4; i++) {
		if (i * 4 >= len || (void *)(words + i + 1) > cursor->end)
			break;
		options.words[i] = words[i];
	}
	say = ip4_options_say(&options, len);
	flow->routed = say == IPV4_OPTIONS_ROUTE;
	flow->optional = 1;
	return say != IPV4_OPTIONS_BROKEN;
}

static __always_inline void parse_ip4_fragment(struct flow *flow,
					       const struct iphdr *ip)
{
	flow->fragment = ip->frag_off & bpf_htons(IPV4_OFFSET_MASK)
				 ? WEIR_FRAGMENT_LATER
				 : WEIR_FRAGMENT_FIRST;
	flow->fragment_id_be = ip->id;
}

static __always_inline enum weir_parse parse_ip4(struct cursor *cursor,
						 struct flow *flow, bool usual)
{
	struct iphdr *ip = cursor_take(cursor, sizeof(*ip));
	__u32 header_len, total_len;

	if (!ip || ip->version != 4 || ip->ihl < IPV4_MIN_IHL)
		return WEIR_PARSE_MALFORMED;
	header_len = ip->ihl * 4;
	total_len = bpf_ntohs(ip->tot_len);
	/* BIG TCP: iph_totlen() */
	if (!total_len && flow->merged)
		total_len = flow->left;
	if (total_len < header_len || total_len > flow->left)
		return WEIR_PARSE_MALFORMED;
	if (usual && (ip->ihl > IPV4_MIN_IHL ||
		      ip->frag_off & bpf_htons(IPV4_FRAGMENT_MASK)))
		return WEIR_PARSE_UNUSUAL;
	if (ip->ihl > IPV4_MIN_IHL && !DEFECT(IPV4_OPTIONS_IGNORED) &&
	    !parse_ip4_options(cursor, flow, header_len - sizeof(*ip)))
		return WEIR_PARSE_MALFORMED;
	flow->family = WEIR_FAMILY_IPV4;
	flow->source[0] = ip->saddr;
	flow->destination[0] = ip->daddr;
	flow->protocol = ip->protocol;
	flow->flowinfo = ip->tos;
	flow->ttl = ip->ttl;
	flow->ip_len = total_len;
	flow->left = total_len - header_len;
	if (ip->frag_off & bpf_htons(IPV4_FRAGMENT_MASK))
		parse_ip4_fragment(flow, ip);
	return flow->fragment == WEIR_FRAGMENT_LATER ? WEIR_PARSE_LATER_FRAGMENT
						     : WEIR_PARSE_TRANSPORT;
}

#endif /* WEIR_PARSE_IP4_H */
