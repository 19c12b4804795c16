// SPDX-License-Identifier: GPL-2.0-only
/*
 * When the replies of the lab's echo server left: for each, the time since its
 * question was made, by the question's number. At tc egress of the server's
 * interface, because a veth delivers on the CPU that sent, in a softirq that
 * may have to wait there for the flood's: with a wire, the reply would be on
 * it.
 */
#include "abi.h"
#include "cursor.h"
#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

/* The server's port. */
const volatile __u16 port;

/* Nanoseconds; 0: no reply. User space sets how many. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} ages SEC(".maps");

/* The stamp of a reply, or NULL; the server's host sends plain headers. */
static __always_inline const struct weir_stamp *stamp_of(struct cursor *cursor)
{
	const struct ethhdr *eth = cursor_take(cursor, sizeof(*eth));
	const struct udphdr *uh;
	const struct ipv6hdr *ip6;
	const struct iphdr *ip;
	__u8 protocol;

	if (!eth)
		return NULL;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		ip = cursor_take(cursor, sizeof(*ip));
		if (!ip)
			return NULL;
		protocol = ip->protocol;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		ip6 = cursor_take(cursor, sizeof(*ip6));
		if (!ip6)
			return NULL;
		protocol = ip6->nexthdr;
	} else {
		return NULL;
	}
	if (protocol != IPPROTO_UDP)
		return NULL;
	uh = cursor_take(cursor, sizeof(*uh));
	if (!uh || uh->source != bpf_htons(port))
		return NULL;
	return cursor_take(cursor, sizeof(struct weir_stamp));
}

SEC("tc")
int weir_replies(struct __sk_buff *skb)
{
	struct cursor cursor = cursor_over((void *)(long)skb->data,
					   (void *)(long)skb->data_end);
	const struct weir_stamp *stamp = stamp_of(&cursor);
	__u32 number;
	__u64 *age;

	if (!stamp)
		return TC_ACT_UNSPEC;
	number = stamp->sequence;
	age = bpf_map_lookup_elem(&ages, &number);
	if (age)
		*age = bpf_ktime_get_ns() - stamp->sent_ns;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
