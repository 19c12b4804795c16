// SPDX-License-Identifier: GPL-2.0-only
/*
 * What goes by way of a user-mode screen: the destinations of packets that an
 * NFQUEUE has refused. Loaded while the namespace has one. Nothing here runs
 * for a packet that is delivered.
 */
#include "map.h"
#include "alarm.h"
#include "freed.h"
#include "screen_queue.h"
#include <bpf/bpf_tracing.h>

#define DST_POINTER (~1UL) /* SKB_DST_PTRMASK */
/* Places in the kernel's code that free packets. */
#define FREES 1024

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct dst_entry {
	struct net_device *dev;
};

struct bpf_iter__netlink {
	struct bpf_iter_meta *meta;
	struct netlink_sock *sk;
};

#pragma clang attribute pop

/* Is it in nf_queue()? */
MAP(frees, BPF_MAP_TYPE_HASH, 0, FREES, __u64, __u8);

static __always_inline bool is_nf_queue(__u64 location)
{
	static const char wanted[] = "nf_queue";
	__u8 *known = bpf_map_lookup_elem(&frees, &location);
	char name[16] = {};
	__u8 is_it;
	int i;

	if (known)
		return *known;
	bpf_snprintf(name, sizeof(name), "%ps", &location, sizeof(location));
	is_it = 1;
	for (i = 0; i < (int)sizeof(wanted); i++)
		is_it &= name[i] == wanted[i];
	bpf_map_update_elem(&frees, &location, &is_it, BPF_ANY);
	return is_it;
}

/*
 * A queue has refused a packet that went there. The gates have counted it as
 * one to a screen, but for those that came in one poll with the first.
 */
static __always_inline void refuse(struct weir_screen *screen,
				   const struct weir_screened_key *key,
				   bool teaches)
{
	const struct weir_refusal *known = bpf_map_lookup_elem(&screened, key);
	struct weir_refusal refusal = {.at_ns = bpf_ktime_get_ns()};
	struct weir_poll *poll = current_poll();
	__u64 current = poll ? poll_id_of(poll) : 0;

	refusal.poll =
		refusal_believed(known, refusal.at_ns) ? known->poll : current;
	if (refusal.poll == current)
		__sync_fetch_and_add(&screen->unlearned, 1);
	if (!teaches)
		return;
	ring(WEIR_CAUSE_SCREEN_QUEUE, refusal.at_ns);
	bpf_map_update_elem(&screened, key, &refusal, BPF_ANY);
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(weir_screened, struct sk_buff *skb, void *location)
{
	struct weir_screen *screen = the_screen();
	struct weir_screened_key key = {};
	const struct net_device *dev;
	const struct dst_entry *dst;

	if (!screen || !screen->queues || !is_nf_queue((__u64)location))
		return 0;
	dev = BPF_CORE_READ(skb, dev);
	dst = (const void *)(BPF_CORE_READ(skb, _skb_refdst) & DST_POINTER);
	if (!dev || !dst ||
	    BPF_CORE_READ(dev, nd_net.net, ns.inum) != screen->netns)
		return 0;
	key.ifindex = BPF_CORE_READ(dev, ifindex);
	key.egress_ifindex = BPF_CORE_READ(dst, dev, ifindex);
	refuse(screen, &key, destination_of(skb, &key));
	return 0;
}

/* Netfilter's netlink sockets of the reader's namespace. */
SEC("iter/netlink")
int weir_netlink(struct bpf_iter__netlink *ctx)
{
	struct weir_screen_socket socket = {};
	struct netlink_sock *netlink = ctx->sk;

	if (!netlink || netlink->sk.sk_protocol != NETLINK_NETFILTER)
		return 0;
	socket.sock = (__u64)netlink;
	socket.port_id = netlink->portid;
	bpf_seq_write(ctx->meta->seq, &socket, sizeof(socket));
	return 0;
}

/* The record's type, for the skeleton. */
struct weir_screen_socket socket_type;

char LICENSE[] SEC("license") = "GPL";
