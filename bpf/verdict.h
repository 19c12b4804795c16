/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every verdict, kind of channel and reason, declared once.
 *
 * The gate's counters are indexed by reason, each reason belongs to one
 * verdict and one kind of channel, each kind has one bound, and build.rs
 * expands the same lists into the Rust enums, so that the command line, the
 * metrics and the docs cannot disagree with the gate.
 */
#ifndef WEIR_VERDICT_H
#define WEIR_VERDICT_H

/* X(NAME, "name as printed", "description") */
#define WEIR_VERDICTS(X)                                              \
	X(PASS, "pass",                                               \
	  "handed to the kernel, or answered or sent on at the gate") \
	X(DISCARD, "discard", "dropped at the gate, before IP")       \
	X(DELIVER, "deliver", "put on a lazy socket's ring, past the kernel")

/*
 * What bounds a channel's packets besides its share of a saturated CPU.
 * X(NAME, "name as printed", "description")
 */
#define WEIR_BOUNDS(X)                                                        \
	X(QUEUE, "queue", "a receiver's queue: past that they are discarded") \
	X(NOTHING, "nothing", "nothing: nobody waits for them")               \
	X(CONTROL, "control",                                                 \
	  "a share of their own: they keep the network together")             \
	X(UNKNOWN, "unknown", "nobody knows what they are")

/*
 * Channels of a kind that is addressed have an address of their own, and are
 * counted one by one; of another kind there is one channel. First those that
 * have a share, for Y.
 * X(NAME, BOUND, 1 if addressed, "name as printed", "description")
 */
#define WEIR_KINDS_WITH_SHARE(Y, X)                                           \
	Y(X, UDP, QUEUE, 1, "udp", "a UDP socket, by local address and port") \
	Y(X, MULTICAST, QUEUE, 1, "multicast",                                \
	  "the UDP sockets that share a multicast or broadcast address and "  \
	  "port")                                                             \
	Y(X, TCP, QUEUE, 1, "tcp", "a TCP listener and its connections")      \
	Y(X, TCP_REQUEST, NOTHING, 1, "tcp-request",                          \
	  "requests to connect to a TCP listener whose queue of them is "     \
	  "full, so that the kernel answers by SYN cookie or not at all")     \
	Y(X, TCP_STRAY, NOTHING, 1, "tcp-stray",                              \
	  "segments to a TCP listener that belong to no connection")          \
	Y(X, TCP_CLIENT, QUEUE, 0, "tcp-client",                              \
	  "TCP connections that this host opened")                            \
	Y(X, TCP_PEER, QUEUE, 1, "tcp-peer",                                  \
	  "TCP connections that this host opened to a protected port, by "    \
	  "local address and the peer's port")                                \
	Y(X, CLOSED, NOTHING, 0, "closed", "ports that no socket receives")   \
	Y(X, ICMP, NOTHING, 0, "icmp",                                        \
	  "ICMP and ICMPv6 but for errors and neighbour discovery, and what " \
	  "pretends to be of neighbours or groups and comes from elsewhere")  \
	Y(X, ICMP_ERROR, NOTHING, 0, "icmp-error",                            \
	  "ICMP and ICMPv6 errors: fragmentation needed, unreachable, ...")   \
	Y(X, NEIGHBOUR, CONTROL, 0, "neighbour",                              \
	  "ARP and IPv6 neighbour discovery")                                 \
	Y(X, GROUP, CONTROL, 0, "group",                                      \
	  "IGMP and MLD: multicast group membership")                         \
	Y(X, FRAGMENT, QUEUE, 0, "fragment", "IP fragments after the first")  \
	Y(X, FORWARD, QUEUE, 1, "forward",                                    \
	  "packets routed on, by egress interface")                           \
	Y(X, MALFORMED, NOTHING, 0, "malformed",                              \
	  "packets that contradict themselves")

#define WEIR_KINDS(X)                                           \
	WEIR_KINDS_WITH_SHARE(WEIR_KIND_ITSELF, X)              \
	X(ASLEEP, UNKNOWN, 0, "asleep",                         \
	  "packets that came while nothing was wrong")          \
	X(TAP, UNKNOWN, 0, "tap",                               \
	  "frames for other hosts, on a promiscuous interface") \
	X(OTHER, UNKNOWN, 0, "other",                           \
	  "everything that the gate cannot or must not name")
#define WEIR_KIND_ITSELF(X, ...) X(__VA_ARGS__)

/*
 * The CPU is saturated, and the channel has had its share of it: one for each
 * kind that has a share.
 */
#define WEIR_SHARE_REASONS(X) WEIR_KINDS_WITH_SHARE(WEIR_SHARE_REASON, X)
#define WEIR_SHARE_REASON(X, kind, bound, addressed, text, description) \
	X(kind##_SHARE, DISCARD, kind, text "-share",                   \
	  "the CPU is saturated, and this channel is over its share of it")

/* X(NAME, VERDICT, KIND, "name as printed", "description") */
#define WEIR_REASONS(X)                                                        \
	X(UDP_ROOM, PASS, UDP, "udp-room",                                     \
	  "the destination UDP socket's receive queue has room")               \
	X(UDP_FULL, DISCARD, UDP, "udp-full",                                  \
	  "the destination UDP socket's receive queue is full, so the kernel " \
	  "would drop the packet")                                             \
	X(UDP_SOURCE, DISCARD, UDP, "udp-source",                              \
	  "the destination UDP socket's receive queue is nearly full, and "    \
	  "what room is left is kept for sources that send less")              \
	X(UDP_ENCAP, PASS, UDP, "udp-encap",                                   \
	  "the socket has a receiver inside the kernel (VXLAN, WireGuard, "    \
	  "...)")                                                              \
	X(UDP_NO_SOCKET, PASS, CLOSED, "udp-no-socket",                        \
	  "no UDP socket receives this address and port")                      \
	X(LAZY, DELIVER, UDP, "lazy",                                          \
	  "the destination is a lazy socket, whose ring has room")             \
	X(LAZY_FULL, DISCARD, UDP, "lazy-full",                                \
	  "the destination is a lazy socket, whose ring is full")              \
	X(MULTICAST_ROOM, PASS, MULTICAST, "multicast-room",                   \
	  "one of the group's or broadcast's UDP sockets may have room")       \
	X(MULTICAST_FULL, DISCARD, MULTICAST, "multicast-full",                \
	  "the queues of all UDP sockets on the group's or broadcast's port "  \
	  "are full")                                                          \
	X(TCP_SYN, PASS, TCP, "tcp-syn",                                       \
	  "a connection request that the listener may take")                   \
	X(TCP_BACKLOG_FULL, DISCARD, TCP, "tcp-backlog-full",                  \
	  "a connection request to a listener whose accept queue is over its " \
	  "limit, so the kernel would drop it")                                \
	X(TCP_REQUEST, PASS, TCP_REQUEST, "tcp-request",                       \
	  "a connection request to a listener whose queue of requests is "     \
	  "full: the kernel answers by SYN cookie, or not at all")             \
	X(TCP_COOKIE, PASS, TCP_REQUEST, "tcp-cookie",                         \
	  "the same, while the CPU is short: answered at the gate by the "     \
	  "kernel's SYN cookie")                                               \
	X(TCP_SEGMENT, PASS, TCP, "tcp-segment",                               \
	  "to a listener's connection, or of a handshake: it may free "        \
	  "something")                                                         \
	X(TCP_STRAY, PASS, TCP_STRAY, "tcp-stray",                             \
	  "to a listener's port, but of no connection, nor a request: a SYN "  \
	  "cookie's answer, or nobody's")                                      \
	X(TCP_CLIENT, PASS, TCP_CLIENT, "tcp-client",                          \
	  "to a connection that this host opened")                             \
	X(TCP_PEER, PASS, TCP_PEER, "tcp-peer",                                \
	  "to a connection that this host opened to a protected port")         \
	X(TCP_NO_SOCKET, PASS, CLOSED, "tcp-no-socket",                        \
	  "no TCP socket receives this address and port")                      \
	X(ICMP, PASS, ICMP, "icmp", "ICMP or ICMPv6, but no error")            \
	X(ICMP_ERROR, PASS, ICMP_ERROR, "icmp-error",                          \
	  "an ICMP or ICMPv6 error")                                           \
	X(NEIGHBOUR, PASS, NEIGHBOUR, "neighbour",                             \
	  "ARP or IPv6 neighbour discovery")                                   \
	X(GROUP, PASS, GROUP, "group", "IGMP or MLD")                          \
	X(FRAGMENT, PASS, FRAGMENT, "fragment",                                \
	  "a later fragment of a datagram whose first fragment passed")        \
	X(FRAGMENT_EARLY, PASS, FRAGMENT, "fragment-early",                    \
	  "a later fragment whose first fragment has not been seen")           \
	X(FRAGMENT_DISCARDED, DISCARD, FRAGMENT, "fragment-discarded",         \
	  "a later fragment of a datagram whose first fragment was discarded") \
	X(FORWARD, PASS, FORWARD, "forward",                                   \
	  "to another host, by way of another interface")                      \
	X(FORWARDED, PASS, FORWARD, "forwarded",                               \
	  "to another host, and sent by the driver at once "                   \
	  "(`--forward xdp`)")                                                 \
	X(FORWARD_FULL, DISCARD, FORWARD, "forward-full",                      \
	  "to another host, by way of a queue that is full, so the kernel "    \
	  "would drop the packet: a user-mode screen's (NFQUEUE), or the "     \
	  "egress interface's")                                                \
	X(NO_ROUTE, PASS, OTHER, "no-route",                                   \
	  "the destination IP address is not known as this host's own, and "   \
	  "is not forwarded")                                                  \
	X(OTHER_MAC, PASS, TAP, "other-mac",                                   \
	  "the destination MAC address is not this interface's own")           \
	X(SOURCE_ROUTED, PASS, OTHER, "source-routed",                         \
	  "a source route or routing header may send the packet elsewhere")    \
	X(VLAN, PASS, OTHER, "vlan",                                           \
	  "the frame carries a VLAN tag: another device may take it")          \
	X(IPV6_CHAIN, PASS, OTHER, "ipv6-chain",                               \
	  "more IPv6 extension headers than the gate looks behind")            \
	X(OTHER_PROTOCOL, PASS, OTHER, "other-protocol",                       \
	  "IP, but neither UDP, TCP, ICMP nor IGMP")                           \
	X(OTHER_ETHERTYPE, PASS, OTHER, "other-ethertype",                     \
	  "neither IP nor ARP (LLDP, PPPoE, ...)")                             \
	X(MALFORMED, PASS, MALFORMED, "malformed",                             \
	  "a header is cut short or contradicts itself")                       \
	X(DIVERTED, PASS, OTHER, "diverted",                                   \
	  "NAT, a redirect, multicast routing, a program that chooses "        \
	  "sockets, or the like may take the packet elsewhere: `weir status` " \
	  "names it")                                                          \
	X(TRANSLATED, PASS, OTHER, "translated",                               \
	  "NAT sends its connection elsewhere, or may: it would have been "    \
	  "discarded by its own address")                                      \
	X(STALE, PASS, OTHER, "stale",                                         \
	  "weir has not looked for a while at whose packets these are: it is " \
	  "stopped, or hangs")                                                 \
	X(ASLEEP, PASS, ASLEEP, "asleep",                                      \
	  "nothing is wrong, and the gate looks at nothing")                   \
	X(INTERNAL, PASS, OTHER, "internal",                                   \
	  "the gate did not reach a table of its own: please report it")       \
	X(POLICY_OFF, PASS, OTHER, "policy-off",                               \
	  "the gate is attached with its policy switched off")                 \
	X(CPU_SHARE, DISCARD, OTHER, "cpu-share",                              \
	  "receive softirqs have taken input's share of this CPU from "        \
	  "processes in this period")                                          \
	WEIR_SHARE_REASONS(X)

/*
 * What a packet's reason is if the queue that it is for has no room. Whatever
 * is not here has no queue, or none that can be looked at. X(PASS, DISCARD)
 */
#define WEIR_FULL_REASONS(X)              \
	X(UDP_ROOM, UDP_FULL)             \
	X(MULTICAST_ROOM, MULTICAST_FULL) \
	X(TCP_SYN, TCP_BACKLOG_FULL)      \
	X(FORWARD, FORWARD_FULL)

#define WEIR_VERDICT_ENUM(name, text, description) WEIR_VERDICT_##name,
enum weir_verdict { WEIR_VERDICTS(WEIR_VERDICT_ENUM) WEIR_VERDICT_COUNT };
#undef WEIR_VERDICT_ENUM

#define WEIR_BOUND_ENUM(name, text, description) WEIR_BOUND_##name,
enum weir_bound { WEIR_BOUNDS(WEIR_BOUND_ENUM) WEIR_BOUND_COUNT };
#undef WEIR_BOUND_ENUM

#define WEIR_KIND_ENUM(name, bound, addressed, text, description) \
	WEIR_KIND_##name,
enum weir_kind { WEIR_KINDS(WEIR_KIND_ENUM) WEIR_KIND_COUNT };
#undef WEIR_KIND_ENUM

#define WEIR_REASON_ENUM(name, verdict, kind, text, description) \
	WEIR_REASON_##name,
enum weir_reason { WEIR_REASONS(WEIR_REASON_ENUM) WEIR_REASON_COUNT };
#undef WEIR_REASON_ENUM

/* What rings (alarm.h): all but the last, which only the law hears, wake the
 * gate. X(NAME, "name as printed", "description") */
#define WEIR_CAUSES(X)                                                        \
	X(UDP_QUEUE, "udp-queue",                                             \
	  "a UDP socket's receive queue, or a lazy socket's ring, was full, " \
	  "in this or another network namespace")                             \
	X(TCP_QUEUE, "tcp-queue",                                             \
	  "a TCP listener's queue, of requests or of connections, was full")  \
	X(TCP_BACKLOG, "tcp-backlog",                                         \
	  "a TCP connection's backlog of segments was full")                  \
	X(SCREEN_QUEUE, "screen-queue",                                       \
	  "the queue of a user-mode screen (NFQUEUE) was full")               \
	X(EGRESS_QUEUE, "egress-queue",                                       \
	  "the queue of an egress interface was full")                        \
	X(CPU_SHARE, "cpu-share",                                             \
	  "input wanted more of a CPU than its share or than others left")    \
	X(CPU_WAIT, "cpu-wait", "input waited long for its CPU")

#define WEIR_CAUSE_ENUM(name, text, description) WEIR_CAUSE_##name,
enum weir_cause { WEIR_CAUSES(WEIR_CAUSE_ENUM) WEIR_CAUSE_COUNT };
#undef WEIR_CAUSE_ENUM

#endif /* WEIR_VERDICT_H */
