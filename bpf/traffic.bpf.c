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

/* Most packets of one flow that may fall due at once after a pause. */
#define CATCH_UP_PACKETS 64
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

/* Set by user space before a run, read and written here during it. */
struct weir_traffic_flow flows[WEIR_TRAFFIC_FLOWS];
__u64 start_ns;
__u32 output_ifindex;
__u32 spare_ifindex; /* where packets go while no flow is due */
__u32 random_state = 1;

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
	if (now_q16 < flow->next_q16)
		return false;
	late = now_q16 - flow->next_q16;
	if (late > CATCH_UP_PACKETS * interval) {
		over = late / interval - CATCH_UP_PACKETS;
		flow->missed += over;
		flow->next_q16 += over * interval;
	}
	flow->next_q16 += interval;
	return true;
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

/* The field that varies: the source port, or the identifier of an echo. */
static __always_inline __u16 read_varied(void *transport, enum layout layout)
{
	struct echo *echo = transport;

	if (layout == LAYOUT_ECHO)
		return bpf_ntohs(echo->identifier_be);
	return bpf_ntohs(*(__be16 *)transport);
}

static __always_inline void write_packet4(struct xdp_md *ctx,
					  const struct weir_traffic_flow *flow,
					  __u64 now_ns, enum layout layout)
{
	const __u32 header_len =
		ETH_HLEN + sizeof(struct iphdr) + transport_len(layout);
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	__u32 random = next_random(), source, sum = flow->transport_sum;
	__u8 *header = cursor_take(&cursor, header_len);
	struct iphdr *ip;
	__u16 varied;

	if (!header)
		return;
	__builtin_memcpy(header, flow->header, header_len);
	ip = (void *)(header + ETH_HLEN);
	source = bpf_ntohl(ip->saddr) | (random & flow->source_mask);
	ip->saddr = bpf_htonl(source);
	ip->check = fold(sum_u32(flow->ip_sum, source));
	varied = read_varied(ip + 1, layout) | (random >> 16 & flow->port_mask);
	sum += varied;
	/* ICMP alone has no pseudo-header. */
	if (layout != LAYOUT_ECHO) {
		sum = sum_u32(sum, source);
		sum += write_destination_port(ip + 1, flow);
	}
	if (layout != LAYOUT_TCP)
		sum = write_stamp(&cursor, flow, now_ns, sum);
	write_transport(ip + 1, layout, varied, sum);
}

static __always_inline void write_packet6(struct xdp_md *ctx,
					  const struct weir_traffic_flow *flow,
					  __u64 now_ns, enum layout layout)
{
	const __u32 header_len =
		ETH_HLEN + sizeof(struct ipv6hdr) + transport_len(layout);
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
	source = bpf_ntohl(ip->saddr.in6_u.u6_addr32[3]) |
		 (random & flow->source_mask);
	ip->saddr.in6_u.u6_addr32[3] = bpf_htonl(source);
	varied = read_varied(ip + 1, layout) | (random >> 16 & flow->port_mask);
	sum = sum_u32(flow->transport_sum, source) + varied;
	if (layout != LAYOUT_ECHO)
		sum += write_destination_port(ip + 1, flow);
	if (layout != LAYOUT_TCP)
		sum = write_stamp(&cursor, flow, now_ns, sum);
	write_transport(ip + 1, layout, varied, sum);
}

/*
 * A fragment alone. Its identification is its number in the flow, and the
 * source address counts on, so that no two of some millions are of one
 * datagram.
 */
static __always_inline void
write_fragment4(struct xdp_md *ctx, const struct weir_traffic_flow *flow)
{
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
	ip->check = fold(sum_u32(flow->ip_sum, source) + (__u16)number);
}

static __always_inline void
write_fragment6(struct xdp_md *ctx, const struct weir_traffic_flow *flow)
{
	const __u32 header_len = ETH_HLEN + sizeof(struct ipv6hdr) +
				 IPV6_FRAGMENT_LEN + sizeof(struct udphdr);
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	__u8 *header = cursor_take(&cursor, header_len);
	__be32 *identification_be;

	if (!header)
		return;
	__builtin_memcpy(header, flow->header, header_len);
	identification_be =
		(void *)(header + ETH_HLEN + sizeof(struct ipv6hdr) +
			 IPV6_IDENTIFICATION_OFFSET);
	*identification_be = bpf_htonl((__u32)flow->sent);
}

static __always_inline void write_packet(struct xdp_md *ctx,
					 const struct weir_traffic_flow *flow,
					 __u64 now_ns)
{
	switch (flow->kind) {
	case WEIR_TRAFFIC_UDP4:
		return write_packet4(ctx, flow, now_ns, LAYOUT_UDP);
	case WEIR_TRAFFIC_TCP4:
		return write_packet4(ctx, flow, now_ns, LAYOUT_TCP);
	case WEIR_TRAFFIC_UDP6:
		return write_packet6(ctx, flow, now_ns, LAYOUT_UDP);
	case WEIR_TRAFFIC_TCP6:
		return write_packet6(ctx, flow, now_ns, LAYOUT_TCP);
	case WEIR_TRAFFIC_ECHO4:
		return write_packet4(ctx, flow, now_ns, LAYOUT_ECHO);
	case WEIR_TRAFFIC_ECHO6:
		return write_packet6(ctx, flow, now_ns, LAYOUT_ECHO);
	case WEIR_TRAFFIC_FRAGMENT4:
		return write_fragment4(ctx, flow);
	case WEIR_TRAFFIC_FRAGMENT6:
		return write_fragment6(ctx, flow);
	}
}

SEC("xdp")
int traffic(struct xdp_md *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 now_q16 = Q16(now_ns - start_ns);
	struct weir_traffic_flow *flow;
	int i;

	for (i = 0; i < WEIR_TRAFFIC_FLOWS; i++) {
		flow = &flows[i];
		if (flow_due(flow, now_q16)) {
			write_packet(ctx, flow, now_ns);
			flow->sent++;
			return bpf_redirect(output_ifindex, 0);
		}
	}
	write_packet(ctx, &flows[0], now_ns);
	return bpf_redirect(spare_ifindex, 0);
}

char LICENSE[] SEC("license") = "GPL";
