/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Network address translation takes packets to others than their addresses
 * say. Before a packet is discarded, and only then, conntrack is asked whether
 * its connection is translated. Rules that translate new connections are read
 * by user space, which names the ports that they are for.
 */
#ifndef WEIR_TRANSLATION_H
#define WEIR_TRANSLATION_H

#include "address.h"
#include "compat.h"
#include "decide.h"
#include "defect.h"
#include "lookup.h"
#include "tcp.h"
#include "workspace.h"

/* Ports to which new connections may be translated, of UDP and then of TCP; a
 * bit each. Set by user space. */
__u64 translated_ports[2 * WEIR_PORT_WORDS];

/* uapi/linux/netfilter/nf_conntrack_common.h: IPS_SRC_NAT and IPS_DST_NAT. */
#define CT_TRANSLATED (1 << 4 | 1 << 5)

/* As long as Linux 5.18 had it; later kernels take that, too. */
struct bpf_ct_opts___weir {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

static __always_inline struct bpf_ct_opts___weir ct_options(__u32 protocol)
{
	return (struct bpf_ct_opts___weir){.netns_id = BPF_F_CURRENT_NETNS,
					   .l4proto = protocol};
}

struct nf_conn {
	unsigned long status;
} __attribute__((preserve_access_index));

/*
 * Set by user space, as it finds them in the kernel's types: before Linux 6.4 a
 * program cannot ask for a function's address.
 */
const volatile bool has_ct_lookup;

/* Linux 5.18: net/netfilter/nf_conntrack_bpf.c. */
extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx,
					 struct bpf_sock_tuple *tuple,
					 __u32 tuple_size,
					 struct bpf_ct_opts___weir *options,
					 __u32 options_size) __ksym __weak;
extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb,
					 struct bpf_sock_tuple *tuple,
					 __u32 tuple_size,
					 struct bpf_ct_opts___weir *options,
					 __u32 options_size) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *connection) __ksym __weak;

/* Is it another's? One that conntrack does not know is nobody's yet. */
static __always_inline bool ct_is_translated(struct nf_conn *connection)
{
	bool translated;

	if (!connection)
		return false;
	translated = connection->status & CT_TRANSLATED;
	bpf_ct_release(connection);
	return translated;
}

/*
 * Of the connection in the workspace's tuple, in the driver and on an skb.
 * Where the kernel cannot be asked, nothing is known and the packet passes.
 */
#define TRANSLATED_BY(function, context, lookup)                          \
	static __noinline bool function(context *ctx, __u32 tuple_size,   \
					__u32 protocol)                   \
	{                                                                 \
		struct workspace *workspace = get_workspace();            \
		struct bpf_ct_opts___weir options = ct_options(protocol); \
                                                                          \
		if (!workspace || !has_ct_lookup)                         \
			return true;                                      \
		return ct_is_translated(lookup(ctx, &workspace->tuple,    \
					       tuple_size, &options,      \
					       sizeof(options)));         \
	}

TRANSLATED_BY(xdp_is_translated, struct xdp_md, bpf_xdp_ct_lookup)
TRANSLATED_BY(skb_is_translated, struct __sk_buff, bpf_skb_ct_lookup)

/* May rules translate a new connection to this port? */
static __always_inline bool is_translated_port(const struct flow *flow)
{
	__u32 port = bpf_ntohs(flow->port_be);

	if (flow->protocol == IPPROTO_TCP)
		port += 64 * WEIR_PORT_WORDS;
	return translated_ports[port / 64 & (2 * WEIR_PORT_WORDS - 1)] >>
		       (port % 64) &
	       1;
}

/*
 * Does a packet for which this reason was found pass all the same, as it may
 * be another's? Conntrack's look-up knows UDP and TCP alone.
 */
static __always_inline bool is_translated(void *ctx, bool on_skb,
					  const struct flow *flow, __u32 reason)
{
	struct workspace *workspace;
	__u32 tuple_size;

	if (!interface.translated || DEFECT(TRANSLATION_IGNORED) ||
	    verdict_of_reason(reason) != WEIR_VERDICT_DISCARD)
		return false;
	workspace = get_workspace();
	if (!workspace || is_translated_port(flow) ||
	    (flow->protocol != IPPROTO_UDP && flow->protocol != IPPROTO_TCP))
		return true;
	/* No connection is known before its SYN, and a flood of them fills
	 * conntrack's table with others, which makes asking dear. */
	if (flow->protocol == IPPROTO_TCP && tcp_is_syn(flow))
		return false;
	tuple_size = tuple_of(flow, &workspace->tuple);
	return on_skb ? skb_is_translated(ctx, tuple_size, flow->protocol)
		      : xdp_is_translated(ctx, tuple_size, flow->protocol);
}

#endif /* WEIR_TRANSLATION_H */
