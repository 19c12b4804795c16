/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every map that several objects share. The queue probe's object owns them: the
 * gates and the governor's programs are loaded with the probe's maps in place
 * of their own (crates/weir-bpf/src/shared.rs).
 */
#ifndef WEIR_SHARED_H
#define WEIR_SHARED_H

#include "abi.h"
#include "hash.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#define SHARED_MAP(name, map_type, places, key_type, value_type) \
	struct {                                                 \
		__uint(type, map_type);                          \
		__uint(max_entries, places);                     \
		__type(key, key_type);                           \
		__type(value, value_type);                       \
	} name SEC(".maps")

/*
 * Packets in flight, by socket; direct-mapped. Two sockets that share a place
 * evict each other, and what is then forgotten makes the gate admit packets
 * that the kernel drops.
 */
SHARED_MAP(queue_slots, BPF_MAP_TYPE_ARRAY, WEIR_QUEUE_SLOTS, __u32,
	   struct weir_queue_slot);
/* The NAPI poll that runs on each CPU. */
SHARED_MAP(napi_polls, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, struct weir_poll);
/* What receive softirqs take, on each CPU. */
SHARED_MAP(softirqs, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, struct weir_softirq);
/* What packets are charged, a row for each interface with a gate. */
SHARED_MAP(charge_rows, BPF_MAP_TYPE_HASH, WEIR_CHARGE_ROWS,
	   struct weir_charge_key, __u32);
SHARED_MAP(charges, BPF_MAP_TYPE_ARRAY, WEIR_CHARGE_ROWS, __u32,
	   struct weir_charges);
/* Queues that were full a short while ago, and who sends to them. */
SHARED_MAP(contests, BPF_MAP_TYPE_ARRAY, WEIR_CONTESTS, __u32,
	   struct weir_contest);

/* The channels that each CPU charges; user space sizes it by CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_ACCOUNTS);
	__type(key, __u32);
	__type(value, struct weir_account);
} accounts SEC(".maps");

/* Whether the gates sleep. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_alarm);
} alarm SEC(".maps");

/* Causes, as they wake the gates. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} rings SEC(".maps");

/* What there is one of, on this CPU or at all. */
#define SHARED_ONE(function, type, map)                  \
	static __always_inline type *function(void)      \
	{                                                \
		__u32 zero = 0;                          \
                                                         \
		return bpf_map_lookup_elem(&map, &zero); \
	}

SHARED_ONE(current_poll, struct weir_poll, napi_polls)
SHARED_ONE(this_softirq, struct weir_softirq, softirqs)
SHARED_ONE(the_alarm, struct weir_alarm, alarm)

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
	__u32 key = hash_add(hash_seed, sock) >> 32 & (WEIR_QUEUE_SLOTS - 1);

	return bpf_map_lookup_elem(&queue_slots, &key);
}

static __always_inline struct weir_contest *contest_at(__u32 place)
{
	__u32 key = place & (WEIR_CONTESTS - 1);

	return bpf_map_lookup_elem(&contests, &key);
}

/* One of this CPU's accounts. */
static __always_inline struct weir_account *account_at(__u32 place)
{
	__u32 key = bpf_get_smp_processor_id() * WEIR_ACCOUNTS +
		    (place & (WEIR_ACCOUNTS - 1));

	return bpf_map_lookup_elem(&accounts, &key);
}

/* What a packet costs before any has been seen. */
#define ADMIT_COST_NS 1000

/* What admitting one of an account's packets costs, as last measured. */
static __always_inline __u64 account_cost(const struct weir_account *account)
{
	__u64 cost = account->cost_packets
			     ? account->cost_ns / account->cost_packets
			     : ADMIT_COST_NS;

	return cost ?: 1;
}

#endif /* WEIR_SHARED_H */
