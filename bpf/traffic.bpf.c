// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lab's load generator. User space runs this program over and over on live
 * frames (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES); each run writes
 * one packet and redirects it to the generator's veth. It never sleeps: it
 * looks at the clock until a flow is due, which paces to a fraction of a
 * microsecond.
 */
#include "abi.h"
#include "checksum.h"
#include "wire_ring.h"
#include <bpf/bpf_endian.h>

#define Q16(x) ((__u64)(x) << 16)

/*
 * The frames of up to 64 runs are handed over together. One that is given back
 * unsent costs the receiver what wire_ring.h says, so a run looks at the clock
 * often before it does that; but once a frame has waited for HOLD_NS, the
 * others are given back at once.
 */
#define LOOKS 32
#define HOLD_NS 10000

/* Set by user space before a run, read and written here during it. */
struct weir_traffic_flow flows[WEIR_TRAFFIC_FLOWS];
/* When the schedules began; 0: they have not. Set last, and read first: so the
 * flows are as set for it, and the clock is not behind it. */
__u64 start_ns;
__u32 is_over; /* nothing is to be sent, or waited for, any more */
__u32 random_state = 1;
/*
 * How much of each frame is written anew: the longest flow's start. Frames are
 * recycled, and what one flow wrote must not show in another's payload.
 */
__u32 start_len;

/* xorshift32 (Marsaglia, 2003): cheap, and repeatable from its seed. */
static __always_inline __u32 next_random(void)
{
	__u32 x = random_state;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	random_state = x;
	return x;
}

static __always_inline __u32 sum_be16(__u32 sum, __u16 word_be)
{
	return sum + bpf_ntohs(word_be);
}

static __always_inline __u32 sum_u32(__u32 sum, __u32 host)
{
	return sum + (host >> 16) + (host & 0xffff);
}

/* The flow's turn to send, if it is due. */
static __always_inline bool flow_due(struct weir_traffic_flow *flow,
				     __u64 now_q16)
{
	__u64 interval = flow->interval_q16;
	__u64 late, over;

	if (!flow->enabled)
		return false;
	if (!interval)
		return true;
	if (flow->burst_left) {
		flow->burst_left--;
		return true;
	}
	if (now_q16 < flow->next_q16)
		return false;
	late = now_q16 - flow->next_q16;
	if (late > flow->catch_up_q16) {
		over = (late - flow->catch_up_q16) / interval;
		flow->missed += over * flow->burst;
		flow->next_q16 += over * interval;
	}
	flow->next_q16 += interval;
	flow->burst_left = flow->burst - 1;
	return true;
}

/* The first flow that is due; WEIR_TRAFFIC_FLOWS: none. */
static __always_inline __u32 due_flow(__u64 now_q16)
{
	__u32 i;

	for (i = 0; i < WEIR_TRAFFIC_FLOWS; i++) {
		if (flow_due(&flows[i], now_q16))
			break;
	}
	return i;
}

static __always_inline __u32
number_of_next(const struct weir_traffic_flow *flow)
{
	return flow->sent + flow->refused;
}

/* By how much this packet is shorter than its flow's longest. */
static __always_inline __u32 draw_cut(const struct weir_traffic_flow *flow)
{
	__u32 random = next_random();

	return flow->cut_span ? (__u64)random * flow->cut_span >> 32
			      : flow->cuts[random >> 24];
}

static __always_inline void put16(struct weir_traffic_flow *flow, __u8 at,
				  __u16 value)
{
	if (at)
		*(__be16 *)(flow->start + at) = bpf_htons(value);
}

static __always_inline void put32(struct weir_traffic_flow *flow, __u8 at,
				  __u32 value)
{
	if (at)
		*(__be32 *)(flow->start + at) = bpf_htonl(value);
}

static __always_inline __u32 draw_source(const struct weir_traffic_flow *flow,
					 __u32 random)
{
	if (flow->source_count)
		return flow->source +
		       ((__u64)random * flow->source_count >> 32);
	return flow->source | (random & flow->source_mask);
}

/* Zeros where it does not fit; adds it to the transport checksum's sum. */
static __always_inline __u32 put_stamp(struct weir_traffic_flow *flow,
				       __u64 now_ns, __u32 cut, __u32 sum)
{
	struct weir_stamp *stamp = (void *)flow->start + flow->stamp_at;
	__u32 number = number_of_next(flow);

	if (!flow->stamp_at)
		return sum;
	if (cut > flow->stamp_spare)
		now_ns = number = 0;
	stamp->sent_ns = now_ns;
	stamp->sequence = number;
	sum = sum_be16(sum, (__u16)now_ns);
	sum = sum_be16(sum, (__u16)(now_ns >> 16));
	sum = sum_be16(sum, (__u16)(now_ns >> 32));
	sum = sum_be16(sum, (__u16)(now_ns >> 48));
	sum = sum_be16(sum, (__u16)number);
	return sum_be16(sum, (__u16)(number >> 16));
}

/*
 * Writes what is this packet's own into its flow's start: source, ports, a
 * fragment's identification, lengths, stamp, and the checksums.
 */
static __always_inline void write_start(struct weir_traffic_flow *flow,
					__u64 now_ns, __u32 cut)
{
	__u32 number = number_of_next(flow), random = next_random();
	__u32 source = draw_source(flow, flow->id_at ? number >> 16 : random);
	__u16 port = flow->port | (random >> 16 & flow->port_mask);
	__u16 destination_port = flow->destination_port;
	__u32 sum = flow->transport_sum - flow->summed_lengths * cut;
	__u32 ip_sum = sum_u32(flow->ip_sum - cut, source);

	if (flow->destination_port_mask)
		destination_port |= next_random() & flow->destination_port_mask;
	sum += port + destination_port;
	if (flow->summed_source)
		sum = sum_u32(sum, source);
	if (flow->id_at)
		ip_sum += (__u16)number;
	sum = put_stamp(flow, now_ns, cut, sum);
	put32(flow, flow->source_at, source);
	put16(flow, flow->id_at, number);
	put16(flow, flow->id_high_at, number >> 16);
	put16(flow, flow->ip_len_at, flow->ip_len - cut);
	put16(flow, flow->ip_sum_at, ~checksum_fold(ip_sum));
	put16(flow, flow->ports_at, port);
	if (flow->ports_at)
		put16(flow, flow->ports_at + 2, destination_port);
	put16(flow, flow->udp_len_at, flow->udp_len - cut);
	/* Of UDP, 0 means none; to others it is the same number. */
	put16(flow, flow->sum_at, (__u16)~checksum_fold(sum) ?: 0xffff);
}

/*
 * The kernel brings a frame back to its full length before the next run
 * (reset_ctx() in net/bpf/test_run.c).
 */
static __always_inline void
write_frame(struct xdp_md *ctx, struct weir_traffic_flow *flow, __u32 cut)
{
	__u32 len = start_len;

	if (!len || len > WEIR_TRAFFIC_START_LEN)
		return;
	/* Said once more for Linux 6.1's verifier, which forgets the above. */
	len = (len - 1) & (WEIR_TRAFFIC_START_LEN - 1);
	barrier_var(len);
	bpf_xdp_store_bytes(ctx, 0, flow->start, len + 1);
	if (flow->surplus + cut)
		bpf_xdp_adjust_tail(ctx, -(int)(flow->surplus + cut));
}

/* What a run is to send. */
struct chosen {
	__u32 flow; /* WEIR_TRAFFIC_FLOWS: nothing */
	__u32 cut;
};

/* Makes the packet that is due, if one is; whether the run has looked enough.
 */
static long look(__u32 number, struct chosen *chosen)
{
	__u64 begun_ns = *(volatile __u64 *)&start_ns;
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 cut, due = WEIR_TRAFFIC_FLOWS;
	struct weir_traffic_flow *flow;

	if (begun_ns)
		due = due_flow(Q16(now_ns - begun_ns));
	if (due >= WEIR_TRAFFIC_FLOWS)
		return kept && now_ns - kept_since_ns > HOLD_NS;
	flow = &flows[due];
	cut = draw_cut(flow);
	write_start(flow, now_ns, cut);
	if (!wire_takes_frame(now_ns)) {
		flow->refused++;
		return false;
	}
	flow->sent++;
	chosen->flow = due;
	chosen->cut = cut;
	return true;
}

SEC("xdp")
int weir_traffic(struct xdp_md *ctx)
{
	struct chosen chosen = {.flow = WEIR_TRAFFIC_FLOWS};

	if (!is_over)
		bpf_loop(LOOKS, look, &chosen, 0);
	if (chosen.flow >= WEIR_TRAFFIC_FLOWS)
		return XDP_DROP;
	write_frame(ctx, &flows[chosen.flow], chosen.cut);
	return bpf_redirect(output_ifindex, 0);
}

char LICENSE[] SEC("license") = "GPL";
