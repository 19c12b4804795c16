/* SPDX-License-Identifier: GPL-2.0-only */
/* One interface under the gate, and the addresses that are its host's. */
#ifndef WEIR_ABI_INTERFACE_H
#define WEIR_ABI_INTERFACE_H

#include <linux/types.h>

/* A bit for each port, by 64. */
#define WEIR_PORT_WORDS 1024

/* How many addresses of one family an interface may have under the gate. */
#define WEIR_LOCAL_ADDRESSES 1024

/* One interface under the gate. Written by the daemon, read per packet. */
struct weir_interface {
	__be16 mac[3];
	__u8 policy_off;  /* 1: count and pass everything */
	__u8 diverted;	  /* 1: something may take packets elsewhere: pass */
	__u32 generation; /* counts changes of the addresses */
	__u32 ifindex;
	/* 1: its driver has no NAPI, or one's below it: each packet that comes
	 * without is a poll. */
	__u32 no_polls;
	__u32 limited;	   /* 1: softirqs may not take more than that from... */
	__u32 input_share; /* ...processes, in parts of WEIR_SHARE_ONE */
	__u32 selective;   /* 1: heavy sources are shed before light ones */
	__u32 charges;	   /* 1 + its row of charges; 0: none */
	__u32 shadow;	   /* 1: decide and count, and pass everything */
	__u32 translated;  /* 1: conntrack is asked before a discard */
	__u16 forwards;	   /* 1: what needs but routing leaves at the driver */
	__u16 unfinished;  /* 1: unfinished.h: in a veth's driver */
	/* With XDP on skbs: longer IP packets are several, in one piece, that a
	 * local sender has not cut up. Else 0. */
	__u32 packet_max;
	__u16 vlans;	     /* 1: there are VLAN interfaces on top */
	__u16 routes_groups; /* 1: what is for multicast groups is diverted */
	/* Of the SYN cookies that the gate sends: its MTU, TTL and hop limit.
	 * 0: it sends none. */
	__u32 cookie_mtu;
	__u16 cookie_ttl;
	__u16 cookie_hops;
	/* What is written here is believed until then, CLOCK_MONOTONIC; 0: for
	 * ever. */
	__u64 fresh_until_ns;
};

/* What the kernel itself does with an interface's packets before IP sees them.
 */
struct weir_device {
	__u64 rx_handler;   /* address of the function that takes them; or 0 */
	__u64 dsa_ptr;	    /* of a switch that sends by this interface; or 0 */
	__u32 vlan_devices; /* VLAN interfaces on top, in any namespace */
	__u32 ifindex;	    /* of the interface that was looked at */
};

struct weir_ipv6_address {
	__u8 octets[16];
};

/* What an address in the gate's tables is to this host. */
enum weir_address_kind {
	WEIR_ADDRESS_NONE,
	WEIR_ADDRESS_LOCAL,
	WEIR_ADDRESS_BROADCAST,
	WEIR_ADDRESS_UNSURE,	 /* local, but not for every packet */
	WEIR_ADDRESS_OF_ANOTHER, /* another interface's, and local */
};

#endif /* WEIR_ABI_INTERFACE_H */
