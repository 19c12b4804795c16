// SPDX-License-Identifier: GPL-2.0-only
/*
 * When the replies of the lab's echo server left: for each, the time since its
 * question was made, by the question's number. At tc egress of the server's
 * interface, because a veth delivers on the CPU that sent, in a softirq that
 * may have to wait there for the flood's: with a wire, the reply would be on
 * it.
 */
#include "map.h"
#include "parse.h"
#include <linux/pkt_cls.h>

/* The server's port. */
const volatile __u16 port;

/* Nanoseconds; 0: no reply. User space sets how many. */
MAP(ages, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, 1, __u32, __u64);

/* The stamp of a reply, or NULL; the server's host sends plain headers. */
static __always_inline const struct weir_stamp *stamp_of(struct cursor cursor,
							 __u32 len)
{
	struct flow flow = {};

	if (parse_usual(&cursor, &flow, len) != WEIR_PARSE_UDP ||
	    flow.source_port_be != bpf_htons(port))
		return NULL;
	return cursor_take(&cursor, sizeof(struct weir_stamp));
}

SEC("tc")
int weir_replies(struct __sk_buff *skb)
{
	struct cursor cursor = cursor_of(skb);
	const struct weir_stamp *stamp = stamp_of(cursor, skb->len);
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
