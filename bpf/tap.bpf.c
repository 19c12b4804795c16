// SPDX-License-Identifier: GPL-2.0-only
/*
 * A capture's tap: copies packets into a ring that a process reads. It is the
 * filter of a packet socket (AF_PACKET), so it sees what tcpdump would, beside
 * any gate, on every kind of interface, and is gone with its process; and as it
 * takes no packet into that socket, a packet costs no skb and no system call
 * more.
 *
 * weir_tap -> the capture's filter, translated from classic BPF by user space
 * -> weir_tap_copy. They hand on by tail calls, because the filter is made when
 * the capture starts. Without a filter the first goes on to the last itself.
 */
#include "tap.h"
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

const volatile __u32 snaplen = WEIR_TAP_SNAPLEN;
const volatile bool filtered;
/* Copy nothing. */
const volatile bool count_only;
const volatile bool ignore_received;
const volatile bool ignore_sent;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, WEIR_TAP_STAGES);
	__type(key, __u32);
	__type(value, __u32);
} stages SEC(".maps");

/* User space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} tapped SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_tap_counts);
} counts SEC(".maps");

static __always_inline struct weir_tap_counts *current_counts(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

/*
 * A record's room must be known to the verifier: a power of two that `len`
 * fits into. False: the ring is full.
 */
static __always_inline bool copy_into(struct __sk_buff *skb, __u32 len,
				      const __u32 room)
{
	struct weir_tap_record *record;

	record = bpf_ringbuf_reserve(&tapped, sizeof(*record) + room, 0);
	if (!record)
		return false;
	record->time_ns = bpf_ktime_get_ns();
	record->wire_len = skb->len;
	record->vlan_present = skb->vlan_present;
	record->vlan_tci = skb->vlan_tci;
	record->vlan_protocol_be = skb->vlan_proto;
	len = ((len - 1) & (room - 1)) + 1;
	record->captured_len = len;
	if (bpf_skb_load_bytes(skb, 0, record + 1, len))
		record->captured_len = 0;
	bpf_ringbuf_submit(record, 0);
	return true;
}

static __always_inline bool copy(struct __sk_buff *skb)
{
	__u32 len = skb->len < snaplen ? skb->len : snaplen;

	if (!len)
		return true;
	if (len <= 128)
		return copy_into(skb, len, 128);
	if (len <= 512)
		return copy_into(skb, len, 512);
	if (len <= 2048)
		return copy_into(skb, len, 2048);
	return copy_into(skb, len, WEIR_TAP_SNAPLEN);
}

static __always_inline int take(struct __sk_buff *skb)
{
	struct weir_tap_counts *it = current_counts();

	if (!it)
		return 0;
	it->matched++;
	it->matched_bytes += skb->len;
	if (!count_only && !copy(skb))
		it->dropped++;
	return 0;
}

SEC("socket")
int weir_tap_copy(struct __sk_buff *skb)
{
	return take(skb);
}

SEC("socket")
int weir_tap(struct __sk_buff *skb)
{
	bool sent = skb->pkt_type == PACKET_OUTGOING;
	struct weir_tap_counts *it;

	if (sent ? ignore_sent : ignore_received)
		return 0;
	it = current_counts();
	if (it)
		it->seen++;
	if (!filtered)
		return take(skb);
	bpf_tail_call(skb, &stages, WEIR_TAP_FILTER);
	return 0;
}

/* For user space, which knows the types of variables and of maps alone. */
enum weir_tap_stage stage_type;
struct weir_tap_record record_type;

char LICENSE[] SEC("license") = "GPL";
