/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What this CPU has found out about a destination, so that a flood to it costs
 * one look in WEIR_REMEMBERED packets.
 *
 * What was found answers only within the NAPI poll in which it was: the packets
 * of one poll (64 of them at most, by the drivers' weight) are taken from the
 * ring in one go, with softirqs off, so nothing can be told apart that happens
 * between them but what another CPU does meanwhile; and every WEIR_REMEMBERED
 * packets, and with each tick of the clock, the socket is looked at again. In
 * later polls it only says where to look (udp_alone.h).
 */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include "channel.h"
#include "defect.h"
#include "flow.h"
#include "queue_map.h"
#include "reason.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_MEMORIES + 1);
	__type(key, __u32);
	__type(value, struct weir_memory);
} memories SEC(".maps");

static __always_inline bool same_address(const __u32 *a, const __u32 *b,
					 __u32 family)
{
	if (a[0] != b[0])
		return false;
	return family == WEIR_FAMILY_IPV4 ||
	       (a[1] == b[1] && a[2] == b[2] && a[3] == b[3]);
}

/* The place for a destination; another one may have it. */
static __always_inline struct weir_memory *memory_place(const struct flow *flow,
							enum weir_target target)
{
	const __u32 *address = flow->destination;
	__u64 hash = address[0];
	__u32 key;

	if (flow->family == WEIR_FAMILY_IPV6)
		hash ^= (__u64)address[1] << 32 ^ (__u64)address[2] << 7 ^
			(__u64)address[3] << 25;
	if (DEFECT(FAMILY_IGNORED) || DEFECT(ADDRESS_FORGOTTEN))
		hash = 0;
	if (!DEFECT(PORT_FORGOTTEN))
		hash ^= (__u64)flow->port_be << 40;
	hash ^= (__u64)target << 58;
	hash = (hash ^ hash_seed) * 0x9e3779b97f4a7c15ULL; /* Fibonacci's */
	key = hash >> (64 - WEIR_MEMORIES_BITS);
	return bpf_map_lookup_elem(&memories, &key);
}

static __always_inline bool memory_is_of(const struct weir_memory *memory,
					 const struct flow *flow,
					 enum weir_target target)
{
	if ((memory->port_be != flow->port_be && !DEFECT(PORT_FORGOTTEN)) ||
	    memory->target != target)
		return false;
	if (memory->family != flow->family)
		return DEFECT(FAMILY_IGNORED);
	return DEFECT(ADDRESS_FORGOTTEN) ||
	       same_address(memory->address, flow->destination, flow->family);
}

static __always_inline bool memory_has_peer(const struct weir_memory *memory,
					    const struct flow *flow)
{
	return !memory->connected || DEFECT(PEER_IGNORED) ||
	       (memory->peer_port_be == flow->source_port_be &&
		same_address(memory->peer, flow->source, flow->family));
}

/* Is it still to be believed? */
static __always_inline bool memory_is_fresh(const struct weir_memory *memory,
					    const struct weir_poll *poll)
{
	if (DEFECT(FULL_FOREVER) && memory->reason == WEIR_REASON_UDP_FULL)
		return true;
	return memory->left && memory->moment == poll->moment;
}

/* The port by which its channel of this kind is known. */
static __always_inline __be16 memory_port(const struct weir_memory *memory,
					  __u32 kind)
{
	return kind == WEIR_KIND_TCP_PEER ? memory->peer_port_be
					  : memory->port_be;
}

/*
 * What it counted goes to its channel, so that another can use the place. A
 * global function, which the verifier looks at once.
 */
__noinline int memory_fold(struct weir_memory *memory)
{
	struct weir_channel_key key = {};

	if (!memory || (!memory->seen[WEIR_SEEN_PASSED].packets &&
			!memory->seen[WEIR_SEEN_FULL].packets &&
			!memory->seen[WEIR_SEEN_SHED].packets))
		return 0;
	key.egress_ifindex = memory->egress_ifindex;
	key.kind = kind_of_reason(memory->reason);
	if (key.kind != WEIR_KIND_FORWARD) {
		key.port = bpf_ntohs(memory_port(memory, key.kind));
		key.family = memory->family;
		copy_address(key.address, memory->address);
	}
	channel_add(&key, memory->seen);
	__builtin_memset(memory->seen, 0, sizeof(memory->seen));
	return 0;
}

/* Makes a place this destination's own. */
static __always_inline void memory_assign(struct weir_memory *memory,
					  const struct flow *flow,
					  enum weir_target target)
{
	copy_address(memory->address, flow->destination);
	memory->port_be = flow->port_be;
	memory->family = flow->family;
	memory->target = target;
	memory->reason = WEIR_REASON_COUNT;
	memory->left = 0;
	memory->egress_ifindex = 0;
	memory->connected = 0;
	memory->sock = 0;
	memory->alone_left = 0;
	memory->account = 0;
	memory->contest = 0;
	memory->stray_until = 0;
	memory->no_listener_until = 0;
}

/*
 * The same, if the place is free: if not one of this poll's destinations has
 * it. Else the spare place does, where nothing is remembered for long.
 */
static __always_inline struct weir_memory *
memory_take(struct weir_memory *memory, const struct flow *flow,
	    enum weir_target target, const struct weir_poll *poll)
{
	__u32 spare = WEIR_MEMORIES;

	/* A flood of closed ports pushes nobody out. */
	if (memory->moment == poll->moment && memory->left &&
	    memory->target != WEIR_TARGET_NONE &&
	    kind_of_reason(memory->reason) != WEIR_KIND_CLOSED)
		memory = bpf_map_lookup_elem(&memories, &spare);
	if (!memory)
		return NULL;
	memory_fold(memory);
	memory_assign(memory, flow, target);
	return memory;
}

#endif /* WEIR_MEMORY_H */
