/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The forwarding fast path: a packet that needs nothing but routing leaves at
 * the driver, processed to completion, without an IP input queue (Mogul &
 * Ramakrishnan, section 5.2). Whatever else there is to do about a packet, the
 * kernel does.
 */
#ifndef WEIR_FORWARD_H
#define WEIR_FORWARD_H

#include "forward_ask.h"
#include "unfinished.h"

#define WEIR_EGRESSES 64
#define WEIR_NEXT_HOPS 4096
/* Traffic confirms a neighbour, or has the kernel ask for it anew, this often
 * at least. */
#define NEXT_HOP_SEEN_NS 1000000000ULL
/* Ethernet pads what is shorter. */
#define PADDED_LEN 46

/* Where a packet has come in, and when (CLOCK_MONOTONIC). */
struct ingress {
	const __be16 *mac;
	__u64 now;
	bool unfinished; /* is_unfinished() is to be asked: a veth */
};

struct weir_next_hop {
	__u32 address[4];
	__u32 ifindex;
};

/* Where packets may leave, by the interface's number. */
MAP(out_devices, BPF_MAP_TYPE_DEVMAP_HASH, 0, WEIR_EGRESSES, __u32, __u32);
/* When the kernel was last given a packet for a next hop. */
MAP(next_hops, BPF_MAP_TYPE_LRU_HASH, 0, WEIR_NEXT_HOPS, struct weir_next_hop,
    __u64);

/*
 * Now and then the kernel forwards a packet itself, and so learns that the
 * neighbour is in use, and whether it still is where it was.
 */
static __always_inline bool is_due_to_kernel(const struct bpf_fib_lookup *route,
					     __u64 now)
{
	struct weir_next_hop hop = {.ifindex = route->ifindex};
	__u64 *seen;

	copy_address(hop.address, route->ipv6_dst);
	seen = bpf_map_lookup_elem(&next_hops, &hop);
	if (seen && now - *seen < NEXT_HOP_SEEN_NS)
		return false;
	bpf_map_update_elem(&next_hops, &hop, &now, BPF_ANY);
	return true;
}

/* RFC 1624: one less in the first byte of a word. */
static __always_inline void decrease_ttl(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
}

/*
 * Is this packet's route one that the driver can take it on? Then it is given
 * the egress: user space may take that away at any time, so it is not looked
 * for again once the packet is written to.
 */
static __always_inline bool takes_fast_route(struct xdp_md *ctx,
					     struct bpf_fib_lookup *route,
					     __u32 len, __u64 now)
{
	__u32 ingress = ctx->ingress_ifindex;

	len -= sizeof(struct ethernet);
	/* The kernel cuts off what is behind the packet, or drops it. */
	if (len < route->tot_len || (len > route->tot_len && len > PADDED_LEN))
		return false;
	route->ifindex = ingress;
	/* A sender that could do without this router is told so (ICMP). */
	return bpf_fib_lookup(ctx, route, sizeof(*route), 0) ==
		       BPF_FIB_LKUP_RET_SUCCESS &&
	       route->ifindex != ingress &&
	       bpf_redirect_map(&out_devices, route->ifindex, XDP_PASS) ==
		       XDP_REDIRECT &&
	       !is_due_to_kernel(route, now);
}

static __always_inline void address(struct ethernet *eth,
				    const struct bpf_fib_lookup *route)
{
	__builtin_memcpy(eth->destination, route->dmac, ETH_ALEN);
	__builtin_memcpy(eth->source, route->smac, ETH_ALEN);
}

/* XDP_REDIRECT, or XDP_PASS: the packet is as it was, for the kernel. */
static __always_inline long forward_fast(struct xdp_md *ctx, __u32 len,
					 const struct ingress *at)
{
	struct cursor cursor = cursor_of(ctx);
	struct ethernet *eth = cursor_take(&cursor, sizeof(*eth));
	struct bpf_fib_lookup route = {};
	struct ipv6hdr *ip6;
	struct iphdr *ip4;

	/* In several buffers not every driver takes it. */
	if (!eth || !is_same_mac(eth->destination, at->mac) ||
	    ctx->data_end - ctx->data != len ||
	    (at->unfinished && is_unfinished(ctx)))
		return XDP_PASS;
	if (eth->ethertype_be == bpf_htons(ETH_P_IP)) {
		ip4 = cursor_take(&cursor, sizeof(*ip4));
		if (!ip4 || !question4(ip4, &route) ||
		    !takes_fast_route(ctx, &route, len, at->now))
			return XDP_PASS;
		decrease_ttl(ip4);
		address(eth, &route);
		return XDP_REDIRECT;
	}
	if (eth->ethertype_be == bpf_htons(ETH_P_IPV6)) {
		ip6 = cursor_take(&cursor, sizeof(*ip6));
		if (!ip6 || !question6(ip6, &route) ||
		    !takes_fast_route(ctx, &route, len, at->now))
			return XDP_PASS;
		ip6->hop_limit--;
		address(eth, &route);
		return XDP_REDIRECT;
	}
	return XDP_PASS;
}

#endif /* WEIR_FORWARD_H */
