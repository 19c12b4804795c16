// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lab's load generator. User space runs this program over and over on live
 * frames (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES); each run writes
 * one packet and redirects it: to the generator's veth or, when no flow is due,
 * to a spare one that takes nothing. So the generator does the same work at
 * every rate, that of the top rate, and disturbs the system under test alike;
 * and the clock paces to a fraction of a microsecond without sleeping.
 */
#include "abi.h"
#include "cursor.h"
#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stdbool.h>

#define OPTION_WORD_LEN 4
#define Q16(x) ((__u64)(x) << 16)

#define IPV6_FRAGMENT_LEN 8
#define IPV6_IDENTIFICATION_OFFSET                \
	4 /* in a fragment header (RFC 8200, 4.5) \
	   */

/* What follows the IP header. */
enum layout {
	LAYOUT_UDP,
	LAYOUT_TCP,
	LAYOUT_ECHO,
};

/* ICMP's and ICMPv6's (RFC 792, RFC 4443); as long as UDP's header. */
struct echo {
	__u8 type;
	__u8 code;
	__be16 checksum_be;
	__be16 identifier_be;
	__be16 number_be;
};

/* What is about to be written. */
struct packet {
	const struct weir_traffic_flow *flow;
	__u64 now_ns;
	__u32 cut; /* bytes that it is shorter by than the flow's longest */
};

/* Set by user space before a run, read and written here during it. */
struct weir_traffic_flow flows[WEIR_TRAFFIC_FLOWS];
__u64 start_ns;
__u32 output_ifindex;
__u32 spare_ifindex; /* where packets go while no flow is due */
__u32 random_state = 1;

/*
 * Of flows whose frames differ; start_len is 0 where all are alike. Frames are
 * recycled, and what one flow wrote must not show in another's payload: each
 * begins with its flow's start, zeros but for a raw flow's.
 */
__u32 start_len;
__u8 starts[WEIR_TRAFFIC_FLOWS][WEIR_TRAFFIC_RAW_LEN];
__u16 cuts[WEIR_TRAFFIC_FLOWS][WEIR_TRAFFIC_LENGTHS];

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

/* Ones' complement checksum (RFC 1071) of an accumulated sum. */
static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return bpf_htons(~sum & 0xffff);
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

/*
 * Where flows' frames differ, gives this one its flow's start and one of its
 * lengths, drawn at random. Returns by how much that is shorter than the flow's
 * longest. The kernel brings a frame
 * back to its full length before the next run (reset_ctx() in
 * net/bpf/test_run.c).
 */
static __always_inline __u32 shape(struct xdp_md *ctx, __u32 index)
{
	const struct weir_traffic_flow *flow = &flows[index];
	__u32 len = start_len, random, cut;

	if (!len || len > WEIR_TRAFFIC_RAW_LEN)
		return 0;
	random = next_random();
	if (flow->cut_span)
		cut = (__u64)random * flow->cut_span >> 32;
	else
		cut = cuts[index][random >> 24];
	/* Said once more for Linux 6.1's verifier, which forgets the above. */
	len = (len - 1) & (WEIR_TRAFFIC_RAW_LEN - 1);
	barrier_var(len);
	bpf_xdp_store_bytes(ctx, 0, starts[index], len + 1);
	if (bpf_xdp_adjust_tail(ctx, -(int)(flow->surplus + cut)))
		return 0;
	return cut;
}

/* Takes as much off a header's length field as was taken off the frame. */
static __always_inline void shorten(__be16 *len_be, __u32 cut)
{
	if (cut)
		*len_be = bpf_htons(bpf_ntohs(*len_be) - cut);
}

/* The source address, of IPv6 its last word. */
static __always_inline __u32 draw_source(const struct weir_traffic_flow *flow,
					 __be32 base_be, __u32 random)
{
	__u32 base = bpf_ntohl(base_be);

	if (flow->source_count)
		return base + ((__u64)random * flow->source_count >> 32);
	return base | (random & flow->source_mask);
}

/* Writes the stamp; adds it to the transport checksum's sum. */
static __always_inline __u32 write_stamp(struct cursor *cursor,
					 const struct weir_traffic_flow *flow,
					 __u64 now_ns, __u32 sum)
{
	struct weir_stamp *stamp;

	if (!flow->has_stamp)
		return sum;
	stamp = cursor_take(cursor, sizeof(*stamp));
	if (!stamp)
		return sum;
	stamp->sent_ns = now_ns;
	stamp->sequence = (__u32)flow->sent;
	stamp->flow = 0;
	sum = sum_be16(sum, (__u16)now_ns);
	sum = sum_be16(sum, (__u16)(now_ns >> 16));
	sum = sum_be16(sum, (__u16)(now_ns >> 32));
	sum = sum_be16(sum, (__u16)(now_ns >> 48));
	sum = sum_be16(sum, (__u16)flow->sent);
	return sum_be16(sum, (__u16)(flow->sent >> 16));
}

/* A random destination port, where the flow has many; its share of the sum. */
static __always_inline __u16
write_destination_port(void *ports, const struct weir_traffic_flow *flow)
{
	__be16 *port_be = ports + sizeof(*port_be);
	__u16 random;

	if (!flow->destination_port_mask)
		return 0;
	random = next_random() & flow->destination_port_mask;
	*port_be |= bpf_htons(random);
	return random;
}

static __always_inline void write_transport(void *transport, enum layout layout,
					    __u16 varied, __u32 sum)
{
	switch (layout) {
	case LAYOUT_UDP: {
		struct udphdr *uh = transport;

		uh->source = bpf_htons(varied);
		uh->check = fold(sum) ?: 0xffff;
		break;
	}
	case LAYOUT_TCP: {
		struct tcphdr *th = transport;

		th->source = bpf_htons(varied);
		th->check = fold(sum);
		break;
	}
	case LAYOUT_ECHO: {
		struct echo *echo = transport;

		echo->identifier_be = bpf_htons(varied);
		echo->checksum_be = fold(sum);
		break;
	}
	}
}

static __always_inline __u32 transport_len(enum layout layout)
{
	return layout == LAYOUT_TCP ? sizeof(struct tcphdr)
				    : sizeof(struct udphdr);
}

/* Shortens a UDP datagram, as its header says; what the sum loses by that. */
static __always_inline __u32 shorten_transport(void *transport,
					       enum layout layout, __u32 cut)
{
	struct udphdr *uh = transport;

	if (layout != LAYOUT_UDP)
		return 0;
	shorten(&uh->len, cut);
	return cut;
}

/* The field that varies: the source port, or the identifier of an echo. */
static __always_inline __u16 read_varied(void *transport, enum layout layout)
{
	struct echo *echo = transport;

	if (layout == LAYOUT_ECHO)
		return bpf_ntohs(echo->identifier_be);
	return bpf_ntohs(*(__be16 *)transport);
}

/*
 * Puts the options between the IPv4 header and the UDP header; where that is
 * then. NULL: they do not fit.
 */
static __always_inline void *write_options(struct cursor *cursor,
					   const struct weir_traffic_flow *flow,
					   __u8 *pos)
{
	const __u32 udp_offset = ETH_HLEN + sizeof(struct iphdr);
	__u32 i;

	for (i = 0; i < WEIR_TRAFFIC_OPTIONS_LEN; i += OPTION_WORD_LEN) {
		if (i >= flow->option_words * OPTION_WORD_LEN)
			break;
		if (!cursor_take(cursor, OPTION_WORD_LEN))
			return NULL;
		__builtin_memcpy(pos, flow->options + i, OPTION_WORD_LEN);
		pos += OPTION_WORD_LEN;
	}
	__builtin_memcpy(pos, flow->header + udp_offset, sizeof(struct udphdr));
	return pos;
}

static __always_inline void write_packet4(struct xdp_md *ctx,
					  const struct packet *packet,
					  enum layout layout)
{
	const __u32 header_len =
		ETH_HLEN + sizeof(struct iphdr) + transport_len(layout);
	const struct weir_traffic_flow *flow = packet->flow;
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	__u32 random = next_random(), source, sum = flow->transport_sum;
	__u8 *header = cursor_take(&cursor, header_len);
	struct iphdr *ip;
	void *transport;
	__u16 varied;

	if (!header)
		return;
	__builtin_memcpy(header, flow->header, header_len);
	ip = (void *)(header + ETH_HLEN);
	transport = ip + 1;
	if (layout == LAYOUT_UDP && flow->option_words) {
		transport = write_options(&cursor, flow, transport);
		if (!transport)
			return;
	}
	source = draw_source(flow, ip->saddr, random);
	ip->saddr = bpf_htonl(source);
	shorten(&ip->tot_len, packet->cut);
	ip->check = fold(sum_u32(flow->ip_sum - packet->cut, source));
	varied = read_varied(transport, layout) |
		 (random >> 16 & flow->port_mask);
	sum += varied;
	/* ICMP alone has no pseudo-header. */
	if (layout != LAYOUT_ECHO) {
		sum = sum_u32(sum - packet->cut, source);
		sum += write_destination_port(transport, flow);
	}
	sum -= shorten_transport(transport, layout, packet->cut);
	if (layout != LAYOUT_TCP)
		sum = write_stamp(&cursor, flow, packet->now_ns, sum);
	write_transport(transport, layout, varied, sum);
}

static __always_inline void write_packet6(struct xdp_md *ctx,
					  const struct packet *packet,
					  enum layout layout)
{
	const __u32 header_len =
		ETH_HLEN + sizeof(struct ipv6hdr) + transport_len(layout);
	const struct weir_traffic_flow *flow = packet->flow;
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	__u32 random = next_random(), source, sum;
	__u8 *header = cursor_take(&cursor, header_len);
	struct ipv6hdr *ip;
	__u16 varied;

	if (!header)
		return;
	__builtin_memcpy(header, flow->header, header_len);
	ip = (void *)(header + ETH_HLEN);
	source = draw_source(flow, ip->saddr.in6_u.u6_addr32[3], random);
	ip->saddr.in6_u.u6_addr32[3] = bpf_htonl(source);
	shorten(&ip->payload_len, packet->cut);
	varied = read_varied(ip + 1, layout) | (random >> 16 & flow->port_mask);
	sum = sum_u32(flow->transport_sum - packet->cut, source) + varied;
	if (layout != LAYOUT_ECHO)
		sum += write_destination_port(ip + 1, flow);
	sum -= shorten_transport(ip + 1, layout, packet->cut);
	if (layout != LAYOUT_TCP)
		sum = write_stamp(&cursor, flow, packet->now_ns, sum);
	write_transport(ip + 1, layout, varied, sum);
}

/*
 * A fragment alone. Its identification is its number in the flow, and the
 * source address counts on, so that no two of some millions are of one
 * datagram.
 */
static __always_inline void write_fragment4(struct xdp_md *ctx,
					    const struct packet *packet)
{
	const struct weir_traffic_flow *flow = packet->flow;
	const __u32 header_len =
		ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr);
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	__u8 *header = cursor_take(&cursor, header_len);
	__u32 number = (__u32)flow->sent, source;
	struct iphdr *ip;

	if (!header)
		return;
	__builtin_memcpy(header, flow->header, header_len);
	ip = (void *)(header + ETH_HLEN);
	source = bpf_ntohl(ip->saddr) | (number >> 16 & flow->source_mask);
	ip->saddr = bpf_htonl(source);
	ip->id = bpf_htons((__u16)number);
	shorten(&ip->tot_len, packet->cut);
	ip->check = fold(sum_u32(flow->ip_sum - packet->cut, source) +
			 (__u16)number);
}

static __always_inline void write_fragment6(struct xdp_md *ctx,
					    const struct packet *packet)
{
	const struct weir_traffic_flow *flow = packet->flow;
	const __u32 header_len = ETH_HLEN + sizeof(struct ipv6hdr) +
				 IPV6_FRAGMENT_LEN + sizeof(struct udphdr);
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	__u8 *header = cursor_take(&cursor, header_len);
	struct ipv6hdr *ip;
	__be32 *identification_be;

	if (!header)
		return;
	__builtin_memcpy(header, flow->header, header_len);
	ip = (void *)(header + ETH_HLEN);
	shorten(&ip->payload_len, packet->cut);
	identification_be = (void *)(ip + 1) + IPV6_IDENTIFICATION_OFFSET;
	*identification_be = bpf_htonl((__u32)flow->sent);
}

static __always_inline void write_packet(struct xdp_md *ctx,
					 const struct packet *packet)
{
	switch (packet->flow->kind) {
	case WEIR_TRAFFIC_UDP4:
		return write_packet4(ctx, packet, LAYOUT_UDP);
	case WEIR_TRAFFIC_TCP4:
		return write_packet4(ctx, packet, LAYOUT_TCP);
	case WEIR_TRAFFIC_UDP6:
		return write_packet6(ctx, packet, LAYOUT_UDP);
	case WEIR_TRAFFIC_TCP6:
		return write_packet6(ctx, packet, LAYOUT_TCP);
	case WEIR_TRAFFIC_ECHO4:
		return write_packet4(ctx, packet, LAYOUT_ECHO);
	case WEIR_TRAFFIC_ECHO6:
		return write_packet6(ctx, packet, LAYOUT_ECHO);
	case WEIR_TRAFFIC_FRAGMENT4:
		return write_fragment4(ctx, packet);
	case WEIR_TRAFFIC_FRAGMENT6:
		return write_fragment6(ctx, packet);
	case WEIR_TRAFFIC_RAW: /* its start is all of it */
		return;
	}
}

SEC("xdp")
int weir_traffic(struct xdp_md *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 due = due_flow(Q16(now_ns - start_ns));
	bool is_due = due < WEIR_TRAFFIC_FLOWS;
	__u32 index = is_due ? due : 0;
	struct weir_traffic_flow *flow = &flows[index];
	struct packet packet = {
		.flow = flow,
		.now_ns = now_ns,
		.cut = shape(ctx, index),
	};

	write_packet(ctx, &packet);
	if (!is_due)
		return bpf_redirect(spare_ifindex, 0);
	flow->sent++;
	return bpf_redirect(output_ifindex, 0);
}

char LICENSE[] SEC("license") = "GPL";
