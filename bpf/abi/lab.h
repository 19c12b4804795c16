/* SPDX-License-Identifier: GPL-2.0-only */
/* What the lab's programs have alone: costs, and the traffic generator. */
#ifndef WEIR_ABI_LAB_H
#define WEIR_ABI_LAB_H

#include <linux/types.h>

/* How many flows one traffic generator mixes. */
#define WEIR_TRAFFIC_FLOWS 4

/* Longest start of a frame: headers and stamp, or all of it. Powers of two. */
#define WEIR_TRAFFIC_START_LEN 256

/* Lengths that a flow's packets are drawn from: a random byte names one. */
#define WEIR_TRAFFIC_LENGTHS 256

/*
 * Full polls are told apart by ns per packet up to here; longer ones were
 * interrupted for long.
 */
#define WEIR_POLL_NS_PER_PACKET_MAX 4096

/* Polls of one NAPI instance, as the lab's gate-cost counts them. */
struct weir_poll_cost {
	__u64 packets;
	/* Of full polls: that took a whole budget right after one that did, and
	 * were not interrupted for long. */
	__u64 full_packets;
	/* Full polls by whole ns per packet. */
	__u32 histogram[WEIR_POLL_NS_PER_PACKET_MAX];
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

/*
 * One flow of the generator: the start that all its frames have, and what
 * varies in it. User space writes it while the flow is stopped.
 */
struct weir_traffic_flow {
	/* Nanoseconds between bursts, 16 fractional bits; 0: never pause. */
	__u64 interval_q16;
	/* A multiple of it: bursts that are later than that are not sent. */
	__u64 catch_up_q16;
	__u64 next_q16; /* when the next burst is due, since start_ns */
	__u64 sent;
	/* Packets that found the receiver's ring full. */
	__u64 refused;
	/* Packets that fell due while the generator could not run. */
	__u64 missed;
	__u32 enabled;
	/* Sums of the checksummed words that do not change, host order. */
	__u32 transport_sum;
	__u32 ip_sum;
	/*
	 * The source address (of IPv6 its last word) and its random bits, host
	 * order; of an IPv4 fragment those that count on where its
	 * identification wraps.
	 */
	__u32 source;
	__u32 source_mask;
	__u32 source_count; /* if not 0: so many, from the source upwards */
	/*
	 * A packet is shorter than the flow's longest by a random number below
	 * this; 0: by one of cuts[].
	 */
	__u32 cut_span;
	__u16 cuts[WEIR_TRAFFIC_LENGTHS];
	/* What the longest packet's headers say, host order. */
	__u16 ip_len;
	__u16 udp_len;
	__u16 port; /* or identifier of an echo */
	__u16 destination_port;
	__u16 port_mask; /* random bits */
	__u16 destination_port_mask;
	__u16 burst;	   /* packets that are due together */
	__u16 burst_left;  /* of them, those still to be sent */
	__u16 surplus;	   /* bytes from the flow's longest frame to the
			      generator's */
	__u16 stamp_spare; /* bytes of the longest payload behind the stamp */
	/* Where in the start all this is; 0: nowhere. */
	__u8 source_at;
	__u8 id_at; /* a fragment's number in the flow */
	__u8 id_high_at;
	__u8 ip_len_at;
	__u8 ip_sum_at;
	__u8 ports_at;
	__u8 udp_len_at;
	__u8 sum_at;
	__u8 stamp_at;
	/* What of it the transport checksum sums: lengths; the source. */
	__u8 summed_lengths;
	__u8 summed_source;
	__u8 start[WEIR_TRAFFIC_START_LEN];
	__u8 pad[5];
};

#endif /* WEIR_ABI_LAB_H */
