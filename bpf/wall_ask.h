/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet at the wall: whether it is the router's own, and its question. */
#ifndef WEIR_WALL_ASK_H
#define WEIR_WALL_ASK_H

#include "either.h"
#include "local.h"
#include "parse.h"
#include "parsed.h"
#include "unfinished.h"
#include "wall_key.h"

struct asked {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* user space sets it */
};

/* One for each side: a flood from one takes no room of the other's. */
struct asked asked_first SEC(".maps");
struct asked asked_second SEC(".maps");

struct asking {
	struct either packet;
	struct cursor cursor;
	__u64 now;
	__u32 ifindex;
};

/*
 * Is it for the router itself, or for all on a link? Link-local is, for one, a
 * neighbour's answer while the router's own address is tentative. Whether
 * anything else has a route, the wall cannot know: a mark may give it one
 * later.
 */
static __always_inline bool is_own(const struct flow *flow)
{
	const __u32 *to = flow->destination;

	if (flow->family == WEIR_FAMILY_IPV6)
		return is_link_local6(to) ||
		       addressed_to6(to) != ADDRESSED_ELSEWHERE;
	return addressed_to4(to[0]) != ADDRESSED_ELSEWHERE;
}

static __always_inline enum weir_wall_outcome
ask_with(const struct asking *asking, const struct flow *flow,
	 enum weir_parse parse, const struct weir_wall_key *key, __u32 len,
	 const __u32 room)
{
	struct weir_wall_record *record;
	__u32 held = 0;

	record = key->side ? bpf_ringbuf_reserve(&asked_second,
						 sizeof(*record) + room, 0)
			   : bpf_ringbuf_reserve(&asked_first,
						 sizeof(*record) + room, 0);
	if (!record)
		return WEIR_WALL_NO_ROOM;
	__builtin_memset(record, 0, sizeof(*record));
	record->key = *key;
	parsed_from(flow, parse, &record->parsed);
	record->ifindex = asking->ifindex;
	if (len)
		held = either_copy(&asking->packet, record + 1, len, room);
	record->held_len = held;
	bpf_ringbuf_submit(record, 0);
	return held ? WEIR_WALL_ASKED : WEIR_WALL_NOT_HELD;
}

/* It could not be put back: its VLAN tag is off, or it stands for several. */
static __always_inline bool is_altered(const struct either *packet, bool veth)
{
	if (packet->skb)
		return packet->skb->vlan_present || packet->skb->gso_size;
	return veth && is_tagged_aside(packet->xdp);
}

static __always_inline enum weir_wall_outcome
ask(const struct asking *asking, const struct flow *flow, enum weir_parse parse,
    const struct weir_wall_key *key, bool veth)
{
	__u32 len = asking->packet.len;

	if (len > WEIR_WALL_HELD || is_altered(&asking->packet, veth))
		return ask_with(asking, flow, parse, key, 0, 8);
	if (len <= 256)
		return ask_with(asking, flow, parse, key, len, 256);
	return ask_with(asking, flow, parse, key, len, WEIR_WALL_HELD);
}

#endif /* WEIR_WALL_ASK_H */
