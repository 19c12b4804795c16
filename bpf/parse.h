/* SPDX-License-Identifier: GPL-2.0-only */
/* From bytes to a flow: Ethernet, IPv4 or IPv6, UDP. */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include "cursor.h"
#include "verdict.h"
#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>

#define IPV4_MIN_IHL 5
#define IPV4_OPTIONS_LEN_MASK 0x3f /* 40 bytes at most */
#define IPV4_FRAGMENT_MASK 0x3fff  /* more-fragments flag and offset */

enum parse_result {
	PARSE_UDP4,
	PARSE_UDP6,
	PARSE_STOP, /* nothing to demultiplex: the reason says why */
};

struct flow {
	const __u8 *mac_destination;
	union {
		struct iphdr *ip4;
		struct ipv6hdr *ip6;
	};
	struct udphdr *udp;
	__u32 udp_len; /* as the UDP header gives it, header included */
	enum weir_reason reason;
};

static __always_inline enum parse_result parse_stop(struct flow *flow,
						    enum weir_reason reason)
{
	flow->reason = reason;
	return PARSE_STOP;
}

/*
 * The UDP header. A datagram that is longer than its IP packet or its frame is
 * dropped by the kernel on the way to the socket (udp4_csum_init() and before).
 */
static __always_inline bool parse_udp(struct cursor *cursor, struct flow *flow,
				      __u32 ip_payload_len, __u32 frame_left)
{
	flow->udp = cursor_take(cursor, sizeof(*flow->udp));
	if (!flow->udp)
		return false;
	flow->udp_len = bpf_ntohs(flow->udp->len);
	return flow->udp_len >= sizeof(*flow->udp) &&
	       flow->udp_len <= ip_payload_len && ip_payload_len <= frame_left;
}

static __always_inline enum parse_result
parse_udp4(struct cursor *cursor, struct flow *flow, __u32 frame_len)
{
	struct iphdr *ip = cursor_take(cursor, sizeof(*ip));
	__u32 header_len;

	if (!ip || ip->version != 4 || ip->ihl < IPV4_MIN_IHL)
		return parse_stop(flow, WEIR_REASON_MALFORMED);
	if (ip->frag_off & bpf_htons(IPV4_FRAGMENT_MASK))
		return parse_stop(flow, WEIR_REASON_FRAGMENT);
	if (ip->protocol != IPPROTO_UDP)
		return parse_stop(flow, WEIR_REASON_NOT_UDP);
	if (!cursor_skip(cursor, (ip->ihl - IPV4_MIN_IHL) * 4,
			 IPV4_OPTIONS_LEN_MASK))
		return parse_stop(flow, WEIR_REASON_MALFORMED);
	flow->ip4 = ip;
	header_len = ip->ihl * 4;
	if (bpf_ntohs(ip->tot_len) < header_len ||
	    !parse_udp(cursor, flow, bpf_ntohs(ip->tot_len) - header_len,
		       frame_len - ETH_HLEN - header_len))
		return parse_stop(flow, WEIR_REASON_MALFORMED);
	return PARSE_UDP4;
}

static __always_inline bool is_ipv6_extension(__u8 next_header)
{
	switch (next_header) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
	case IPPROTO_MH:
		return true;
	default:
		return false;
	}
}

static __always_inline enum parse_result
parse_udp6(struct cursor *cursor, struct flow *flow, __u32 frame_len)
{
	struct ipv6hdr *ip = cursor_take(cursor, sizeof(*ip));

	if (!ip || ip->version != 6)
		return parse_stop(flow, WEIR_REASON_MALFORMED);
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return parse_stop(flow, WEIR_REASON_FRAGMENT);
	if (is_ipv6_extension(ip->nexthdr))
		return parse_stop(flow, WEIR_REASON_IPV6_EXTENSION);
	if (ip->nexthdr != IPPROTO_UDP)
		return parse_stop(flow, WEIR_REASON_NOT_UDP);
	flow->ip6 = ip;
	if (!parse_udp(cursor, flow, bpf_ntohs(ip->payload_len),
		       frame_len - ETH_HLEN - sizeof(*ip)))
		return parse_stop(flow, WEIR_REASON_MALFORMED);
	return PARSE_UDP6;
}

/* frame_len counts all buffers of the frame; the cursor is over the first. */
static __always_inline enum parse_result
parse(struct cursor *cursor, struct flow *flow, __u32 frame_len)
{
	struct ethhdr *eth = cursor_take(cursor, sizeof(*eth));

	if (!eth)
		return parse_stop(flow, WEIR_REASON_MALFORMED);
	flow->mac_destination = eth->h_dest;
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		return parse_udp4(cursor, flow, frame_len);
	case bpf_htons(ETH_P_IPV6):
		return parse_udp6(cursor, flow, frame_len);
	case bpf_htons(ETH_P_8021Q):
	case bpf_htons(ETH_P_8021AD):
		return parse_stop(flow, WEIR_REASON_VLAN);
	default:
		return parse_stop(flow, WEIR_REASON_NOT_IP);
	}
}

#endif /* WEIR_PARSE_H */
