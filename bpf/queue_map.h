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
 * Direct-mapped by the socket's addresses and ports. Two sockets that share a
 * slot evict each other; what is then forgotten (a truesize, packets in flight)
 * only ever makes the gate admit a packet that the kernel drops, never the
 * reverse.
 */
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

/*
 * The hash is over fields, not over the pointer: the verifier allows a kernel
 * pointer to be compared, not to be computed with.
 */
static __always_inline struct weir_queue_slot *queue_slot(const struct sock *sk)
{
	const struct sock_common *common = &sk->__sk_common;
	__u64 hash;
	__u32 key;

	hash = common->skc_addrpair ^ common->skc_portpair;
	hash ^= (__u64)common->skc_v6_daddr.in6_u.u6_addr32[3] << 32;
	hash ^= (__u64)common->skc_v6_rcv_saddr.in6_u.u6_addr32[3] << 16;
	hash *= 0x9e3779b97f4a7c15ULL; /* Knuth's multiplicative hashing */
	key = hash >> 48 & (WEIR_QUEUE_SLOTS - 1);
	return bpf_map_lookup_elem(&queue_slots, &key);
}

#endif /* WEIR_QUEUE_MAP_H */
