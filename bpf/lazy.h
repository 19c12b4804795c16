/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lazy receiver processing (Druschel & Banga, section 3.1): a packet for a lazy
 * socket is put on a ring that the socket's process reads, as it came. IP and
 * UDP input happen there, in the receive call; a ring that is full discards
 * early. This works whether the gate sleeps or not, and costs a host without
 * lazy sockets one branch.
 *
 * Only what the kernel would surely give to that socket is put there: a whole
 * packet without options to an own address, from an address that may be a
 * source. All else goes to the kernel, and by it to the same socket.
 */
#ifndef WEIR_LAZY_H
#define WEIR_LAZY_H

#include "account.h"
#include "alarm.h"
#include "counters.h"
#include "merged.h"
#include "parse.h"
#include "udp.h"
#include "unfinished.h"

/* Set by user space: packets of this driver may have a partial checksum. */
__u32 lazy_may_be_partial;

/* enum of <linux/skbuff.h>'s, which is not for user space. */
#define LAZY_CHECKSUM_UNNECESSARY 1
#define LAZY_GSO_TUNNEL (1U << 10 | 1U << 11)
#define LAZY_GSO_UDP_L4 (1U << 17)
#define LAZY_GSO_FRAGLIST (1U << 18)

static __always_inline bool has_lazy_sockets(void)
{
	struct weir_lazy *it = the_lazy();

	return it && *(volatile __u32 *)&it->sockets &&
	       !*(volatile __u32 *)&it->held;
}

static __always_inline bool is_lazy_port(__be16 port_be)
{
	struct weir_lazy *it = the_lazy();
	__u32 port = bpf_ntohs(port_be);

	return it &&
	       it->ports[port / 64 & (WEIR_PORT_WORDS - 1)] >> (port % 64) & 1;
}

/*
 * May what the gate was told of its interface, and of what it would bypass, be
 * relied on, and is it told what a packet is? XDP on skbs is not, of one that
 * stands for several.
 */
static __always_inline bool lazy_may_deliver(void)
{
	struct weir_lazy *it = the_lazy();

	return it && !interface.policy_off && !interface.shadow &&
	       !interface.diverted && !interface.translated &&
	       !interface.packet_max && !is_stale() &&
	       !is_past(&it->fresh_until_ns);
}

/*
 * Would ip_route_input_slow() and ip6_rcv_core() take this for a source?
 * IPv6's own addresses are refused by the routing table alone, and so is what
 * the strict reverse path filter refuses, or what is of an own prefix: where
 * there is such a thing, user space holds.
 */
static __always_inline bool is_likely_source(const struct flow *flow)
{
	__u32 first;

	if (flow->family == WEIR_FAMILY_IPV6) {
		first = bpf_ntohl(flow->source[0]);
		return first >> 24 != 0xff && first != 0;
	}
	return !is_special4(flow->source[0]) &&
	       !is_own_source4(flow->source[0]);
}

/*
 * The cookie of the socket that the kernel would give the packet to; 0: nobody,
 * or somebody whom only the kernel can serve: a filter, a kernel's receiver or
 * a sockmap has the socket, or the group's member is not picked by the hash
 * alone.
 */
static __noinline __u64 lazy_cookie(void *ctx, bool on_skb,
				    const struct flow *flow)
{
	__u64 address = lookup_is_steered(net_of(ctx, on_skb))
				? 0
				: udp_find(ctx, flow);
	const struct udp_sock *up;
	const struct sock *sk;

	if (!address)
		return 0;
	sk = kernel_cast(address, struct sock);
	up = kernel_cast(address, struct udp_sock);
	if (kernel_address(sk, sk_filter) || kernel_read(up, encap_type) ||
	    kernel_address(sk, sk_user_data))
		return 0;
	if (reuseport_may_pick_another(sk))
		return 0;
	return kernel_read(sk, __sk_common.skc_cookie.counter);
}

/*
 * Copies a packet into a record of a size that the verifier knows, the least
 * that it fits into. The kernel wakes the reader if it had caught up.
 */
static __always_inline bool lazy_put(void *ctx, bool on_skb, void *ring,
				     const struct weir_lazy_record *head,
				     const __u64 size)
{
	struct weir_lazy_record *record = bpf_ringbuf_reserve(ring, size, 0);
	/* Of len > 0 Linux 6.1's verifier learns nothing. */
	__u64 last = (__u64)head->len - 1;
	__u32 from = LINK_HEADER_LEN;
	long failed = -1;

	if (!record)
		return false;
	*record = *head;
	barrier_var(last);
	if (last < size - sizeof(*record))
		failed = on_skb ? bpf_skb_load_bytes(ctx, from, record + 1,
						     last + 1)
				: bpf_xdp_load_bytes(ctx, from, record + 1,
						     last + 1);
	if (failed)
		bpf_ringbuf_discard(record, 0);
	else
		bpf_ringbuf_submit(record, 0);
	return true;
}

/* The largest record but one, and the least ring that holds one larger. */
#define LAZY_USUAL 9728
#define LAZY_LARGE_RING (128 << 10)

static __always_inline bool lazy_fits(const struct weir_lazy_record *head,
				      __u32 size)
{
	return head->len <= size - sizeof(*head);
}

static __always_inline bool lazy_put_any(void *ctx, bool on_skb, void *ring,
					 const struct weir_lazy_record *head)
{
	static const __u32 sizes[] = {96,   192,  384,	     768,
				      1536, 4096, LAZY_USUAL};
	unsigned int i;

#pragma unroll
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (lazy_fits(head, sizes[i]))
			return lazy_put(ctx, on_skb, ring, head, sizes[i]);
	}
	return lazy_put(ctx, on_skb, ring, head, 66048);
}

/* Only the socket knows whether it takes those (UDP_NO_CHECK6_RX). */
static __always_inline bool
is_ipv6_without_checksum(const struct cursor *behind, const struct flow *flow)
{
	const struct udphdr *udp = behind->pos - sizeof(*udp);

	return flow->family == WEIR_FAMILY_IPV6 && !udp->check;
}

/* The ring that a packet is for; NULL: it goes the usual way. */
static __always_inline void *lazy_ring_of(void *ctx, bool on_skb,
					  struct cursor cursor, __u32 len,
					  struct flow *flow)
{
	__u64 cookie;

	if (parse_usual(&cursor, flow, len) != WEIR_PARSE_UDP ||
	    !is_lazy_port(flow->port_be) || !is_own_mac(flow->mac))
		return NULL;
	if (is_ipv6_without_checksum(&cursor, flow))
		return NULL;
	if (!lazy_may_deliver() || !is_likely_source(flow) ||
	    addressed_to(flow) != ADDRESSED_HERE)
		return NULL;
	cookie = lazy_cookie(ctx, on_skb, flow);
	return cookie ? bpf_map_lookup_elem(&lazy_rings, &cookie) : NULL;
}

/*
 * Is a packet put on a ring, or discarded there? The head says what is known of
 * it beside its flow. One that no record of the ring could hold is the
 * kernel's.
 */
static __always_inline bool is_lazy(void *ctx, bool on_skb,
				    struct cursor cursor, __u32 len,
				    struct weir_lazy_record *head,
				    struct weir_counter seen)
{
	struct weir_poll *poll = current_poll();
	struct flow flow = {};
	bool put;
	void *ring;

	if (!poll)
		return false;
	ring = lazy_ring_of(ctx, on_skb, cursor, len, &flow);
	if (!ring)
		return false;
	if (!on_skb && interface.unfinished && is_tagged_aside(ctx))
		return false;
	head->at_ns = poll->now_ns;
	head->len = flow.ip_len;
	head->version = WEIR_LAZY_VERSION;
	if (!lazy_fits(head, LAZY_USUAL) &&
	    bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) < LAZY_LARGE_RING)
		return false;
	put = lazy_put_any(ctx, on_skb, ring, head);
	if (!put)
		count_discard(poll, seen.packets);
	else if (!is_asleep())
		/* Their ring bounds them. Of kind UDP, channels without an
		 * account would be limited for them. */
		kind_note(WEIR_KIND_OTHER, poll, seen.packets);
	count(put ? WEIR_REASON_LAZY : WEIR_REASON_LAZY_FULL, seen);
	return true;
}

static __noinline bool xdp_is_lazy(struct xdp_md *ctx)
{
	__u32 len = bpf_xdp_get_buff_len(ctx);
	struct weir_lazy_record head = {
		.ifindex = ctx->ingress_ifindex,
		.flags = lazy_may_be_partial ? WEIR_LAZY_MAY_BE_PARTIAL : 0,
	};

	return is_lazy(ctx, false, cursor_of(ctx), len, &head,
		       (struct weir_counter){.packets = 1, .bytes = len});
}

static __always_inline __u8 skb_lazy_flags(struct __sk_buff *skb)
{
	const struct sk_buff *kernel_skb;
	__u8 summed;

	if (!has_kern_ctx())
		return WEIR_LAZY_MAY_BE_PARTIAL;
	kernel_skb = bpf_cast_to_kern_ctx(skb);
	summed = BPF_CORE_READ_BITFIELD(kernel_skb, ip_summed);
	return summed == LAZY_CHECKSUM_UNNECESSARY || summed == CHECKSUM_PARTIAL
		       ? WEIR_LAZY_CHECKED
		       : 0;
}

/*
 * Does it stand for the datagrams that it would be cut into? A guest's datagram
 * that is to be sent in fragments does not (SKB_GSO_UDP), nor does a tunnel's
 * packet, of which each piece would have the outer headers (SKB_GSO_UDP_TUNNEL,
 * SKB_GSO_UDP_TUNNEL_CSUM).
 */
static __always_inline bool skb_is_whole_datagrams(struct __sk_buff *skb)
{
	const struct skb_shared_info *shared;
	const struct sk_buff *kernel_skb;
	__u32 type;

	if (!skb->gso_size)
		return true;
	if (!has_kern_ctx())
		return false;
	kernel_skb = bpf_cast_to_kern_ctx(skb);
	shared = (void *)(kernel_skb->head + kernel_skb->end);
	type = BPF_CORE_READ(shared, gso_type);
	return type & (LAZY_GSO_UDP_L4 | LAZY_GSO_FRAGLIST) &&
	       !(type & LAZY_GSO_TUNNEL);
}

static __noinline bool skb_is_lazy(struct __sk_buff *skb)
{
	struct weir_lazy_record head = {
		.ifindex = skb->ingress_ifindex,
		.gso_size = skb->gso_size,
		.flags = skb_lazy_flags(skb),
	};
	struct cursor cursor;

	/* The kernel has taken the tag off: skb_vlan_untag(). */
	if (skb->vlan_present || !skb_is_whole_datagrams(skb))
		return false;
	pull_headers(skb);
	cursor = cursor_of(skb);
	if (is_misnamed(skb, cursor))
		return false;
	return is_lazy(skb, true, cursor, skb->len, &head, packets_of(skb));
}

#endif /* WEIR_LAZY_H */
