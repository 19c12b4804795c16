/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every map that several objects share. The queue probe's object owns them: the
 * gates and the governor's programs are loaded with the probe's maps in place
 * of their own (crates/weir-bpf/src/probe.rs).
 */
#ifndef WEIR_SHARED_H
#define WEIR_SHARED_H

#include "abi.h"
#include "hash.h"
#include "map.h"
#include <stdbool.h>

/*
 * Packets in flight, by socket; direct-mapped. Two sockets that share a place
 * evict each other, and what is then forgotten makes the gate admit packets
 * that the kernel drops.
 */
MAP(queue_slots, BPF_MAP_TYPE_ARRAY, 0, WEIR_QUEUE_SLOTS, __u32,
    struct weir_queue_slot);
/* The NAPI poll that runs on each CPU. */
MAP_OF_ONE(current_poll, napi_polls, BPF_MAP_TYPE_PERCPU_ARRAY, 0,
	   struct weir_poll);
/* What receive softirqs take, on each CPU. */
MAP_OF_ONE(this_softirq, softirqs, BPF_MAP_TYPE_PERCPU_ARRAY, 0,
	   struct weir_softirq);
/* What packets are charged, a row for each interface with a gate. */
MAP(charge_rows, BPF_MAP_TYPE_HASH, 0, WEIR_CHARGE_ROWS, struct weir_charge_key,
    __u32);
MAP(charges, BPF_MAP_TYPE_ARRAY, 0, WEIR_CHARGE_ROWS, __u32,
    struct weir_charges);
/* Queues that were full a short while ago, and who sends to them. */
MAP(contests, BPF_MAP_TYPE_ARRAY, 0, WEIR_CONTESTS, __u32, struct weir_contest);

/* The channels that each CPU charges; user space sizes it by CPUs. */
MAP(accounts, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, WEIR_ACCOUNTS, __u32,
    struct weir_account);

/* Whether the gates sleep. */
MAP_OF_ONE(the_alarm, alarm, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE,
	   struct weir_alarm);

/* Causes, as they wake the gates. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} rings SEC(".maps");

/* Samples of discards, WEIR_SAMPLES for each CPU; user space sizes it by CPUs.
 */
MAP(samples, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, WEIR_SAMPLES, __u32,
    struct weir_sample);
MAP_OF_ONE(this_sampler, samplers, BPF_MAP_TYPE_PERCPU_ARRAY, 0,
	   struct weir_sampler);

/* User-mode screens, and when a packet for one was last refused. */
MAP_OF_ONE(the_screen, screen, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE,
	   struct weir_screen);
MAP(screened, BPF_MAP_TYPE_LRU_HASH, 0, WEIR_SCREENED, struct weir_screened_key,
    struct weir_refusal);

/* The same, of the queues of egress interfaces. */
MAP(egresses, BPF_MAP_TYPE_LRU_HASH, 0, WEIR_SCREENED, struct weir_screened_key,
    struct weir_egress);

/* Lazy sockets. */
MAP_OF_ONE(the_lazy, lazy, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE,
	   struct weir_lazy);

/* Of a socket's size. */
struct lazy_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
};

/* By the socket's cookie, which no other socket ever has. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, WEIR_LAZY_SOCKETS);
	__type(key, __u64);
	__array(values, struct lazy_ring);
} lazy_rings SEC(".maps");

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

/* One buffer, and the packets that it stands for. */
static __always_inline void count_discard(struct weir_poll *poll, __u32 packets)
{
	poll->discarded += packets;
	poll->discards++;
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

/* What a poll is taken to have lasted. */
static __always_inline __u64 poll_time(__u64 took)
{
	return took < WEIR_POLL_NS_MAX ? took : WEIR_POLL_NS_MAX;
}

#endif /* WEIR_SHARED_H */
