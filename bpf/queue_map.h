/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue states that the gate and the queue probe share. The probe's object
 * owns the maps; each gate is loaded with them in place of its own.
 */
#ifndef WEIR_QUEUE_MAP_H
#define WEIR_QUEUE_MAP_H

#include "abi.h"
#include "compat.h"
#include <bpf/bpf_helpers.h>

/*
 * How long a packet's charge is believed. A smaller packet may fit where those
 * refused did not, so the kernel is asked again (at the price of one batch of
 * late drops) at least this often.
 */
#define TRUESIZE_BELIEVED_NS 10000000ULL

/*
 * Direct-mapped by the kernel's struct sock. Two sockets that share a
 * slot evict each other, and what is then forgotten (a truesize, packets in
 * flight) makes the gate admit packets that the kernel drops. The seed keeps
 * others from guessing who shares a slot with whom.
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

/* By the socket's own address: the members of a group share theirs. */
static __always_inline struct weir_queue_slot *queue_slot(const struct sock *sk)
{
	__u64 hash = hash_seed ^ kernel_address_of(sk);
	__u32 key;

	/* The finalizer of MurmurHash3 (Appleby). */
	hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdULL;
	hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ULL;
	key = hash >> 40 & (WEIR_QUEUE_SLOTS - 1);
	return bpf_map_lookup_elem(&queue_slots, &key);
}

#endif /* WEIR_QUEUE_MAP_H */
