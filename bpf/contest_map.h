/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The contested queues, which the gates of all interfaces share: the queue
 * probe's object owns the map.
 */
#ifndef WEIR_CONTEST_MAP_H
#define WEIR_CONTEST_MAP_H

#include "abi.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_CONTESTS);
	__type(key, __u32);
	__type(value, struct weir_contest);
} contests SEC(".maps");

static __always_inline struct weir_contest *contest_at(__u32 place)
{
	__u32 key = place & (WEIR_CONTESTS - 1);

	return bpf_map_lookup_elem(&contests, &key);
}

#endif /* WEIR_CONTEST_MAP_H */
