/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the screen has decided of flows, and how long that is remembered.
 *
 * Whoever forges the sources of packets that a rule accepts has as many flows
 * accepted as the screen can judge, and what answers them does not know better.
 * So a flow is established once its first side has sent on after a reply. Such
 * flows have a table of their own: new ones evict only new ones.
 */
#ifndef WEIR_WALL_FLOW_H
#define WEIR_WALL_FLOW_H

#include "abi.h"
#include "map.h"
#include "wall_ask.h"
#include "wall_key.h"

const volatile __u64 idle_ns;

__u32 generation;

struct flows {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536); /* user space sets it */
	__type(key, struct weir_wall_key);
	__type(value, struct weir_wall_entry);
};

/* By the direction that comes in at the first side, so that packets of both
 * find their flow at the first look-up. */
struct flows established SEC(".maps");
/* All that were accepted, by the direction of their first packet. */
struct flows accepted SEC(".maps");
struct flows denied SEC(".maps");

MAP(rules, BPF_MAP_TYPE_PERCPU_ARRAY, 0, WEIR_WALL_RULES, __u32,
    struct weir_counter);

static __always_inline void add(struct weir_counter *count, __u32 len)
{
	if (!count)
		return;
	count->packets++;
	count->bytes += len;
}

/* A second is exact enough, and spares most packets the write. So a flow may
 * have been used so much later than its entry says,... */
#define USED_STEP_NS 1000000000ull
/* ...and a tick, to which the clock is read. */
#define TICK_NS 10000000ull

/* What has been decided of the flow; then it is counted under the rule. */
static __always_inline struct weir_wall_entry *
decided(struct flows *flows, const struct weir_wall_key *key,
	const struct asking *asking, bool renew)
{
	struct weir_wall_entry *entry = bpf_map_lookup_elem(flows, key);
	__s64 idle = entry ? asking->now - entry->used_ns : 0;
	__s64 limit = idle_ns + (renew ? USED_STEP_NS + TICK_NS : 0);
	__u32 rule;

	/* Those of rules that are being read are there before these hold. */
	if (!entry || (__s32)(entry->generation - generation) < 0 ||
	    idle >= limit)
		return NULL;
	if (renew && idle > (__s64)USED_STEP_NS)
		entry->used_ns = asking->now;
	rule = entry->rule;
	add(bpf_map_lookup_elem(&rules, &rule), asking->packet.len);
	return entry;
}

/* Not a SYN that is sent again, nor what a host without the flow answers to a
 * reply (RST): these need no reply to have been received. */
static __always_inline bool goes_on(const struct weir_wall_key *key,
				    __u8 tcp_flags)
{
	return key->protocol != IPPROTO_TCP || tcp_flags & TCP_ACK;
}

/*
 * From now on it is found in the other table. It stays in this one as well
 * until others take its place: were it taken away, a packet on another CPU,
 * between its two look-ups, would find it in neither.
 */
static __always_inline void establish(const struct weir_wall_key *direction,
				      const struct weir_wall_entry *entry)
{
	struct weir_wall_entry copy = *entry;

	bpf_map_update_elem(&established, direction, &copy, BPF_ANY);
}

/* Is the packet of an accepted flow? WEIR_WALL_OUTCOME_COUNT: no. */
static __always_inline enum weir_wall_outcome
of_accepted(const struct asking *asking, const struct weir_wall_key *key,
	    __u8 tcp_flags)
{
	const struct weir_wall_key *direction;
	struct weir_wall_entry *entry;
	struct weir_wall_key reverse;
	bool answers = reverse_of(key, &reverse);

	direction = key->side ? &reverse : key;
	entry = decided(&established, direction, asking, true);
	if (entry)
		return (entry->state & WEIR_WALL_SECOND) == key->side
			       ? WEIR_WALL_ACCEPTED
			       : WEIR_WALL_REPLY;
	entry = decided(&accepted, key, asking, true);
	if (entry) {
		if (entry->state & WEIR_WALL_ANSWERED &&
		    goes_on(key, tcp_flags))
			establish(direction, entry);
		return WEIR_WALL_ACCEPTED;
	}
	entry = answers ? decided(&accepted, &reverse, asking, true) : NULL;
	if (!entry)
		return WEIR_WALL_OUTCOME_COUNT;
	if (!(entry->state & WEIR_WALL_ANSWERED))
		entry->state |= WEIR_WALL_ANSWERED;
	return WEIR_WALL_REPLY;
}

#endif /* WEIR_WALL_FLOW_H */
