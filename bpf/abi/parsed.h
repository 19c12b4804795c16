/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parser makes of one packet. */
#ifndef WEIR_ABI_PARSED_H
#define WEIR_ABI_PARSED_H

#include <linux/types.h>

/* VLAN tags that the parser looks behind. */
#define WEIR_VLAN_TAGS 2

/* IPv6 extension headers that the parser looks behind, fragment included. */
#define WEIR_IPV6_EXTENSIONS 6

enum weir_family {
	WEIR_FAMILY_NONE,
	WEIR_FAMILY_IPV4,
	WEIR_FAMILY_IPV6,
};

enum weir_fragment {
	WEIR_FRAGMENT_NONE, /* whole, or an IPv6 atomic fragment (RFC 6946) */
	WEIR_FRAGMENT_FIRST,
	WEIR_FRAGMENT_LATER,
};

/* How far the parser got. */
enum weir_parse {
	WEIR_PARSE_UDP,
	WEIR_PARSE_TCP,
	WEIR_PARSE_ICMP,
	WEIR_PARSE_ICMPV6,
	WEIR_PARSE_IGMP,
	WEIR_PARSE_OTHER_PROTOCOL, /* IP, but none of the above */
	WEIR_PARSE_LATER_FRAGMENT, /* not the first: no transport header */
	WEIR_PARSE_IPV6_CHAIN,	   /* more extension headers than that */
	WEIR_PARSE_ARP,
	WEIR_PARSE_OTHER_ETHERTYPE,
	WEIR_PARSE_MALFORMED, /* cut short, or contradicts itself */
	/* Inside the kernel half only: the IP header is done;... */
	WEIR_PARSE_TRANSPORT,
	/* ...and this is not for the short way. */
	WEIR_PARSE_UNUSUAL,
};

/* What the parser made of one packet: for tests and for `weir explain`. */
struct weir_parsed {
	__u32 parse;	 /* enum weir_parse; if malformed, the rest is void */
	__u16 ethertype; /* after the VLAN tags */
	__u8 vlan_tags;
	__u8 family;   /* enum weir_family; if none, the rest is void */
	__u8 protocol; /* of the transport header */
	__u8 fragment; /* enum weir_fragment */
	/* IPv4: an option is LSRR or SSRR; IPv6: a routing header has segments
	 * left. */
	__u8 routed;
	__u8 tcp_flags;	   /* FIN 1, SYN 2, RST 4, PSH 8, ACK 16 ... */
	__u32 left;	   /* IP payload bytes from the transport header on */
	__u32 fragment_id; /* if a fragment; host order, as are the ports */
	__u16 source_port; /* UDP and TCP; else 0 */
	__u16 destination_port;
	__u16 udp_len; /* header and payload */
	__u8 icmp_type;
	__u8 pad;
	__u8 source[16]; /* IPv4: the first four bytes */
	__u8 destination[16];
};

/* What became of one packet: for `weir explain`. */
struct weir_explanation {
	struct weir_parsed parsed;
	__u32 reason;	      /* enum weir_reason */
	__u32 egress_ifindex; /* of a forwarded packet; else void */
};

#endif /* WEIR_ABI_PARSED_H */
