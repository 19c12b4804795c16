// SPDX-License-Identifier: GPL-2.0-only
/*
 * A capture's tap: copies packets into a ring that a process reads.
 *
 * weir_tap is the filter of a packet socket (AF_PACKET), so it sees what
 * tcpdump would, beside any gate, on every kind of interface, and is gone with
 * its process; and as it takes no packet into that socket, a packet costs no
 * skb and no system call more.
 *
 * weir_tap_xdp is in the driver. There, frames that are for other hosts end
 * with the copy, if user space says that nobody but the tap wants them: the
 * kernel would build an skb and drop it (PACKET_OTHERHOST, ip_rcv_core()).
 *
 * Either hands on to the capture's filter, translated from classic BPF by user
 * space, and that to the copy, by tail calls, because the filter is made when
 * the capture starts. Without a filter the first goes on to the copy itself.
 */
#include "tap.h"
#include "either.h"
#include "map.h"
#include "other_host.h"
#include "stages.h"
#include <linux/if_packet.h>
#include <stdbool.h>

const volatile __u32 snaplen = WEIR_TAP_SNAPLEN;
const volatile bool filtered;
/* Copy nothing. */
const volatile bool count_only;
/*
 * Circuit breaker (Mogul & Ramakrishnan, section 8.1): so many packets that
 * match within the length of a pause are a batch, after which the tap takes
 * nothing for one. 0: none.
 */
const volatile __u32 breaker_batch;
const volatile __u64 breaker_pause_ns;
const volatile bool ignore_received;
const volatile bool ignore_sent;
/*
 * In the driver, nobody but the tap wants frames for other hosts until then
 * (CLOCK_MONOTONIC): user space looks again and again.
 */
__u64 end_others_until_ns;

/* User space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} tapped SEC(".maps");

MAP_OF_ONE(current_counts, counts, BPF_MAP_TYPE_PERCPU_ARRAY, 0,
	   struct weir_tap_counts);

/*
 * A record's room must be known to the verifier: a power of two that `len`
 * fits into. False: the ring is full.
 */
static __always_inline bool copy_into(const struct either *packet, __u32 len,
				      const __u32 room)
{
	struct weir_tap_record *record;

	record = bpf_ringbuf_reserve(&tapped, sizeof(*record) + room, 0);
	if (!record)
		return false;
	record->time_ns = bpf_ktime_get_ns();
	record->wire_len = packet->len;
	record->vlan_present = packet->skb ? packet->skb->vlan_present : 0;
	record->vlan_tci = packet->skb ? packet->skb->vlan_tci : 0;
	record->vlan_protocol_be = packet->skb ? packet->skb->vlan_proto : 0;
	record->captured_len = either_copy(packet, record + 1, len, room);
	bpf_ringbuf_submit(record, 0);
	return true;
}

static __always_inline bool copy(const struct either *packet)
{
	__u32 len = packet->len < snaplen ? packet->len : snaplen;

	if (!len)
		return true;
	if (len <= 128)
		return copy_into(packet, len, 128);
	if (len <= 512)
		return copy_into(packet, len, 512);
	if (len <= 2048)
		return copy_into(packet, len, 2048);
	return copy_into(packet, len, WEIR_TAP_SNAPLEN);
}

static __always_inline void count_batch(struct weir_tap_counts *it)
{
	__u64 now_ns = bpf_ktime_get_ns();

	if (now_ns - it->batch_from_ns > breaker_pause_ns) {
		it->batch_from_ns = now_ns;
		it->batch = 0;
	}
	if (++it->batch < breaker_batch)
		return;
	it->batch = 0;
	it->open_until_ns = now_ns + breaker_pause_ns;
}

static __always_inline void take(const struct either packet)
{
	struct weir_tap_counts *it = current_counts();

	if (!it)
		return;
	if (breaker_batch)
		count_batch(it);
	it->matched++;
	it->matched_bytes += packet.len;
	if (!count_only && !copy(&packet))
		it->dropped++;
}

/* False: the circuit breaker is open. */
static __always_inline bool see(void)
{
	struct weir_tap_counts *it = current_counts();

	if (!it)
		return false;
	it->seen++;
	if (!breaker_batch || bpf_ktime_get_ns() >= it->open_until_ns)
		return true;
	it->paused++;
	return false;
}

SEC("socket")
int weir_tap_copy(struct __sk_buff *skb)
{
	take(either_skb(skb));
	return 0;
}

SEC("socket")
int weir_tap(struct __sk_buff *skb)
{
	bool sent = skb->pkt_type == PACKET_OUTGOING;

	if (sent ? ignore_sent : ignore_received)
		return 0;
	if (!see())
		return 0;
	if (filtered)
		bpf_tail_call(skb, &stages, WEIR_STAGE_FILTER);
	else
		take(either_skb(skb));
	return 0;
}

static __always_inline int verdict(struct xdp_md *xdp)
{
	const struct ethernet *header = (const void *)(long)xdp->data;

	if ((const void *)(header + 1) > (const void *)(long)xdp->data_end)
		return XDP_PASS;
	return is_for_other_host_xdp(xdp, header->destination) &&
			       bpf_ktime_get_coarse_ns() < end_others_until_ns
		       ? XDP_DROP
		       : XDP_PASS;
}

SEC("xdp.frags")
int weir_tap_end(struct xdp_md *xdp)
{
	return verdict(xdp);
}

SEC("xdp.frags")
int weir_tap_copy_x(struct xdp_md *xdp)
{
	take(either_xdp(xdp));
	return verdict(xdp);
}

SEC("xdp.frags")
int weir_tap_xdp(struct xdp_md *xdp)
{
	if (!see())
		return verdict(xdp);
	if (filtered)
		bpf_tail_call(xdp, &stages, WEIR_STAGE_FILTER);
	else
		take(either_xdp(xdp));
	return verdict(xdp);
}

/* For user space, which knows the types of variables and of maps alone. */
struct weir_tap_record record_type;

char LICENSE[] SEC("license") = "GPL";
