/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every type that crosses the boundary between the kernel half and user space.
 *
 * Rust's copies are generated from the loaded objects' BTF (libbpf-cargo), so
 * nothing here is declared a second time. Include <linux/types.h> users only:
 * fixed-width types, no pointers, no implicit padding.
 */
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

#include <linux/types.h>

/* How many sockets' queue states are remembered at once (a power of two). */
#define WEIR_QUEUE_SLOTS 4096

/* How many addresses of one family an interface may have under the gate. */
#define WEIR_LOCAL_ADDRESSES 1024

/* How many flows one traffic generator mixes. */
#define WEIR_TRAFFIC_FLOWS 4

/* Longest Ethernet + IP + transport header the generator writes (IPv6, TCP). */
#define WEIR_TRAFFIC_HEADER_LEN 74

/* One interface under the gate. Written by the daemon, read per packet. */
struct weir_interface {
	__u8 mac[6];
	__u8 policy_off; /* 1: count and pass everything */
	__u8 pad;
};

/* Per CPU, indexed by enum weir_reason. */
struct weir_counter {
	__u64 packets;
	__u64 bytes;
};

struct weir_ipv6_address {
	__u8 octets[16];
};

/*
 * What is known about one UDP socket's receive queue beyond what the socket
 * itself says. One cache line.
 */
struct weir_queue_slot {
	__u64 sock; /* the kernel's struct sock *, only ever compared */
	__u64 poll; /* the NAPI poll in which the gate last looked */
	/* When the charge below was learned, CLOCK_MONOTONIC. */
	__u64 learned_ns;
	/* Smallest charge of a packet that the kernel refused since then... */
	__u32 truesize;
	/* ...and that packet's length as its UDP header gives it. */
	__u32 udp_len;
	/* Bytes charged to the queue that in_flight has been set off against.
	 */
	__u32 charged_seen;
	/* Packets admitted in this poll that have not been charged yet. */
	__u32 in_flight;
	__u32 pad[6];
};

/* Per CPU: the NAPI poll that is running. */
struct weir_poll {
	__u64 number;  /* polls that have ended */
	__u64 clocked; /* 1 + number when now_ns was read */
	__u64 now_ns;  /* CLOCK_MONOTONIC */
};

/* Socket lookups in one run of a program that measures them. */
#define WEIR_LOOKUPS_PER_RUN 64

/* What is looked up: an IPv4 address is in an address's first 4 bytes. */
struct weir_lookup_tuple {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port_be;
	__be16 destination_port_be;
};

/*
 * Full polls are told apart by ns per packet up to here; longer ones were
 * interrupted for long.
 */
#define WEIR_POLL_NS_PER_PACKET_MAX 4096

/* Polls of one NAPI instance, as the lab's gate-cost counts them. */
struct weir_poll_cost {
	__u64 polls;
	__u64 packets;
	/* Of polls that took a whole budget right after one that did... */
	__u64 full_polls;
	__u64 full_packets;
	__u64 full_ns;
	/* ...without those that were interrupted for long: as many. */
	__u64 interrupted;
	/* full_polls by whole ns per packet. */
	__u32 histogram[WEIR_POLL_NS_PER_PACKET_MAX];
};

/* What a generated packet is made of. */
enum weir_traffic_kind {
	WEIR_TRAFFIC_UDP4,
	WEIR_TRAFFIC_TCP_SYN4,
	WEIR_TRAFFIC_UDP6,
	WEIR_TRAFFIC_TCP_SYN6,
};

/*
 * At the start of every generated UDP payload that has room for it: 14 bytes,
 * the payload of LRP's figure 3.
 */
struct weir_stamp {
	__u64 sent_ns; /* CLOCK_MONOTONIC */
	__u32 sequence;
	__u16 flow;
} __attribute__((packed));

/* One flow of the generator; user space writes it while the flow is stopped. */
struct weir_traffic_flow {
	/* Nanoseconds between packets, 16 fractional bits; 0: never pause. */
	__u64 interval_q16;
	__u64 next_q16; /* when the next packet is due, since start_ns */
	__u64 sent;
	/* Packets that fell due while the generator could not run. */
	__u64 missed;
	__u32 enabled;
	enum weir_traffic_kind kind;
	/* Sum of the checksummed words that do not change, host order. */
	__u32 transport_sum;
	__u32 ip_sum;
	__u32 source_mask; /* random bits of the source address, host order */
	__u16 port_mask;   /* random bits of the source port, host order */
	__u16 destination_port_mask; /* ...and of the destination port */
	__u8 has_stamp;
	__u8 header[WEIR_TRAFFIC_HEADER_LEN];
	__u8 pad[1];
};

#endif /* WEIR_ABI_H */
