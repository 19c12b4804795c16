/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet, wherever the gate is attached: in the driver or on an skb. */
#ifndef WEIR_PACKET_H
#define WEIR_PACKET_H

#include "cursor.h"

struct packet {
	void *ctx; /* struct xdp_md or struct __sk_buff, for helpers */
	struct cursor cursor;
	__u32 len;     /* bytes, of all buffers */
	__u32 count;   /* packets that GRO has merged into this one */
	__u32 ifindex; /* where it came in */
};

#endif /* WEIR_PACKET_H */
