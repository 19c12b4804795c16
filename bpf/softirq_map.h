/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the gate and the softirq limit share, on the CPU that both run on. The
 * queue probe's object owns the map; the others are loaded with it.
 */
#ifndef WEIR_SOFTIRQ_MAP_H
#define WEIR_SOFTIRQ_MAP_H

#include "abi.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_softirq);
} softirqs SEC(".maps");

static __always_inline struct weir_softirq *this_softirq(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&softirqs, &zero);
}

#endif /* WEIR_SOFTIRQ_MAP_H */
