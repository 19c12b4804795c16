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

static __always_inline void write_transport(void *transport, bool tcp,
					    __u16 source_port, __u32 sum)
{
	if (tcp) {
		struct tcphdr *th = transport;

		th->source = bpf_htons(source_port);
		th->check = fold(sum);
	} else {
		struct udphdr *uh = transport;

		uh->source = bpf_htons(source_port);
		uh->check = fold(sum) ?: 0xffff;
	}
}

static __always_inline void write_packet4(struct xdp_md *ctx,
					  const struct weir_traffic_flow *flow,
					  __u64 now_ns, bool tcp)
{
	const __u32 transport_len =
		tcp ? sizeof(struct tcphdr) : sizeof(struct udphdr);
	const __u32 header_len =
		ETH_HLEN + sizeof(struct iphdr) + transport_len;
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	__u32 random = next_random(), source, sum;
	__u8 *header = cursor_take(&cursor, header_len);
	struct iphdr *ip;
	__u16 port;

	if (!header)
		return;
	__builtin_memcpy(header, flow->header, header_len);
	ip = (void *)(header + ETH_HLEN);
	source = bpf_ntohl(ip->saddr) | (random & flow->source_mask);
	ip->saddr = bpf_htonl(source);
	ip->check = fold(sum_u32(flow->ip_sum, source));
	port = bpf_ntohs(*(__u16 *)(ip + 1)) | (random >> 16 & flow->port_mask);
	sum = sum_u32(flow->transport_sum, source) + port;
	sum += write_destination_port(ip + 1, flow);
	if (!tcp)
		sum = write_stamp(&cursor, flow, now_ns, sum);
	write_transport(ip + 1, tcp, port, sum);
}

static __always_inline void write_packet6(struct xdp_md *ctx,
					  const struct weir_traffic_flow *flow,
					  __u64 now_ns, bool tcp)
{
	const __u32 transport_len =
		tcp ? sizeof(struct tcphdr) : sizeof(struct udphdr);
	const __u32 header_len =
		ETH_HLEN + sizeof(struct ipv6hdr) + transport_len;
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	__u32 random = next_random(), source, sum;
	__u8 *header = cursor_take(&cursor, header_len);
	struct ipv6hdr *ip;
	__u16 port;

	if (!header)
		return;
	__builtin_memcpy(header, flow->header, header_len);
	ip = (void *)(header + ETH_HLEN);
	source = bpf_ntohl(ip->saddr.in6_u.u6_addr32[3]) |
		 (random & flow->source_mask);
	ip->saddr.in6_u.u6_addr32[3] = bpf_htonl(source);
	port = bpf_ntohs(*(__u16 *)(ip + 1)) | (random >> 16 & flow->port_mask);
	sum = sum_u32(flow->transport_sum, source) + port;
	sum += write_destination_port(ip + 1, flow);
	if (!tcp)
		sum = write_stamp(&cursor, flow, now_ns, sum);
	write_transport(ip + 1, tcp, port, sum);
}

static __always_inline void write_packet(struct xdp_md *ctx,
					 const struct weir_traffic_flow *flow,
					 __u64 now_ns)
{
	switch (flow->kind) {
	case WEIR_TRAFFIC_UDP4:
		return write_packet4(ctx, flow, now_ns, false);
	case WEIR_TRAFFIC_TCP_SYN4:
		return write_packet4(ctx, flow, now_ns, true);
	case WEIR_TRAFFIC_UDP6:
		return write_packet6(ctx, flow, now_ns, false);
	case WEIR_TRAFFIC_TCP_SYN6:
		return write_packet6(ctx, flow, now_ns, true);
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
