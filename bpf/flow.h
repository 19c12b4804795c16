/* SPDX-License-Identifier: GPL-2.0-only */
/* What a packet's headers say, without copying them. */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#include "abi.h"
#include "cursor.h"
#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stdbool.h>

/* struct ethhdr is packed, and so would be read byte by byte. */
struct ethernet {
	__be16 destination[3];
	__be16 source[3];
	__be16 ethertype_be;
};

static __always_inline bool is_same_mac(const __be16 *one, const __be16 *other)
{
	return one[0] == other[0] && one[1] == other[1] && one[2] == other[2];
}

/* To several stations: broadcast is multicast to all. */
static __always_inline bool is_group_mac(const __be16 *mac)
{
	return mac[0] & bpf_htons(0x0100);
}

#define VLAN_ID_MASK 0xfff

struct vlan_tag {
	__be16 control_be;
	__be16 ethertype_be;
};

#define IPV4_OFFSET_MASK 0x1fff
#define IPV4_FRAGMENT_MASK 0x3fff /* the same, and more fragments */

/* A TCP header's flags: its octet 13. */
#define TCP_FLAGS_BYTE 13
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_NO_REQUEST (TCP_FIN | TCP_RST | TCP_ACK)

#define ICMPV6_ND_FIRST 133 /* router and neighbour, redirect */
#define ICMPV6_ND_LAST 137

/* Both of ICMP's and ICMPv6's headers begin so. */
struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum_be;
	__be32 rest_be;
};

/*
 * Copies, no pointers into the packet: so that what comes after the parser is
 * verified without regard to where the headers lay. Values that a later branch
 * depends on are 32 bits wide: of narrower ones on the stack, the verifier
 * forgets what they are.
 */
struct flow {
	__u32 source[4]; /* network order; IPv4: the first word */
	__u32 destination[4];
	__be16 source_port_be; /* UDP and TCP; else 0 */
	__be16 port_be;	       /* destination */
	__u32 family;	       /* enum weir_family */
	__u32 protocol;	       /* of the transport header */
	__u32 fragment;	       /* enum weir_fragment */
	__be32 fragment_id_be;
	/* Bytes of the frame from the cursor on, as far as the headers that
	 * have been parsed allow. */
	__u32 left;
	__u32 udp_len; /* header and payload; else 0 */
	__u32 ip_len;  /* of this packet: its IP header and what follows */
	/* What else chooses a route: IPv4's TOS; IPv6's traffic class and flow
	 * label, network order. */
	__u32 flowinfo;
	__u32 vlan_tags;
	__u32 vlan; /* the tags' VLANs, and priorities, one upon the other */
	/* Of several packets: may be too long for its header's field to say. */
	__u32 merged;
	__be16 mac[3];	     /* destination */
	__be16 ethertype_be; /* after the VLAN tags */
	__u8 routed;	     /* a source route may have to be followed */
	__u8 optional;	     /* has options for routers, such as their alert */
	__u8 tcp_flags;
	__u8 icmp_type;
	__u8 ttl; /* or hop limit */
};

static __always_inline void copy_address(__u32 *to, const __u32 *from)
{
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
}

#endif /* WEIR_FLOW_H */
