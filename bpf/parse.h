/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From bytes to a flow: Ethernet (link.h), VLAN tags, then IPv4 (parse_ip4.h),
 * IPv6 (parse_ip6.h) and the transport header (parse_transport.h).
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include "flow.h"
#include "link.h"
#include "parse_ip4.h"
#include "parse_ip6.h"
#include "parse_transport.h"

static __always_inline enum weir_parse
parse_transport(struct cursor *cursor, struct flow *flow, bool usual)
{
	switch (flow->protocol) {
	case IPPROTO_UDP:
		return parse_udp(cursor, flow, usual);
	case IPPROTO_TCP:
		return parse_tcp(cursor, flow);
	case IPPROTO_ICMP:
		/* A protocol of one family in the other means nothing. */
		if (flow->family == WEIR_FAMILY_IPV4)
			return parse_icmp(cursor, flow, WEIR_PARSE_ICMP);
		return WEIR_PARSE_OTHER_PROTOCOL;
	case IPPROTO_ICMPV6:
		if (flow->family == WEIR_FAMILY_IPV6)
			return parse_icmp(cursor, flow, WEIR_PARSE_ICMPV6);
		return WEIR_PARSE_OTHER_PROTOCOL;
	case IPPROTO_IGMP:
		if (flow->family == WEIR_FAMILY_IPV4)
			return WEIR_PARSE_IGMP;
		return WEIR_PARSE_OTHER_PROTOCOL;
	default:
		return WEIR_PARSE_OTHER_PROTOCOL;
	}
}

static __always_inline bool is_vlan(__be16 ethertype_be)
{
	return ethertype_be == bpf_htons(ETH_P_8021Q) ||
	       ethertype_be == bpf_htons(ETH_P_8021AD);
}

/* Up to two tags; a third one is left as the ethertype. */
static __always_inline bool parse_vlan_tags(struct cursor *cursor,
					    struct flow *flow)
{
	int i;

#pragma unroll
	for (i = 0; i < WEIR_VLAN_TAGS && is_vlan(flow->ethertype_be); i++) {
		struct vlan_tag *tag = cursor_take(cursor, sizeof(*tag));

		if (!tag)
			return false;
		flow->vlan_tags++;
		flow->vlan |= bpf_ntohs(tag->control_be);
		flow->ethertype_be = tag->ethertype_be;
	}
	return true;
}

/*
 * frame_len counts all buffers of the frame; the cursor is over the first. The
 * usual packet is IP without VLAN tags, options, extensions or fragments: of
 * anything else, the short way says no more than that it is not for it.
 */
static __always_inline enum weir_parse parse_frame(struct cursor *cursor,
						   struct flow *flow,
						   __u32 frame_len, bool usual)
{
	const struct ethernet *eth = cursor->pos;
	enum weir_parse network;

	if (!take_link(cursor, &flow->ethertype_be))
		return WEIR_PARSE_MALFORMED;
	if (!no_ethernet) {
		flow->mac[0] = eth->destination[0];
		flow->mac[1] = eth->destination[1];
		flow->mac[2] = eth->destination[2];
	}
	if (!usual && is_vlan(flow->ethertype_be) &&
	    !parse_vlan_tags(cursor, flow))
		return WEIR_PARSE_MALFORMED;
	flow->left = frame_len - LINK_HEADER_LEN -
		     flow->vlan_tags * sizeof(struct vlan_tag);
	switch (flow->ethertype_be) {
	case bpf_htons(ETH_P_IP):
		network = parse_ip4(cursor, flow, usual);
		break;
	case bpf_htons(ETH_P_IPV6):
		network = parse_ip6(cursor, flow, usual);
		break;
	case bpf_htons(ETH_P_ARP):
		return WEIR_PARSE_ARP;
	default:
		return WEIR_PARSE_OTHER_ETHERTYPE;
	}
	if (network != WEIR_PARSE_TRANSPORT)
		return network;
	return parse_transport(cursor, flow, usual);
}

static __always_inline enum weir_parse parse(struct cursor *cursor,
					     struct flow *flow, __u32 frame_len)
{
	return parse_frame(cursor, flow, frame_len, false);
}

static __always_inline enum weir_parse
parse_usual(struct cursor *cursor, struct flow *flow, __u32 frame_len)
{
	return parse_frame(cursor, flow, frame_len, true);
}

#endif /* WEIR_PARSE_H */
