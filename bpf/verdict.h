/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every verdict and reason, declared once.
 *
 * The gate's counters are indexed by reason, each reason belongs to one
 * verdict, and build.rs expands the same lists into the Rust enums, so that
 * the command line, the metrics and the docs cannot disagree with the gate.
 */
#ifndef WEIR_VERDICT_H
#define WEIR_VERDICT_H

/* X(NAME, "name as printed", "description") */
#define WEIR_VERDICTS(X)                        \
	X(PASS, "pass", "handed to the kernel") \
	X(DISCARD, "discard", "dropped at the gate, before an skb exists")

/* X(NAME, VERDICT, "name as printed", "description") */
#define WEIR_REASONS(X)                                                        \
	X(UDP_ROOM, PASS, "udp-room",                                          \
	  "the destination UDP socket's receive queue has room")               \
	X(UDP_FULL, DISCARD, "udp-full",                                       \
	  "the destination UDP socket's receive queue is full, so the kernel " \
	  "would drop the packet")                                             \
	X(UDP_NO_SOCKET, PASS, "udp-no-socket",                                \
	  "no UDP socket receives this address and port")                      \
	X(UDP_SHARED, PASS, "udp-shared",                                      \
	  "the socket is in an SO_REUSEPORT group: another one may be picked") \
	X(UDP_ENCAP, PASS, "udp-encap",                                        \
	  "the socket has a receiver inside the kernel (VXLAN, WireGuard, "    \
	  "...)")                                                              \
	X(NOT_UDP, PASS, "not-udp", "IP, but not UDP")                         \
	X(NOT_IP, PASS, "not-ip", "neither IPv4 nor IPv6 (ARP, LLDP, ...)")    \
	X(OTHER_MAC, PASS, "other-mac",                                        \
	  "the destination MAC address is not this interface's own")           \
	X(OTHER_ADDRESS, PASS, "other-address",                                \
	  "the destination IP address is not this interface's own: "           \
	  "forwarded, "                                                        \
	  "multicast, broadcast")                                              \
	X(FRAGMENT, PASS, "fragment", "an IP fragment")                        \
	X(VLAN, PASS, "vlan", "the packet carries a VLAN tag")                 \
	X(IPV6_EXTENSION, PASS, "ipv6-extension",                              \
	  "IPv6 with extension headers before the transport header")           \
	X(MALFORMED, PASS, "malformed",                                        \
	  "a header is cut short or contradicts itself")                       \
	X(DIVERTED, PASS, "diverted",                                          \
	  "NAT, a redirect or the like may take this interface's packets "     \
	  "elsewhere: `weir status` names it")                                 \
	X(POLICY_OFF, PASS, "policy-off",                                      \
	  "the gate is attached with its policy switched off")

#define WEIR_VERDICT_ENUM(name, text, description) WEIR_VERDICT_##name,
enum weir_verdict { WEIR_VERDICTS(WEIR_VERDICT_ENUM) WEIR_VERDICT_COUNT };
#undef WEIR_VERDICT_ENUM

#define WEIR_REASON_ENUM(name, verdict, text, description) WEIR_REASON_##name,
enum weir_reason { WEIR_REASONS(WEIR_REASON_ENUM) WEIR_REASON_COUNT };
#undef WEIR_REASON_ENUM

#endif /* WEIR_VERDICT_H */
