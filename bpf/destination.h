/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The destination cache: what this CPU knows of where packets go, so that a
 * flood to one place costs one look in WEIR_REMEMBERED packets.
 *
 * An answer holds within one NAPI poll and one tick of the clock: the packets
 * of a poll (64 of them at most, by the drivers' weight) are taken from the
 * ring in one go, with softirqs off, so nothing can be told apart that happens
 * between them but what another CPU does meanwhile. Later a place only says
 * where to look (udp_table.h).
 */
#ifndef WEIR_DESTINATION_H
#define WEIR_DESTINATION_H

#include "counters.h"
#include "decide.h"
#include "defect.h"
#include "flow.h"
#include "shared.h"

MAP(destinations, BPF_MAP_TYPE_PERCPU_ARRAY, 0, WEIR_DESTINATIONS + 1, __u32,
    struct weir_destination);

static __always_inline bool same_address(const __u32 *a, const __u32 *b,
					 __u32 family)
{
	if (a[0] != b[0])
		return false;
	return family == WEIR_FAMILY_IPV4 || DEFECT(NETWORK_IS_ONE) ||
	       (a[1] == b[1] && a[2] == b[2] && a[3] == b[3]);
}

/* Its place, which another one may have. */
static __always_inline struct weir_destination *
destination_place(const struct flow *flow, enum weir_target target)
{
	const __u32 *address = flow->destination;
	__u64 hash = address[0];
	__u32 key;

	if (flow->family == WEIR_FAMILY_IPV6 && !DEFECT(NETWORK_IS_ONE))
		hash = (hash | (__u64)address[1] << 32) ^
		       hash_quick(address[2] | (__u64)address[3] << 32);
	if (DEFECT(FAMILY_IGNORED) || DEFECT(ADDRESS_FORGOTTEN))
		hash = 0;
	if (!DEFECT(PORT_FORGOTTEN))
		hash ^= (__u64)flow->port_be << 40;
	hash ^= (__u64)target << 58;
	key = hash_quick(hash) >> (64 - WEIR_DESTINATIONS_BITS);
	return bpf_map_lookup_elem(&destinations, &key);
}

static __always_inline bool
destination_is_of(const struct weir_destination *entry, const struct flow *flow,
		  enum weir_target target)
{
	if ((entry->port_be != flow->port_be && !DEFECT(PORT_FORGOTTEN)) ||
	    entry->target != target)
		return false;
	if (entry->family != flow->family)
		return DEFECT(FAMILY_IGNORED);
	return DEFECT(ADDRESS_FORGOTTEN) ||
	       same_address(entry->address, flow->destination, flow->family);
}

static __always_inline bool
destination_has_peer(const struct weir_destination *entry,
		     const struct flow *flow)
{
	return !entry->connected || DEFECT(PEER_IGNORED) ||
	       (entry->peer_port_be == flow->source_port_be &&
		same_address(entry->peer, flow->source, flow->family) &&
		/* Which chooses a route, but no socket. */
		(entry->flowinfo == flow->flowinfo ||
		 entry->reason != WEIR_REASON_FORWARD_FULL));
}

/* Does its answer still hold? */
static __always_inline bool
destination_is_fresh(const struct weir_destination *entry,
		     const struct weir_poll *poll)
{
	if (DEFECT(FULL_FOREVER) && entry->reason == WEIR_REASON_UDP_FULL)
		return true;
	return entry->left && entry->moment == poll->moment;
}

/* The channel that it is counted and charged to. */
static __always_inline void
destination_key(const struct weir_destination *entry,
		struct weir_channel_key *key)
{
	key->kind = entry->kind;
	key->egress_ifindex = entry->egress_ifindex;
	if (entry->kind == WEIR_KIND_FORWARD)
		return;
	key->port = entry->channel_port;
	key->family = entry->family;
	copy_address(key->address, entry->address);
}

/*
 * What was counted here goes to the channel's own counters, so that another can
 * be counted. A global function, which the verifier looks at once.
 */
__noinline int destination_fold(struct weir_destination *entry)
{
	struct weir_channel_key key = {};

	if (!entry || (!entry->seen[WEIR_SEEN_PASSED].packets &&
		       !entry->seen[WEIR_SEEN_FULL].packets &&
		       !entry->seen[WEIR_SEEN_SHED].packets))
		return 0;
	destination_key(entry, &key);
	channel_add(&key, entry->seen);
	__builtin_memset(entry->seen, 0, sizeof(entry->seen));
	entry->shed = 0;
	return 0;
}

/* The channel of a packet that passes. */
static __always_inline void
destination_set_channel(struct weir_destination *entry,
			const struct prospects *prospects)
{
	__u32 kind = kind_of_reason(prospects->pass);
	__u16 port = bpf_ntohs(kind == WEIR_KIND_TCP_PEER ? entry->peer_port_be
							  : entry->port_be);

	if (entry->kind == kind && entry->channel_port == port &&
	    entry->egress_ifindex == prospects->egress_ifindex)
		return;
	destination_fold(entry);
	entry->kind = kind;
	entry->channel_port = port;
	entry->egress_ifindex = prospects->egress_ifindex;
}

/* What is looked for anew is not known any more. */
static __always_inline void destination_forget(struct weir_destination *entry)
{
	entry->left = 0;
	entry->connected = 0;
	entry->sock = 0;
	entry->alone_left = 0;
	entry->lent = 0;
	entry->screened = 0;
	entry->full_from = 0;
	entry->truesize = 0;
}

/*
 * The same, of another destination, if the place is free: if not one of this
 * poll's has it. Else the spare place, where nothing stays for long.
 */
static __always_inline struct weir_destination *
destination_take(struct weir_destination *entry, const struct flow *flow,
		 enum weir_target target, const struct weir_poll *poll)
{
	__u32 spare = WEIR_DESTINATIONS;

	/* A flood of closed ports pushes nobody out. */
	if (entry->moment == poll->moment && entry->left &&
	    entry->target != WEIR_TARGET_NONE &&
	    entry->kind != WEIR_KIND_CLOSED)
		entry = bpf_map_lookup_elem(&destinations, &spare);
	if (!entry)
		return NULL;
	destination_fold(entry);
	destination_forget(entry);
	copy_address(entry->address, flow->destination);
	entry->family = flow->family;
	entry->target = target;
	entry->port_be = flow->port_be;
	entry->account = 0;
	entry->kind = WEIR_KIND_OTHER;
	entry->stray_until_ns = 0;
	entry->no_listener_until = 0;
	return entry;
}

#endif /* WEIR_DESTINATION_H */
