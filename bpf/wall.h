/* SPDX-License-Identifier: GPL-2.0-only */
/* What crosses the boundary between a wall and the screen that decides. */
#ifndef WEIR_WALL_H
#define WEIR_WALL_H

#include "abi/parsed.h"
#include <linux/types.h>

/* Longest frame that is held while its flow is judged. */
#define WEIR_WALL_HELD 2048
/* Rules, and the default, which is the last number in use. */
#define WEIR_WALL_RULES 1024

/* Ethertypes behind which Linux may find IP, and forward it by an interface on
 * top that no wall stands in front of, or by labels. */
#define WEIR_WALL_MPLS 0x8847
#define WEIR_WALL_MPLS_MULTICAST 0x8848
#define WEIR_WALL_PPPOE_SESSION 0x8864
#define WEIR_WALL_MACSEC 0x88e5
#define WEIR_WALL_BATMAN 0x4305
#define WEIR_WALL_HSR 0x892f

/* A flow in one direction; of a fragment, addresses and protocol alone. */
struct weir_wall_key {
	__u32 source[4]; /* network order; IPv4: the first word */
	__u32 destination[4];
	__be16 source_port_be;
	__be16 port_be;
	__u8 protocol;
	__u8 family; /* enum weir_family */
	__u8 fragment;
	__u8 icmp_type;
	/* Of a denial: rules may be about them, and what one denies of a flow
	 * says nothing about its other segments. */
	__u8 tcp_flags;
	__u8 side; /* where it comes in */
	__u8 pad[2];
};

/* What the screen has decided of a flow. */
struct weir_wall_entry {
	__u64 used_ns; /* CLOCK_MONOTONIC; of a denial, when it was decided */
	__u32 generation; /* of the rules; an older one is not believed */
	__u16 rule;
	__u8 tcp_flags; /* of the flow's first packet */
	__u8 state;
};

/* Its state: the flow's first packet came in at the second side;... */
#define WEIR_WALL_SECOND 1
/* ...a reply has passed. */
#define WEIR_WALL_ANSWERED 2

/* One of the two interfaces. Written by the screen, read per packet. */
struct weir_wall_side {
	/* Somebody has looked at what is on the way; CLOCK_MONOTONIC. */
	__u64 fresh_until_ns;
	__u32 ifindex;
	__be16 mac[3];
	__u16 forwards;	  /* 1: what needs but routing leaves at the driver */
	__u16 unfinished; /* 1: unfinished.h: a veth */
	__u16 pad;
};

/* A packet that asks, in front of what is held of it. */
struct weir_wall_record {
	struct weir_wall_key key;
	struct weir_parsed parsed;
	__u32 ifindex;
	__u32 held_len; /* 0: the packet is not held */
};

/* Packets that go on in one call; a CPU's backlog has room for so many
 * (net.core.netdev_max_backlog is 1,000 by default). */
#define WEIR_WALL_RELEASED 256

/* One of them: a frame that was held. */
struct weir_wall_held {
	__u32 len;
	__u32 released; /* 1: the interface has received it */
	__u8 frame[WEIR_WALL_HELD];
};

/*
 * What becomes of a packet at the wall. Each has exactly one, and those up to
 * OPEN pass. X(NAME, "name as printed", "description")
 */
#define WEIR_WALL_OUTCOMES(X)                                                 \
	X(ACCEPTED, "accepted", "of an accepted flow")                        \
	X(REPLY, "reply", "in answer to an accepted flow")                    \
	X(FORWARDED, "forwarded",                                             \
	  "of an accepted flow or in answer to one, and sent on in the "      \
	  "driver")                                                           \
	X(OWN, "own", "for the router itself, or for all on the link")        \
	X(ELSEWHERE, "elsewhere",                                             \
	  "for another host of the link, by its Ethernet address")            \
	X(OPEN, "open", "passed because the screen did not answer")           \
	X(ASKED, "asked", "held while the screen judged the flow")            \
	X(NOT_HELD, "not-held",                                               \
	  "judged by the screen and dropped: too long to be held, or tagged") \
	X(DENIED, "denied", "of a denied flow")                               \
	X(NO_ROOM, "no-room",                                                 \
	  "dropped because too many packets waited for the screen")           \
	X(UNCLEAR, "unclear",                                                 \
	  "dropped because malformed, source-routed, or wrapped in MPLS, "    \
	  "PPPoE, MACsec, batman-adv or HSR")

#define WEIR_WALL_ENUM(name, text, description) WEIR_WALL_##name,
enum weir_wall_outcome {
	WEIR_WALL_OUTCOMES(WEIR_WALL_ENUM) WEIR_WALL_OUTCOME_COUNT
};
#undef WEIR_WALL_ENUM

#endif /* WEIR_WALL_H */
