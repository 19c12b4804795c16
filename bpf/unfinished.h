/* SPDX-License-Identifier: GPL-2.0-only */
/* Packets of which the skb alone tells something that goes before them on a
 * wire: in the driver, a veth's. */
#ifndef WEIR_UNFINISHED_H
#define WEIR_UNFINISHED_H

#include "compat.h"

#define CHECKSUM_PARTIAL 3 /* include/linux/skbuff.h */

/* What veth runs a program on; 6.3 and later. */
struct veth_xdp_buff {
	struct sk_buff *skb; /* NULL: a frame of XDP's own */
} __attribute__((preserve_access_index));

#define sees_skb_of_veth() \
	(has_kern_ctx() && bpf_core_type_exists(struct veth_xdp_buff))

static __always_inline const struct sk_buff *skb_of_veth(struct xdp_md *ctx)
{
	const struct veth_xdp_buff *buff = bpf_cast_to_kern_ctx(ctx);

	return BPF_CORE_READ(buff, skb);
}

/*
 * A veth's peer leaves the checksum of what its sockets send, and a VLAN's tag,
 * to whoever sends the packet on to a wire. That it has none yet, only its skb
 * knows.
 */
static __always_inline bool is_unfinished(struct xdp_md *ctx)
{
	const struct sk_buff *skb;

	if (!sees_skb_of_veth())
		return true;
	skb = skb_of_veth(ctx);
	return skb && (BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed) ==
			       CHECKSUM_PARTIAL ||
		       BPF_CORE_READ(skb, vlan_proto));
}

/* Is its VLAN's tag in its skb alone, as far as can be seen? */
static __always_inline bool is_tagged_aside(struct xdp_md *ctx)
{
	const struct sk_buff *skb;

	if (!sees_skb_of_veth())
		return false;
	skb = skb_of_veth(ctx);
	return skb && BPF_CORE_READ(skb, vlan_proto);
}

#endif /* WEIR_UNFINISHED_H */
