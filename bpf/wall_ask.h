/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet at the wall: whether it is forwarded, and its question. */
#ifndef WEIR_WALL_ASK_H
#define WEIR_WALL_ASK_H

#include "either.h"
#include "lookup.h"
#include "parse.h"
#include "parsed.h"
#include "wall_key.h"

/* User space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} asked SEC(".maps");

struct asking {
	struct either packet;
	struct cursor cursor;
	__u64 now;
	__u32 ifindex;
	/* It could not be put back: its VLAN tag is off, or it stands for
	 * several. */
	__u32 altered;
};

/*
 * Would the kernel forward it, to whatever interface? What it refuses to
 * forward, it answers itself.
 */
static __always_inline bool is_forwarded(const struct asking *asking,
					 const struct flow *flow)
{
	const struct either *packet = &asking->packet;
	void *ctx = packet->skb ? (void *)packet->skb : (void *)packet->xdp;
	struct bpf_fib_lookup route;

	if (stays_on_link(flow))
		return false;
	switch (route_of(ctx, flow, asking->ifindex, 0, &route)) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
	case BPF_FIB_LKUP_RET_NOT_FWDED:
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return false;
	default: /* also where the lookup itself fails */
		return true;
	}
}

static __always_inline enum weir_wall_outcome
ask_with(const struct asking *asking, const struct flow *flow,
	 enum weir_parse parse, const struct weir_wall_key *key, __u32 len,
	 const __u32 room)
{
	struct weir_wall_record *record;
	__u32 held = 0;

	record = bpf_ringbuf_reserve(&asked, sizeof(*record) + room, 0);
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

static __always_inline enum weir_wall_outcome
ask(const struct asking *asking, const struct flow *flow, enum weir_parse parse,
    const struct weir_wall_key *key)
{
	__u32 len = asking->packet.len;

	if (len > WEIR_WALL_HELD || asking->altered)
		return ask_with(asking, flow, parse, key, 0, 8);
	if (len <= 256)
		return ask_with(asking, flow, parse, key, len, 256);
	return ask_with(asking, flow, parse, key, len, WEIR_WALL_HELD);
}

#endif /* WEIR_WALL_ASK_H */
