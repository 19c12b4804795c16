// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel half of `weir screen`: a wall in front of forwarding.
 *
 * Packets of a flow that the screen has accepted pass, and so do their replies,
 * and whatever is the router's own. Those of a denied flow are dropped. Any
 * other packet is copied into the screen's ring and dropped; when the screen
 * accepts the flow, weir_wall_again lets the interface receive the copy.
 *
 * Denied flows have a table of their own, so that a flood of them evicts none
 * that is accepted; and so have flows that are established (wall_flow.h), so
 * that a flood of accepted ones evicts none of those.
 */
#include "wall.h"
#include "forward.h"
#include "lookup.h"
#include "map.h"
#include "other_host.h"
#include "parsed.h"
#include "unsent.h"
#include "wall_ask.h"
#include "wall_flow.h"
#include <linux/pkt_cls.h>

/* A packet passes while the screen is dead, instead of none that is new. */
const volatile bool fail_open;
/* Packets of accepted flows may leave at the driver. */
const volatile bool forwarding;

/* Until then the screen is alive. It says so again and again. */
__u64 alive_until_ns;

MAP(sides, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, 2, __u32, struct weir_wall_side);
MAP(outcomes, BPF_MAP_TYPE_PERCPU_ARRAY, 0, WEIR_WALL_OUTCOME_COUNT, __u32,
    struct weir_counter);

static __always_inline const struct weir_wall_side *side_at(__u32 number,
							    __u32 ifindex)
{
	const struct weir_wall_side *side =
		bpf_map_lookup_elem(&sides, &number);

	return side && side->ifindex == ifindex ? side : NULL;
}

static __always_inline const struct weir_wall_side *side_of(__u32 ifindex)
{
	return side_at(0, ifindex) ?: side_at(1, ifindex);
}

static __always_inline bool is_open(const struct asking *asking)
{
	return fail_open && asking->now > alive_until_ns;
}

static __always_inline enum weir_wall_outcome
unclear(const struct asking *asking)
{
	return is_open(asking) ? WEIR_WALL_OPEN : WEIR_WALL_UNCLEAR;
}

static __noinline bool has_route(void *ctx, const struct flow *flow,
				 __u32 ifindex)
{
	struct bpf_fib_lookup route;
	long found = route_of(ctx, flow, ifindex, 0, &route);

	return leads_on(found) || found == BPF_FIB_LKUP_RET_UNSUPP_LWT;
}

/*
 * An address that was the router's may have got another place since the screen
 * has last said which are: then there is a route to it.
 */
static __always_inline bool is_still_own(const struct asking *asking,
					 const struct flow *flow,
					 const struct weir_wall_side *side)
{
	const struct either *packet = &asking->packet;
	void *ctx = packet->skb ? (void *)packet->skb : (void *)packet->xdp;

	return (side && asking->now <= side->fresh_until_ns) ||
	       !has_route(ctx, flow, asking->ifindex);
}

static __always_inline enum weir_wall_outcome
of_flow(const struct asking *asking, const struct flow *flow,
	enum weir_parse parse)
{
	const struct weir_wall_side *side = side_of(asking->ifindex);
	enum weir_wall_outcome outcome;
	struct weir_wall_key key;

	key_of(flow, &key);
	key.side = side_at(1, asking->ifindex) ? 1 : 0;
	outcome = of_accepted(asking, &key, flow->tcp_flags);
	if (outcome != WEIR_WALL_OUTCOME_COUNT)
		return outcome;
	if (is_open(asking))
		return WEIR_WALL_OPEN;
	/* Whatever was decided before an address came to be the router's. */
	if (is_own(flow) && is_still_own(asking, flow, side))
		return WEIR_WALL_OWN;
	key.tcp_flags = key.fragment ? 0 : flow->tcp_flags;
	if (decided(&denied, &key, asking, false))
		return WEIR_WALL_DENIED;
	return ask(asking, flow, parse, &key, side && side->unfinished);
}

static __always_inline bool is_elsewhere(const struct asking *asking,
					 const struct flow *flow)
{
	const struct weir_wall_side *side = side_of(asking->ifindex);

	return side && is_for_other_host(&asking->packet, flow->mac, side->mac);
}

/* May there be IP in what the parser does not look into? */
static __always_inline bool is_wrapped(__be16 ethertype_be)
{
	switch (bpf_ntohs(ethertype_be)) {
	case WEIR_WALL_MPLS:
	case WEIR_WALL_MPLS_MULTICAST:
	case WEIR_WALL_PPPOE_SESSION:
	case WEIR_WALL_MACSEC:
	case WEIR_WALL_BATMAN:
	case WEIR_WALL_HSR:
		return true;
	default:
		/* Behind more tags than the parser takes off. */
		return is_vlan(ethertype_be);
	}
}

static __always_inline enum weir_wall_outcome judge(const struct asking *asking)
{
	struct cursor cursor = asking->cursor;
	const struct __sk_buff *skb = asking->packet.skb;
	struct flow flow = {.merged = skb && skb->gso_size};
	enum weir_parse found = parse(&cursor, &flow, asking->packet.len);

	if (is_elsewhere(asking, &flow))
		return WEIR_WALL_ELSEWHERE;
	switch (found) {
	case WEIR_PARSE_ARP:
		return WEIR_WALL_OWN;
	case WEIR_PARSE_OTHER_ETHERTYPE:
		return is_wrapped(flow.ethertype_be) ? unclear(asking)
						     : WEIR_WALL_OWN;
	case WEIR_PARSE_MALFORMED:
	case WEIR_PARSE_IPV6_CHAIN:
		return unclear(asking);
	default:
		break;
	}
	if (flow.routed)
		return unclear(asking);
	return of_flow(asking, &flow, found);
}

/* Counts what becomes of a packet. Does it pass? */
static __always_inline bool passes(__u32 outcome, const struct asking *asking)
{
	add(bpf_map_lookup_elem(&outcomes, &outcome), asking->packet.len);
	return outcome <= WEIR_WALL_OPEN;
}

static __always_inline bool forwards_from(__u32 ifindex)
{
	return side_of(ifindex);
}

/*
 * A packet of an accepted flow; not if nobody has looked for too long whether
 * it would be taken past something.
 */
static __noinline long send_on(struct xdp_md *xdp, __u32 len, __u64 now)
{
	const struct weir_wall_side *side = side_of(xdp->ingress_ifindex);
	struct ingress at = {.now = now};

	if (!side || !side->forwards || now > side->fresh_until_ns)
		return XDP_PASS;
	at.mac = side->mac;
	at.unfinished = side->unfinished;
	return forward_fast(xdp, len, &at);
}

SEC("xdp.frags")
int weir_wall_xdp(struct xdp_md *xdp)
{
	const struct asking asking = {
		.packet = either_xdp(xdp),
		.cursor = cursor_of(xdp),
		.now = bpf_ktime_get_coarse_ns(),
		.ifindex = xdp->ingress_ifindex,
	};
	enum weir_wall_outcome outcome = judge(&asking);
	long action = XDP_PASS;

	if (forwarding && outcome <= WEIR_WALL_REPLY)
		action = send_on(xdp, asking.packet.len, asking.now);
	if (action == XDP_REDIRECT)
		outcome = WEIR_WALL_FORWARDED;
	return passes(outcome, &asking) ? action : XDP_DROP;
}

/* Headers that are to be in the skb's linear part. */
#define HEADERS_LEN 256

SEC("tc")
int weir_wall_tc(struct __sk_buff *skb)
{
	struct asking asking = {
		.packet = either_skb(skb),
		.now = bpf_ktime_get_coarse_ns(),
		.ifindex = skb->ifindex,
	};
	enum weir_wall_outcome outcome = WEIR_WALL_OWN;

	/* The router's own to a group comes back without an Ethernet header
	 * (dev_loopback_xmit()). */
	if (skb->pkt_type != PACKET_LOOPBACK) {
		bpf_skb_pull_data(skb, skb->len < HEADERS_LEN ? skb->len
							      : HEADERS_LEN);
		asking.cursor = cursor_of(skb);
		outcome = judge(&asking);
	}
	return passes(outcome, &asking) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

MAP(held, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, WEIR_WALL_RELEASED, __u32,
    struct weir_wall_held);
/* How many of them go on. */
__u32 held_packets;

static __always_inline void release(struct __sk_buff *skb,
				    struct weir_wall_held *frame)
{
	__u64 last = (__u64)frame->len - 1;

	barrier_var(last);
	if (last >= WEIR_WALL_HELD || bpf_skb_change_tail(skb, last + 1, 0) ||
	    bpf_skb_store_bytes(skb, 0, frame->frame, last + 1, 0))
		return;
	frame->released = !bpf_clone_redirect(skb, skb->cb[0], BPF_F_INGRESS);
}

/* Run by the screen, on any packet; cb[0] is where those held came in. */
SEC("tc")
int weir_wall_again(struct __sk_buff *skb)
{
	struct weir_wall_held *frame;
	__u32 i, number;

	/* The verifier counts in a register alone. */
	for (i = 0; i < WEIR_WALL_RELEASED && i < held_packets; i++) {
		number = i;
		frame = bpf_map_lookup_elem(&held, &number);
		if (!frame)
			break;
		release(skb, frame);
	}
	return 0;
}

/* For user space, which knows the types of variables and of maps alone. */
struct weir_wall_record record_type;
enum weir_family family_type;
enum weir_fragment fragment_type;

char LICENSE[] SEC("license") = "GPL";
