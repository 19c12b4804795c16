/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet, wherever the gate is attached: in the driver or on an skb. */
#ifndef WEIR_PACKET_H
#define WEIR_PACKET_H

#include "abi.h"
#include "cursor.h"
#include "device.h"
#include "flow.h"

struct packet {
	void *ctx;   /* struct xdp_md or struct __sk_buff, for helpers */
	bool on_skb; /* the latter */
	struct cursor cursor;
	/* The packets that it stands for, which GRO may have merged. */
	struct weir_counter seen;
	__u32 len;	/* bytes, of all buffers */
	__u32 gso_size; /* payload bytes of each merged packet; 0: one packet */
	__u32 ifindex;	/* where it came in */
	__u32 truesize; /* bytes charged for it; 0: not known yet */
};

static __always_inline struct packet packet_of_xdp(struct xdp_md *ctx)
{
	__u32 len = bpf_xdp_get_buff_len(ctx);

	return (struct packet){
		.ctx = ctx,
		.cursor = cursor_of(ctx),
		.seen = {.packets = 1, .bytes = len},
		.len = len,
		.ifindex = ctx->ingress_ifindex,
	};
}

static __always_inline struct packet packet_of_skb(struct __sk_buff *skb)
{
	return (struct packet){
		.ctx = skb,
		.on_skb = true,
		.cursor = cursor_of(skb),
		.len = skb->len,
		.gso_size = skb->gso_size,
		.ifindex = skb->ingress_ifindex,
	};
}

/* The network namespace that it has come to; 0: the kernel does not tell. */
static __always_inline __u64 net_of(void *ctx, bool on_skb)
{
	const struct net_device *dev;

	if (!has_kern_ctx())
		return 0;
	dev = on_skb ? device_of_skb(ctx) : device_of_xdp(ctx);
	return kernel_address(dev, nd_net.net);
}

static __always_inline __u64 packet_net(const struct packet *packet)
{
	return net_of(packet->ctx, packet->on_skb);
}

/*
 * Queues are charged packet by packet; the last may be shorter than the rest,
 * and fit where they do not.
 */
static __always_inline void flow_of_one(struct flow *flow,
					const struct packet *packet)
{
	__u32 last, whole = flow->udp_len;

	if (!packet->gso_size || flow->udp_len <= sizeof(struct udphdr))
		return;
	last = (flow->udp_len - sizeof(struct udphdr)) % packet->gso_size;
	flow->udp_len = (last ?: packet->gso_size) + sizeof(struct udphdr);
	flow->ip_len -= whole - flow->udp_len;
}

#endif /* WEIR_PACKET_H */
