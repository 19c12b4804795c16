/* SPDX-License-Identifier: GPL-2.0-only */
/* What the lab's programs have alone: costs, and the traffic generator. */
#ifndef WEIR_ABI_LAB_H
#define WEIR_ABI_LAB_H

#include <linux/types.h>

/* How many flows one traffic generator mixes. */
#define WEIR_TRAFFIC_FLOWS 4

/* Longest Ethernet + IP + transport header the generator writes (IPv6, TCP). */
#define WEIR_TRAFFIC_HEADER_LEN 74

/* Longest IPv4 options (RFC 791, 3.1). */
#define WEIR_TRAFFIC_OPTIONS_LEN 40

/* Longest frame that user space gives as it is to be sent. */
#define WEIR_TRAFFIC_RAW_LEN 256

/* Lengths that a flow's packets are drawn from: a random byte names one. */
#define WEIR_TRAFFIC_LENGTHS 256

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
	WEIR_TRAFFIC_TCP4,
	WEIR_TRAFFIC_UDP6,
	WEIR_TRAFFIC_TCP6,
	WEIR_TRAFFIC_ECHO4,
	WEIR_TRAFFIC_ECHO6,
	WEIR_TRAFFIC_FRAGMENT4,
	WEIR_TRAFFIC_FRAGMENT6,
	WEIR_TRAFFIC_RAW, /* as user space gave it: see starts[] */
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
	/* Nanoseconds between bursts, 16 fractional bits; 0: never pause. */
	__u64 interval_q16;
	/* A multiple of it: bursts that are later than that are not sent. */
	__u64 catch_up_q16;
	__u64 next_q16; /* when the next burst is due, since start_ns */
	__u64 sent;
	/* Packets that fell due while the generator could not run. */
	__u64 missed;
	__u32 enabled;
	enum weir_traffic_kind kind;
	/* Sum of the checksummed words that do not change, host order. */
	__u32 transport_sum;
	__u32 ip_sum;
	/*
	 * Random bits of the source address, host order; of an IPv4 fragment,
	 * those that count on where its identification wraps.
	 */
	__u32 source_mask;
	/* If not 0: so many source addresses, from the header's upwards. */
	__u32 source_count;
	/*
	 * A packet is shorter than the flow's longest by a random number below
	 * this; 0: by one of cuts[].
	 */
	__u32 cut_span;
	__u16 port_mask; /* random bits of the source port, host order */
	__u16 destination_port_mask; /* ...and of the destination port */
	__u16 burst;		     /* packets that are due together */
	__u16 burst_left;	     /* of them, those still to be sent */
	__u16 surplus; /* bytes from the flow's longest frame to the generator's
			*/
	__u8 has_stamp;
	__u8 option_words; /* of 4 bytes, between the IPv4 and UDP headers */
	__u8 header[WEIR_TRAFFIC_HEADER_LEN]; /* without those options */
	__u8 options[WEIR_TRAFFIC_OPTIONS_LEN];
	__u8 pad[6];
};

#endif /* WEIR_ABI_LAB_H */
