/* SPDX-License-Identifier: GPL-2.0-only */
/* What crosses the boundary between a tap and its reader. */
#ifndef WEIR_TAP_H
#define WEIR_TAP_H

#include <linux/types.h>

/* Most bytes of a packet that a tap copies: what is longer is cut. */
#define WEIR_TAP_SNAPLEN 65536

/* In front of what was copied of a packet. */
struct weir_tap_record {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 wire_len;
	__u32 captured_len;
	/* The tag that the kernel or the device has taken off, if any. */
	__u32 vlan_present;
	__u16 vlan_tci;
	__be16 vlan_protocol_be;
};

/* Of one CPU. */
struct weir_tap_counts {
	__u64 seen;
	__u64 matched; /* by the filter; all if there is none */
	__u64 matched_bytes;
	__u64 dropped; /* matched, and the ring had no room */
	__u64 paused;  /* came by while the circuit breaker was open */
	/* The breaker's: since when it counts which batch, and opened how long.
	 */
	__u64 batch_from_ns;
	__u64 batch;
	__u64 open_until_ns;
};

#endif /* WEIR_TAP_H */
