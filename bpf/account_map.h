/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the gate and the meter share: for each CPU, the channels whose packets
 * it has admitted of late. The queue probe's object owns the map, and has as
 * many places as the host has CPUs.
 */
#ifndef WEIR_ACCOUNT_MAP_H
#define WEIR_ACCOUNT_MAP_H

#include "abi.h"
#include "verdict.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_ACCOUNTS);
	__type(key, __u32);
	__type(value, struct weir_account);
} accounts SEC(".maps");

/* One of this CPU's. */
static __always_inline struct weir_account *account_at(__u32 place)
{
	__u32 key = bpf_get_smp_processor_id() * WEIR_ACCOUNTS +
		    (place & (WEIR_ACCOUNTS - 1));

	return bpf_map_lookup_elem(&accounts, &key);
}

/* What a packet costs before any has been seen. */
#define ADMIT_COST_NS 1000

/* What admitting one of these packets has cost of late. */
static __always_inline __u64 account_cost(const struct weir_account *account)
{
	__u64 cost = account->cost_packets
			     ? account->cost_ns / account->cost_packets
			     : ADMIT_COST_NS;

	return cost ?: 1;
}

#endif /* WEIR_ACCOUNT_MAP_H */
