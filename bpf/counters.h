/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Each packet is counted once, under one reason, on the CPU that saw it; and
 * once for its channel, if that has an address of its own. Kinds without one
 * (ICMP, ARP, ...) are counted by reason alone.
 */
#ifndef WEIR_COUNTERS_H
#define WEIR_COUNTERS_H

#include "abi.h"
#include "map.h"
#include "verdict.h"
#include <stdbool.h>

MAP(counters, BPF_MAP_TYPE_PERCPU_ARRAY, 0, WEIR_REASON_COUNT, __u32,
    struct weir_counter);

static __always_inline void counter_add(struct weir_counter *counter,
					struct weir_counter seen)
{
	counter->packets += seen.packets;
	counter->bytes += seen.bytes;
}

static __always_inline void count(enum weir_reason reason,
				  struct weir_counter seen)
{
	__u32 key = reason;
	struct weir_counter *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter)
		counter_add(counter, seen);
}

MAP(channels, BPF_MAP_TYPE_PERCPU_HASH, 0, WEIR_CHANNELS,
    struct weir_channel_key, struct weir_channel);

/* Where the channels beyond WEIR_CHANNELS are counted together, per CPU. */
MAP_OF_ONE(get_overflow_channel, overflow_channel, BPF_MAP_TYPE_PERCPU_ARRAY, 0,
	   struct weir_channel);

static __always_inline bool is_addressed(__u8 kind)
{
#define IS_ADDRESSED(name, bound, addressed, text, description) \
	|| (addressed && kind == WEIR_KIND_##name)
	return false WEIR_KINDS(IS_ADDRESSED);
#undef IS_ADDRESSED
}

static __always_inline struct weir_channel *
channel_of(const struct weir_channel_key *key)
{
	static const struct weir_channel empty;
	struct weir_channel *channel = bpf_map_lookup_elem(&channels, key);

	if (channel)
		return channel;
	bpf_map_update_elem(&channels, key, &empty, BPF_NOEXIST);
	channel = bpf_map_lookup_elem(&channels, key);
	return channel ?: get_overflow_channel();
}

static __always_inline void channel_add(const struct weir_channel_key *key,
					const struct weir_counter *seen)
{
	struct weir_channel *channel;
	int i;

	if (!is_addressed(key->kind))
		return;
	channel = channel_of(key);
	if (!channel)
		return;
	for (i = 0; i < WEIR_SEEN_COUNT; i++)
		counter_add(&channel->seen[i], seen[i]);
}

#endif /* WEIR_COUNTERS_H */
