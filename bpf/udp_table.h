/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's own table of UDP sockets by local port (struct udp_table): which
 * sockets besides the one that a lookup found could be given a packet. Of one
 * that nobody shares a port with, what was found can be of use for the next
 * packet.
 */
#ifndef WEIR_UDP_TABLE_H
#define WEIR_UDP_TABLE_H

#include "compat.h"
#include "destination.h"
#include "flight.h"
#include "workspace.h"

/* Sockets of one bucket that are looked at; more, and nothing is certain. */
#define SURVEY_SOCKETS 72

/* Or one for all, which sockets alone lead to: before 6.2. */
#define nets_have_udp_tables() bpf_core_field_exists(struct net, ipv4.udp_table)

static __always_inline __u64 udp_table_of(const struct sock *sk, __u64 net)
{
	const struct net *netns = kernel_cast(net, struct net);
	const struct proto *proto;

	if (nets_have_udp_tables())
		return kernel_address(netns, ipv4.udp_table);
	proto = kernel_cast(kernel_address(sk, __sk_common.skc_prot),
			    struct proto);
	return kernel_address(proto, h.udp_table);
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

	return kernel_address(slot, head.first) == node &&
	       !kernel_address(sk, __sk_common.skc_node.next);
}

/* Could this address be what the socket is bound to? Rather yes than no. */
static __always_inline bool survey_address(const struct survey *survey,
					   const struct sock_common *common)
{
	__be32 bound = kernel_read(common, skc_rcv_saddr);
	__u32 words[4];

	if (survey->any_address)
		return true;
	if (DEFECT(BOUND_ADDRESS_IGNORED))
		return !bound;
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

static __always_inline struct survey *
survey_begin(struct workspace *workspace, const struct weir_destination *entry,
	     __u64 net)
{
	struct survey *survey = &workspace->survey;

	__builtin_memset(survey, 0, sizeof(*survey));
	survey->net = net;
	survey->family = entry->family;
	survey->port = bpf_ntohs(entry->port_be);
	copy_address(survey->destination, entry->address);
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
	    kernel_address(common, skc_net.net) != survey->net ||
	    !survey_address(survey, common))
		return 0;
	if (survey->but && kernel_address(sk, sk_reuseport_cb) == survey->but)
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
	room = queue_room_left(address, survey->group, &queue);
	survey->full += !room;
	survey->over += queue_is_over(&queue);
	if (room >= QUEUE_ROOM_FOR_ANY_POLL)
		return 0;
	survey->tight = true;
	if (room && (survey->whole || DEFECT(FRAGMENT_EXPECTED)))
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
	if (node && !DEFECT(BUCKET_CUT_SHORT))
		survey->uncertain = true;
}

/*
 * What a socket is bound and connected to, in 32 bits, and in which network
 * namespace: tells it from another that lies where it lay. The kernel gives the
 * memory of a closed socket to a new one, whose bucket may be the same.
 */
static __always_inline __u32 udp_socket_tag(const struct sock *sk, __u64 net)
{
	const struct sock_common *common = &sk->__sk_common;
	__u64 tag = kernel_read(common, skc_portpair);
	__u64 only_v6 = kernel_bitfield(common, skc_ipv6only);
	__u32 words[4];
	__u16 family;

	tag |= (__u64)kernel_read(common, skc_rcv_saddr) << 32;
	family = kernel_read(common, skc_family);
	tag = hash_add(tag ^ net, (__u32)kernel_read(common, skc_bound_dev_if) |
					  (__u64)family << 32 | only_v6 << 48);
	if (family == AF_INET6) {
		bpf_core_read(&words, sizeof(words),
			      &common->skc_v6_rcv_saddr.in6_u.u6_addr32);
		tag = hash_address(tag, words);
	}
	return tag >> 32;
}

/* Is this the only socket in its bucket that could be given such packets? */
__noinline bool udp_bucket_has_one(const struct weir_destination *entry,
				   __u64 sock, __u64 bucket)
{
	const struct sock *sk = kernel_cast(sock, struct sock);
	struct workspace *workspace = get_workspace();
	struct survey *survey;

	if (!entry || !workspace)
		return false;
	/* The usual case: there is no other. */
	if (udp_bucket_holds(bucket, sock))
		return true;
	survey = survey_begin(workspace, entry,
			      kernel_address(sk, __sk_common.skc_net.net));
	survey_bucket(survey, bucket, false);
	return survey->sockets == 1 && survey->last == sock &&
	       !survey->uncertain;
}

/*
 * Is this the only socket that a packet to this address and port can reach?
 * Then what is found is of use for the next one, and it can be seen without a
 * lookup whether it still is.
 */
__noinline bool udp_is_alone(__u64 address, struct weir_destination *entry)
{
	const struct sock *sk = kernel_cast(address, struct sock);
	__u64 net = kernel_address(sk, __sk_common.skc_net.net), bucket;

	if (DEFECT(PORT_SHARED_IGNORED))
		return true;
	if (!entry)
		return false;
	bucket = udp_bucket(sk, net, bpf_ntohs(entry->port_be));
	if (!udp_bucket_has_one(entry, address, bucket))
		return false;
	entry->sock = address;
	entry->bucket = bucket;
	entry->sock_tag = udp_socket_tag(sk, net);
	return true;
}

/*
 * The same, of a socket that was alone when it was last looked for: as long as
 * it is in its bucket and no other is, nobody else can have bound or connected
 * to its port. The bucket is read before the socket, which may have been freed.
 */
__noinline bool udp_is_still_alone(const struct weir_destination *entry)
{
	const struct sock *sk;
	__u64 net;

	if (!entry || !entry->sock || entry->connected ||
	    entry->generation != interface.generation ||
	    !(udp_bucket_has_one(entry, entry->sock, entry->bucket) ||
	      DEFECT(ALONE_FOREVER)))
		return false;
	sk = kernel_cast(entry->sock, struct sock);
	net = kernel_address(sk, __sk_common.skc_net.net);
	return (udp_socket_tag(sk, net) == entry->sock_tag ||
		DEFECT(PLACE_IS_ENOUGH)) &&
	       !lookup_is_steered(net);
}

/*
 * Is there no socket at all that could be given packets to this address and
 * port, or none but of the group that `sock` is of, unless that is 0? Then that
 * one packet is for none, or for one of those, is true of all of them.
 */
__noinline bool udp_is_nobodys(const struct weir_destination *entry, __u64 net,
			       __u64 sock)
{
	const struct sock *sk = kernel_cast(sock, struct sock);
	struct workspace *workspace = get_workspace();
	struct survey *survey;

	if (!entry || !workspace || !net || (!sock && !nets_have_udp_tables()))
		return false;
	survey = survey_begin(workspace, entry, net);
	if (sock)
		survey->but = kernel_address(sk, sk_reuseport_cb);
	else
		survey->any_address = entry->target == WEIR_TARGET_UDP_GROUP;
	survey_bucket(survey, udp_bucket(sk, net, survey->port), false);
	return !survey->sockets && !survey->uncertain;
}

#endif /* WEIR_UDP_TABLE_H */
