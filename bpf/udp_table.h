/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's own table of UDP sockets by local port (struct udp_table): which
 * sockets besides the one that a lookup found could be given a packet.
 */
#ifndef WEIR_UDP_TABLE_H
#define WEIR_UDP_TABLE_H

#include "compat.h"
#include "flight.h"
#include "workspace.h"

/* Sockets of one bucket that are looked at; more, and nothing is certain. */
#define SURVEY_SOCKETS 72

static __always_inline __u64 udp_table_of(const struct sock *sk, __u64 net)
{
	const struct net *netns = kernel_cast(net, struct net);
	const struct proto *proto;

	if (bpf_core_field_exists(netns->ipv4.udp_table))
		return kernel_pointer(netns, ipv4.udp_table);
	proto = kernel_cast(kernel_pointer(sk, __sk_common.skc_prot),
			    struct proto);
	return kernel_pointer(proto, h.udp_table);
}

/* The bucket that a port's sockets are in: udp_hashslot(). */
static __always_inline __u64 udp_bucket(const struct sock *sk, __u64 net,
					__u16 port)
{
	const struct udp_table *table =
		kernel_cast(udp_table_of(sk, net), struct udp_table);
	const struct net *netns = kernel_cast(net, struct net);
	__u64 buckets = kernel_address(table, hash);
	__u32 at = (port + kernel_read(netns, hash_mix)) &
		   kernel_read(table, mask);

	return buckets + at * bpf_core_type_size(struct udp_hslot);
}

/* Is this socket in this bucket, and no other? */
static __always_inline bool udp_bucket_holds(__u64 bucket, __u64 sock)
{
	const struct udp_hslot *slot = kernel_cast(bucket, struct udp_hslot);
	const struct sock *sk = kernel_cast(sock, struct sock);
	__u64 node =
		sock + bpf_core_field_offset(struct sock, __sk_common.skc_node);

	return kernel_pointer(slot, head.first) == node &&
	       !kernel_pointer(sk, __sk_common.skc_node.next);
}

/* Could this address be what the socket is bound to? Rather yes than no. */
static __always_inline bool survey_address(const struct survey *survey,
					   const struct sock_common *common)
{
	__be32 bound = kernel_read(common, skc_rcv_saddr);
	__u32 words[4];

	if (survey->any_address)
		return true;
	if (survey->family == WEIR_FAMILY_IPV4)
		return !bound || bound == survey->destination[0];
	if (kernel_read(common, skc_family) != AF_INET6)
		return false;
	bpf_core_read(&words, sizeof(words),
		      &common->skc_v6_rcv_saddr.in6_u.u6_addr32);
	return !(words[0] | words[1] | words[2] | words[3]) ||
	       (words[0] == survey->destination[0] &&
		words[1] == survey->destination[1] &&
		words[2] == survey->destination[2] &&
		words[3] == survey->destination[3]);
}

static __always_inline struct survey *survey_begin(struct workspace *workspace,
						   const __u32 *destination,
						   __u32 family, __be16 port_be,
						   __u64 net)
{
	struct survey *survey = &workspace->survey;

	__builtin_memset(survey, 0, sizeof(*survey));
	survey->net = net;
	survey->family = family;
	survey->port = bpf_ntohs(port_be);
	copy_address(survey->destination, destination);
	return survey;
}

/*
 * Could this one be given the packet? A global function, like
 * socket_room().
 */
__noinline int survey_socket(struct survey *survey, __u64 address)
{
	const struct sock *sk = kernel_cast(address, struct sock);
	const struct sock_common *common = &sk->__sk_common;
	const struct udp_sock *up = kernel_cast(address, struct udp_sock);

	if (!survey || kernel_read(common, skc_num) != survey->port ||
	    kernel_pointer(common, skc_net.net) != survey->net ||
	    !survey_address(survey, common))
		return 0;
	if (survey->but && kernel_pointer(sk, sk_reuseport_cb) == survey->but)
		return 0;
	survey->sockets++;
	survey->last = address;
	if (kernel_read(up, encap_type))
		survey->uncertain = true;
	return 1;
}

/*
 * For how many such packets has this one room? If for one, it will be given a
 * copy: if another has none, the packet is admitted all the same. A global
 * function, too.
 */
__noinline int survey_room(struct survey *survey, __u64 address)
{
	const struct sock *sk = kernel_cast(address, struct sock);
	struct queue queue;
	__u32 room;

	if (!survey)
		return 0;
	queue = queue_of(sk, survey->truesize);
	queue.charged += flight_bytes(address, survey->group, queue.charged,
				      queue.limit);
	room = queue_room(&queue);
	survey->full += !room;
	if (room >= QUEUE_ROOM_FOR_ANY_POLL)
		return 0;
	survey->tight = true;
	if (room)
		flight_expect(address, survey->group, queue.truesize);
	return 0;
}

/*
 * Walks the bucket as the kernel does, under the RCU read lock that every XDP
 * and tc program holds. A socket that comes or goes meanwhile may be missed: so
 * may it by the kernel's own lookup at this moment.
 */
static __always_inline void survey_bucket(struct survey *survey, __u64 bucket,
					  bool rooms)
{
	const struct udp_hslot *slot = kernel_cast(bucket, struct udp_hslot);
	__u64 node = kernel_address(slot, head.first);
	int i;

	for (i = 0; i < SURVEY_SOCKETS && node; i++) {
		const struct hlist_node *link =
			kernel_cast(node, struct hlist_node);
		__u64 offset = bpf_core_field_offset(struct sock,
						     __sk_common.skc_node);

		if (survey_socket(survey, node - offset) && rooms)
			survey_room(survey, node - offset);
		/* Whoever asks for no more is there one only, or none. */
		if (!rooms && survey->sockets > !survey->but)
			return;
		node = kernel_address(link, next);
	}
	if (node)
		survey->uncertain = true;
}

#endif /* WEIR_UDP_TABLE_H */
