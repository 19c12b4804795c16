/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue states that the gates share, and the polls that the queue probe
 * sees end: its object owns the maps; each gate is loaded with them in place of
 * its own.
 */
#ifndef WEIR_QUEUE_MAP_H
#define WEIR_QUEUE_MAP_H

#include "abi.h"
#include "compat.h"
#include <bpf/bpf_helpers.h>

/*
 * Direct-mapped by the kernel's struct sock. Two sockets that share a
 * slot evict each other, and what is then forgotten (packets in flight) makes
 * the gate admit packets that the kernel drops. The seed keeps others from
 * guessing who shares a slot with whom.
 */
const volatile __u64 hash_seed;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_QUEUE_SLOTS);
	__type(key, __u32);
	__type(value, struct weir_queue_slot);
} queue_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_poll);
} napi_polls SEC(".maps");

static __always_inline struct weir_poll *current_poll(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&napi_polls, &zero);
}

/* Distinct over CPUs: none mistakes another's packets for its own. */
static __always_inline __u64 poll_id_of(const struct weir_poll *poll)
{
	return poll->number << 16 | bpf_get_smp_processor_id();
}

#define POLL_NUMBER_SHIFT 24

/*
 * Every packet begins with it: the clock is read once per moment, which is a
 * poll, or a tick (1 to 10 ms) of one that lasts longer.
 */
static __always_inline void poll_moment(struct weir_poll *poll)
{
	__u64 tick = bpf_jiffies64() & ((1ULL << POLL_NUMBER_SHIFT) - 1);
	__u64 moment = poll->number << POLL_NUMBER_SHIFT | tick;

	if (poll->moment == moment && poll->now_ns)
		return;
	poll->moment = moment;
	poll->now_ns = bpf_ktime_get_ns();
}

/* By the socket's own address: the members of a group share theirs. */
static __always_inline struct weir_queue_slot *queue_slot(__u64 sock)
{
	__u64 hash = hash_seed ^ sock;
	__u32 key;

	/* The finalizer of MurmurHash3 (Appleby). */
	hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdULL;
	hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ULL;
	key = hash >> 40 & (WEIR_QUEUE_SLOTS - 1);
	return bpf_map_lookup_elem(&queue_slots, &key);
}

#endif /* WEIR_QUEUE_MAP_H */
