/* SPDX-License-Identifier: GPL-2.0-only */
/* Each packet is counted once, under one reason, on the CPU that saw it. */
#ifndef WEIR_COUNTERS_H
#define WEIR_COUNTERS_H

#include "abi.h"
#include "verdict.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_REASON_COUNT);
	__type(key, __u32);
	__type(value, struct weir_counter);
} counters SEC(".maps");

static __always_inline void counter_add(struct weir_counter *counter,
					struct weir_counter seen)
{
	counter->packets += seen.packets;
	counter->bytes += seen.bytes;
}

static __always_inline void count(enum weir_reason reason,
				  struct weir_counter seen)
{
	__u32 key = reason;
	struct weir_counter *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter)
		counter_add(counter, seen);
}

#endif /* WEIR_COUNTERS_H */
