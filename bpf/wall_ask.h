/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet at the wall: whether it is forwarded, and its question. */
#ifndef WEIR_WALL_ASK_H
#define WEIR_WALL_ASK_H

#include "parse.h"
#include "parsed.h"
#include "wall_key.h"

#define AF_INET 2
#define AF_INET6 10

/* User space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} asked SEC(".maps");

struct asking {
	struct __sk_buff *skb; /* NULL in the driver */
	struct xdp_md *xdp;
	struct cursor cursor;
	__u64 now;
	__u32 len;
	__u32 ifindex;
	__u32 tagged; /* the kernel has taken a VLAN tag off */
};

/*
 * Would the kernel forward it, to whatever interface? What it refuses to
 * forward, it answers itself.
 */
static __always_inline bool is_forwarded(const struct asking *packet,
					 const struct flow *flow)
{
	bool is_ip6 = flow->family == WEIR_FAMILY_IPV6;
	struct bpf_fib_lookup route = {
		.family = is_ip6 ? AF_INET6 : AF_INET,
		.l4_protocol = flow->protocol,
		.sport = flow->source_port_be,
		.dport = flow->port_be,
		.ifindex = packet->ifindex,
	};
	void *ctx = packet->skb ? (void *)packet->skb : (void *)packet->xdp;

	if (stays_on_link(flow))
		return false;
	copy_address(route.ipv6_src, flow->source);
	copy_address(route.ipv6_dst, flow->destination);
	switch (bpf_fib_lookup(ctx, &route, sizeof(route), 0)) {
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
ask_with(const struct asking *packet, const struct flow *flow,
	 enum weir_parse parse, const struct weir_wall_key *key, __u32 len,
	 const __u32 room)
{
	struct weir_wall_record *record;
	long failed = 0;

	record = bpf_ringbuf_reserve(&asked, sizeof(*record) + room, 0);
	if (!record)
		return WEIR_WALL_NO_ROOM;
	__builtin_memset(record, 0, sizeof(*record));
	record->key = *key;
	parsed_from(flow, parse, &record->parsed);
	record->ifindex = packet->ifindex;
	if (len) {
		/* Said once more for the verifier. */
		barrier_var(len);
		len = ((len - 1) & (room - 1)) + 1;
		failed = packet->skb ? bpf_skb_load_bytes(packet->skb, 0,
							  record + 1, len)
				     : bpf_xdp_load_bytes(packet->xdp, 0,
							  record + 1, len);
		record->held_len = failed ? 0 : len;
	}
	bpf_ringbuf_submit(record, 0);
	return len && !failed ? WEIR_WALL_ASKED : WEIR_WALL_NOT_HELD;
}

static __always_inline enum weir_wall_outcome
ask(const struct asking *packet, const struct flow *flow, enum weir_parse parse,
    const struct weir_wall_key *key)
{
	__u32 len = packet->len;

	/* A tag that was taken off cannot be put back. */
	if (len > WEIR_WALL_HELD || packet->tagged)
		return ask_with(packet, flow, parse, key, 0, 8);
	if (len <= 256)
		return ask_with(packet, flow, parse, key, len, 256);
	return ask_with(packet, flow, parse, key, len, WEIR_WALL_HELD);
}

#endif /* WEIR_WALL_ASK_H */
