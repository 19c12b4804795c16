/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the fast path of forwarding has sent and the egress's driver has not
 * taken: its transmit ring was full, or it takes no redirected frames any more.
 * Attached where the fast path is asked for; runs once for up to 16 packets.
 */
#ifndef WEIR_UNSENT_H
#define WEIR_UNSENT_H

#include "device.h"
#include <bpf/bpf_tracing.h>

/* The network namespace that the interface is in. */
const volatile __u32 netns;

/* Packets since this was loaded. */
__u64 unsent;

/* Does the fast path take packets that come in there? The includer's. */
static __always_inline bool forwards_from(__u32 ifindex);

static __always_inline void count_unsent(const struct net_device *from,
					 __u32 packets)
{
	if (packets && forwards_from(from->ifindex) &&
	    from->nd_net.net->ns.inum == netns)
		__sync_fetch_and_add(&unsent, packets);
}

/* At the end of a NAPI poll, and when a bulk of packets is complete. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(weir_unsent, const struct net_device *from,
	     const struct net_device *to, int sent, int drops)
{
	count_unsent(from, drops);
	return 0;
}

/* One that did not get into a bulk. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(weir_rejected, const struct net_device *from)
{
	count_unsent(from, 1);
	return 0;
}

#endif /* WEIR_UNSENT_H */
