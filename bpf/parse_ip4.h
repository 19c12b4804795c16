/* SPDX-License-Identifier: GPL-2.0-only */
/* IPv4: header, options, fragments. */
#ifndef WEIR_PARSE_IP4_H
#define WEIR_PARSE_IP4_H

#include "defect.h"
#include "flow.h"

#define IPV4_MIN_IHL 5
#define IPV4_OPTIONS_MAX 40
#define IPV4_OPTIONS_MASK 0x3f
#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_OFFSET_MASK 0x1fff
#define IPV4_OPTION_LSRR 131 /* loose source and record route */
#define IPV4_OPTION_SSRR 137 /* strict */

/*
 * Might a source route ask for this packet to go on elsewhere? Any byte that
 * could be such an option's type says so: to find where the options begin would
 * take the verifier a walk through all ways to arrange them.
 */
static __always_inline bool may_have_source_route(const __u8 *options,
						  __u32 len, const void *end)
{
	__u32 i;

	for (i = 0; i < IPV4_OPTIONS_MAX; i++) {
		const __u8 *option = options + i;

		if (i >= len || (void *)(option + 1) > end)
			break;
		if (*option == IPV4_OPTION_LSRR || *option == IPV4_OPTION_SSRR)
			return true;
	}
	return false;
}

static __always_inline bool parse_ip4_options(struct cursor *cursor,
					      struct flow *flow, __u32 len)
{
	const __u8 *options = cursor->pos;

	if (!cursor_skip(cursor, len, IPV4_OPTIONS_MASK))
		return false;
	flow->routed = may_have_source_route(options, len, cursor->end);
	return true;
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
	if (total_len < header_len || total_len > flow->left)
		return WEIR_PARSE_MALFORMED;
	if (usual &&
	    (ip->ihl > IPV4_MIN_IHL ||
	     ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_OFFSET_MASK)))
		return WEIR_PARSE_UNUSUAL;
	if (ip->ihl > IPV4_MIN_IHL && !DEFECT(IPV4_OPTIONS_IGNORED) &&
	    !parse_ip4_options(cursor, flow, header_len - sizeof(*ip)))
		return WEIR_PARSE_MALFORMED;
	flow->family = WEIR_FAMILY_IPV4;
	flow->source[0] = ip->saddr;
	flow->destination[0] = ip->daddr;
	flow->protocol = ip->protocol;
	flow->ip_len = total_len;
	flow->left = total_len - header_len;
	if (ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_OFFSET_MASK))
		parse_ip4_fragment(flow, ip);
	return flow->fragment == WEIR_FRAGMENT_LATER ? WEIR_PARSE_LATER_FRAGMENT
						     : WEIR_PARSE_TRANSPORT;
}

#endif /* WEIR_PARSE_IP4_H */
