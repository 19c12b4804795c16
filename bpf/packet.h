/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet, wherever the gate is attached: in the driver or on an skb. */
#ifndef WEIR_PACKET_H
#define WEIR_PACKET_H

#include "abi.h"
#include "cursor.h"
#include "flow.h"

struct packet {
	void *ctx; /* struct xdp_md or struct __sk_buff, for helpers */
	struct cursor cursor;
	/* The packets that it stands for, which GRO may have merged. */
	struct weir_counter seen;
	__u32 len;	/* bytes, of all buffers */
	__u32 gso_size; /* payload bytes of each merged packet; 0: one packet */
	__u32 ifindex;	/* where it came in */
	__u32 truesize; /* bytes charged for it; 0: not known yet */
};

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
