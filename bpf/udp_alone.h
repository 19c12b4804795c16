/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UDP sockets that nobody shares a port with: of those, what was found out can
 * be of use for the next packet.
 */
#ifndef WEIR_UDP_ALONE_H
#define WEIR_UDP_ALONE_H

#include "finding.h"
#include "udp_table.h"
#include "udp_tag.h"

/* net->bpf.run_array[]: programs that redirect lookups (BPF_SK_LOOKUP). */
#define NETNS_BPF_SK_LOOKUP 1

/* Does a program choose the socket (BPF_SK_LOOKUP)? */
static __always_inline bool udp_lookup_is_steered(__u64 net)
{
	const struct net *netns = kernel_cast(net, struct net);

	return kernel_pointer(netns, bpf.run_array[NETNS_BPF_SK_LOOKUP]);
}

/* Is this the only socket in its bucket that could be given such packets? */
__noinline bool udp_bucket_has_one(const struct weir_memory *memory, __u64 sock,
				   __u64 bucket)
{
	const struct sock *sk = kernel_cast(sock, struct sock);
	struct workspace *workspace = get_workspace();
	struct survey *survey;

	if (!memory || !workspace)
		return false;
	/* The usual case: there is no other. */
	if (udp_bucket_holds(bucket, sock))
		return true;
	survey = survey_begin(workspace, memory->address, memory->family,
			      memory->port_be,
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
__noinline bool udp_is_alone(__u64 address, const struct weir_memory *memory,
			     struct finding *finding)
{
	const struct sock *sk = kernel_cast(address, struct sock);
	__u64 net = kernel_address(sk, __sk_common.skc_net.net), bucket;

	if (DEFECT(PORT_SHARED_IGNORED))
		return true;
	if (!memory || !finding || udp_lookup_is_steered(net))
		return false;
	bucket = udp_bucket(sk, net, bpf_ntohs(memory->port_be));
	if (!udp_bucket_has_one(memory, address, bucket))
		return false;
	finding->sock = address;
	finding->bucket = bucket;
	finding->sock_tag = udp_socket_tag(sk);
	return true;
}

/*
 * The same, of a socket that was alone when it was last looked for: as long as
 * it is in its bucket and no other is, nobody else can have bound or connected
 * to its port. The bucket is read before the socket, which may have been freed.
 */
__noinline bool udp_is_still_alone(const struct weir_memory *memory)
{
	const struct sock *sk;

	if (!memory || !memory->sock || memory->connected ||
	    memory->generation != interface.generation ||
	    !(udp_bucket_has_one(memory, memory->sock, memory->bucket) ||
	      DEFECT(ALONE_FOREVER)))
		return false;
	sk = kernel_cast(memory->sock, struct sock);
	return (udp_socket_tag(sk) == memory->sock_tag ||
		DEFECT(PLACE_IS_ENOUGH)) &&
	       !udp_lookup_is_steered(
		       kernel_pointer(sk, __sk_common.skc_net.net));
}

/*
 * Is the queue that was full in an earlier poll full still? Then nothing has
 * changed that the long way would look at. Packets on their way to the queue
 * are left out: they can only make it fuller.
 */
__noinline bool udp_is_still_full(const struct weir_memory *memory,
				  __u64 now_ns)
{
	const struct udp_sock *up;
	const struct sock *sk;
	__u32 charged;

	if (!memory || memory->reason != WEIR_REASON_UDP_FULL ||
	    now_ns > memory->known_until_ns || !memory->truesize ||
	    !udp_is_still_alone(memory))
		return false;
	sk = kernel_cast(memory->sock, struct sock);
	up = kernel_cast(memory->sock, struct udp_sock);
	charged = kernel_read(sk, sk_backlog.rmem_alloc.counter);
	if (!charged || kernel_read(up, encap_type))
		return false;
	if (!queue_takes_one_more())
		charged += memory->truesize;
	return charged > (__u32)kernel_read(sk, sk_rcvbuf);
}

#endif /* WEIR_UDP_ALONE_H */
