// SPDX-License-Identifier: GPL-2.0-only
/*
 * What goes by way of a user-mode screen: the destinations of packets that an
 * NFQUEUE has refused. Loaded while the namespace has one. Nothing here runs
 * for a packet that is delivered.
 */
#include "map.h"
#include "alarm.h"
#include "flow.h"
#include "screen_queue.h"
#include <bpf/bpf_tracing.h>

#define DST_POINTER (~1UL) /* SKB_DST_PTRMASK */
#define FRAGMENT_BITS 0x3fff
#define TCP_FLAGS_AT 13
#define TCP_SYN 0x02
#define TCP_NO_REQUEST 0x15 /* FIN, RST, ACK */
/* Places in the kernel's code that free packets. */
#define FREES 1024

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct net_device {
	int ifindex;
	struct possible_net nd_net;
};

struct dst_entry {
	struct net_device *dev;
};

struct sk_buff___routed {
	struct net_device *dev;
	unsigned long _skb_refdst;
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

/* As target_of() has it, of a packet that is in no frame any more. */
static __always_inline void transport_of(const void *header, __u8 protocol,
					 struct weir_screened_key *key)
{
	__be16 ports_be[2] = {};
	__u8 flags = 0;

	key->target = WEIR_TARGET_FORWARD;
	if (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)
		return;
	bpf_probe_read_kernel(ports_be, sizeof(ports_be), header);
	key->port_be = ports_be[1];
	key->target = WEIR_TARGET_UDP;
	if (protocol == IPPROTO_UDP)
		return;
	bpf_probe_read_kernel(&flags, sizeof(flags), header + TCP_FLAGS_AT);
	key->target = (flags & (TCP_SYN | TCP_NO_REQUEST)) == TCP_SYN
			      ? WEIR_TARGET_TCP_SYN
			      : WEIR_TARGET_TCP;
}

/* Where it was going; not of fragments, nor behind IPv6's further headers. */
static __always_inline bool destination_of(const struct sk_buff *skb,
					   struct weir_screened_key *key)
{
	const void *ip = skb->head + skb->network_header;
	struct ipv6hdr ip6 = {};
	struct iphdr ip4 = {};

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		bpf_probe_read_kernel(&ip4, sizeof(ip4), ip);
		key->family = WEIR_FAMILY_IPV4;
		key->address[0] = ip4.daddr;
		transport_of(ip + ip4.ihl * 4, ip4.protocol, key);
		return !(ip4.frag_off & bpf_htons(FRAGMENT_BITS));
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return false;
	bpf_probe_read_kernel(&ip6, sizeof(ip6), ip);
	key->family = WEIR_FAMILY_IPV6;
	__builtin_memcpy(key->address, &ip6.daddr, sizeof(key->address));
	transport_of(ip + sizeof(ip6), ip6.nexthdr, key);
	return true;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(weir_screened, struct sk_buff *skb, void *location)
{
	const struct sk_buff___routed *routed = (const void *)skb;
	struct weir_screen *screen = the_screen();
	struct weir_screened_key key = {};
	const struct net_device *dev;
	const struct dst_entry *dst;
	__u64 now;

	if (!screen || !screen->queues || !is_nf_queue((__u64)location))
		return 0;
	dev = BPF_CORE_READ(routed, dev);
	dst = (const void *)(BPF_CORE_READ(routed, _skb_refdst) & DST_POINTER);
	if (!dev || !dst ||
	    BPF_CORE_READ(dev, nd_net.net, ns.inum) != screen->netns)
		return 0;
	key.ifindex = BPF_CORE_READ(dev, ifindex);
	key.egress_ifindex = BPF_CORE_READ(dst, dev, ifindex);
	if (!destination_of(skb, &key))
		return 0;
	now = bpf_ktime_get_ns();
	ring(WEIR_CAUSE_SCREEN_QUEUE, now);
	bpf_map_update_elem(&screened, &key, &now, BPF_ANY);
	screen_learn_limit(screen);
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
