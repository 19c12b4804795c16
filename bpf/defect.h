/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Seeded defects: each breaks one rule of the gate, so that the tests can show
 * that they would notice (docs/testing.md). Only the tests' own copy of the
 * gate is built with WEIR_DEFECTS; in the shipped one DEFECT() is 0.
 */
#ifndef WEIR_DEFECT_H
#define WEIR_DEFECT_H

#include <linux/types.h>

/* X(NAME, "the rule that it breaks") */
#define WEIR_DEFECT_LIST(X)                                                    \
	X(MAC_UNCHECKED, "frames for other hosts' MAC addresses pass")         \
	X(ADDRESS_UNCHECKED, "packets for other hosts' IP addresses pass")     \
	X(IPV4_OPTIONS_IGNORED, "the ports lie behind IPv4's options")         \
	X(IPV6_EXTENSIONS_IGNORED, "the ports lie behind IPv6's extensions")   \
	X(SOURCE_ROUTE_IGNORED, "source-routed packets pass")                  \
	X(VLAN_IGNORED, "tagged frames pass")                                  \
	X(FRAGMENT_EARLY_DISCARDED, "a tail that overtook its head passes")    \
	X(FRAGMENT_HEAD_AFTER_TAIL, "a head passes if its tail did")           \
	X(FRAGMENT_TAIL_DISCARDED, "a tail follows its admitted head")         \
	X(PEER_IGNORED, "a connected socket's state is its peer's only")       \
	X(PORT_SHARED_IGNORED,                                                 \
	  "one of several sockets says nothing of others")                     \
	X(GROUP_PROGRAM_IGNORED, "a reuseport program may pick any socket")    \
	X(MULTICAST_FIRST_FULL, "every receiver of a group must be full")      \
	X(ENCAP_IGNORED, "kernel receivers get their packets")                 \
	X(EMPTY_QUEUE_FULL, "an empty queue takes a packet of any size")       \
	X(QUEUE_HALVED, "the queue's limit is the kernel's")                   \
	X(SHORT_PACKET_JUDGED, "a shorter packet may fit")                     \
	X(TRUESIZE_GUESSED, "a packet's charge is learned, not guessed")       \
	X(FULL_FOREVER, "a full queue that drains is seen")                    \
	X(BACKLOG_AT_LIMIT, "an accept queue may be over its limit by one")    \
	X(SEGMENT_AS_SYN, "only SYNs are discarded")                           \
	X(SYN_OF_CONNECTION, "a SYN of a known connection passes")             \
	X(DIVERTED_IGNORED, "what may be diverted passes")                     \
	X(TRANSLATION_IGNORED, "what NAT sends elsewhere passes")              \
	X(FAMILY_IGNORED, "IPv4 and IPv6 sockets of one port are two")         \
	X(ADDRESS_FORGOTTEN, "so are those of two local addresses")            \
	X(ROOM_RESERVED, "room is taken by packets that came, not in advance") \
	X(ALONE_FOREVER, "a socket that joins another on its port is seen")    \
	X(PLACE_IS_ENOUGH, "a socket in the place of a closed one is another") \
	X(FRAGMENT_EXPECTED, "a fragment alone takes no room")                 \
	X(FILTER_EXPECTED, "nor does what a filter drops")                     \
	X(SENDERS_IGNORED, "nor what comes from others than a member chose")   \
	X(PORT_FORGOTTEN, "so are those of two ports")                         \
	X(SYN_ACK_AS_SYN, "an answer to nobody's SYN is answered")             \
	X(GROUPS_ARE_ONE, "one group's member may not be another's")           \
	X(GROUP_FIRST_FULL, "a program may pick any socket, not the first")    \
	X(CHARGE_OF_ANY_LENGTH, "what longer ones are charged says nothing")   \
	X(FLIGHT_BELIEVED, "what does not arrive takes no room")               \
	X(FLIGHT_UNBOUNDED, "nor is more on its way than GRO keeps back")      \
	X(GROUP_ALWAYS_ALONE, "a full group says nothing of sockets beside "   \
			      "it")                                            \
	X(LARGE_GROUP_FULL, "of a large group not all sockets are looked at")  \
	X(BUCKET_CUT_SHORT, "nor of a port with many")                         \
	X(BOUND_ADDRESS_IGNORED, "a socket of one address that joins another " \
				 "of any is seen")                             \
	X(TO_MANY_AS_ONE, "a broadcast is for every socket on its port")       \
	X(NETWORK_IS_ONE, "two IPv6 addresses of one network are two")         \
	X(NO_SOCKET_DISCARDED, "where nobody listens, the sender is told")     \
	X(MERGED_EXPECTED, "what is merged is charged less than its packets")  \
	X(LENT_TO_ANY_LENGTH, "so is what is shorter than those before it")    \
	X(DATAGRAM_ID_FORGOTTEN, "two datagrams from one host are two")        \
	X(DATAGRAM_SOURCE_FORGOTTEN, "so are those from two hosts")            \
	X(DATAGRAM_PROTOCOL_FORGOTTEN, "so are those of two protocols")

#define WEIR_DEFECT_ENUM(name, rule) WEIR_DEFECT_##name,
enum weir_defect {
	WEIR_DEFECT_NO_DEFECT,
	WEIR_DEFECT_LIST(WEIR_DEFECT_ENUM) WEIR_DEFECT_COUNT
};
#undef WEIR_DEFECT_ENUM

#ifdef WEIR_DEFECTS
const volatile __u32 seeded_defect;
#define DEFECT(name) (seeded_defect == WEIR_DEFECT_##name)
#else
#define DEFECT(name) 0
#endif

#endif /* WEIR_DEFECT_H */
