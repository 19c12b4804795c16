/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet in the driver or on an skb, for programs that do the same at both.
 */
#ifndef WEIR_EITHER_H
#define WEIR_EITHER_H

#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>

struct either {
	struct __sk_buff *skb; /* NULL in the driver */
	struct xdp_md *xdp;
	__u32 len;
};

static __always_inline struct either either_skb(struct __sk_buff *skb)
{
	return (struct either){.skb = skb, .len = skb->len};
}

static __always_inline struct either either_xdp(struct xdp_md *xdp)
{
	return (struct either){.xdp = xdp, .len = bpf_xdp_get_buff_len(xdp)};
}

/*
 * Copies its first len bytes, from 1 up to a room that is a power of two, and
 * returns how many; 0: it cannot be read.
 */
static __always_inline __u32 either_copy(const struct either *packet, void *to,
					 __u32 len, const __u32 room)
{
	long failed;

	/* Said once more for the verifier: the compiler knows it. */
	barrier_var(len);
	len = ((len - 1) & (room - 1)) + 1;
	failed = packet->skb ? bpf_skb_load_bytes(packet->skb, 0, to, len)
			     : bpf_xdp_load_bytes(packet->xdp, 0, to, len);
	return failed ? 0 : len;
}

#endif /* WEIR_EITHER_H */
