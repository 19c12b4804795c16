/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * At tc, GRO may have merged packets of one flow into one skb, and a local
 * sender may never have cut it up. It counts as the packets that it stands for.
 */
#ifndef WEIR_MERGED_H
#define WEIR_MERGED_H

#include "link.h"

/* Ethernet, IPv4 with options or IPv6, TCP with options: all that is read. */
#define SKB_HEADERS_LEN 134
/* struct hop_jumbo_hdr */
#define JUMBO_LEN 8

/*
 * Bytes of a packet's headers if they are UDP's or TCP's, without IP options or
 * extensions, and all there but for TCP's options; else 0.
 */
static __always_inline __u32 usual_headers_len(struct cursor cursor)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip4;
	struct tcphdr *tcp;
	__be16 ethertype_be;
	__u32 ip_len;
	__u8 protocol, *jumbo;

	if (!take_link(&cursor, &ethertype_be))
		return 0;
	if (ethertype_be == bpf_htons(ETH_P_IP)) {
		ip4 = cursor_take(&cursor, sizeof(*ip4));
		if (!ip4 || ip4->ihl != sizeof(*ip4) / 4)
			return 0;
		ip_len = sizeof(*ip4);
		protocol = ip4->protocol;
	} else if (ethertype_be == bpf_htons(ETH_P_IPV6)) {
		ip6 = cursor_take(&cursor, sizeof(*ip6));
		if (!ip6)
			return 0;
		ip_len = sizeof(*ip6);
		protocol = ip6->nexthdr;
		/* BIG TCP's own, which none of its packets has. */
		jumbo = protocol == IPPROTO_HOPOPTS
				? cursor_take(&cursor, JUMBO_LEN)
				: NULL;
		if (jumbo)
			protocol = jumbo[0];
	} else {
		return 0;
	}
	if (protocol == IPPROTO_UDP)
		return cursor_take(&cursor, sizeof(struct udphdr))
			       ? LINK_HEADER_LEN + ip_len +
					 sizeof(struct udphdr)
			       : 0;
	tcp = cursor_take(&cursor, sizeof(*tcp));
	if (protocol != IPPROTO_TCP || !tcp)
		return 0;
	return LINK_HEADER_LEN + ip_len + tcp->doff * 4;
}

/* The packets that an skb stands for, and their bytes as on the wire. */
static __always_inline struct weir_counter
packets_of(const struct __sk_buff *skb)
{
	struct cursor cursor = cursor_of(skb);
	struct weir_counter one = {.packets = 1, .bytes = skb->len};
	__u32 gso_size = skb->gso_size, packets = skb->gso_segs, headers_len;

	if (!gso_size)
		return one;
	headers_len = usual_headers_len(cursor);
	if (!headers_len || headers_len >= skb->len)
		return one;
	/* A hypervisor does not tell how many (SKB_GSO_DODGY). */
	if (!packets)
		packets = (skb->len - headers_len + gso_size - 1) / gso_size;
	return (struct weir_counter){
		.packets = packets,
		.bytes = skb->len + (__u64)(packets - 1) * headers_len,
	};
}

/*
 * Makes the headers readable: a driver may have left them in a page. Without
 * memory for that the packet looks cut short, and passes. The cursor must be
 * made after it.
 *
 * As a rule they are all that is not in a page. Then nothing may be pulled:
 * payload that moved would cost a copy of the head, which the sender's own
 * queue has too (pskb_expand_head()).
 */
static __always_inline void pull_headers(struct __sk_buff *skb)
{
	__u32 wanted = skb->len < SKB_HEADERS_LEN ? skb->len : SKB_HEADERS_LEN;
	void *data_end = (void *)(long)skb->data_end;
	void *data = (void *)(long)skb->data;

	if (data + wanted <= data_end ||
	    usual_headers_len(cursor_over(data, data_end)))
		return;
	bpf_skb_pull_data(skb, wanted);
}

#endif /* WEIR_MERGED_H */
