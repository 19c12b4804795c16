/* SPDX-License-Identifier: GPL-2.0-only */
/* UDP: to which socket, and has its queue room? */
#ifndef WEIR_UDP_H
#define WEIR_UDP_H

#include "account.h"
#include "contest.h"
#include "lookup.h"
#include "packet.h"
#include "reuseport.h"
#include "udp_table.h"

/*
 * An answer that lets packets into a queue holds for so much of its room: one
 * in... A reader gives memory back in steps of a quarter of the buffer
 * (udp_rmem_release()): what came since must not hide that.
 */
#define ROOM_LENT 4

/*
 * What has been admitted since the queue was last looked at, in bytes, besides
 * the packet for which it was: it is on its way to it, too.
 */
static __always_inline __u32 udp_lent(struct weir_destination *entry,
				      const struct weir_poll *poll)
{
	__u32 first = 1 + entry->left, bytes = 0;

	if (entry->lent > first && entry->moment == poll->moment)
		bytes = (entry->lent - first) * entry->truesize;
	entry->lent = 0;
	return bytes;
}

/*
 * A packet takes its place in the queue before it gets there. Not so the first
 * fragment of a datagram that may never be whole.
 *
 * Where there is not much room, the answer holds for packets that are charged
 * the same, and for a part of it.
 */
static __always_inline void udp_expect(struct weir_destination *entry,
				       __u64 sock, const struct queue *queue,
				       const struct charge *charge,
				       struct prospects *prospects)
{
	__u32 packets = 1;

	if (!prospects->room || prospects->room >= QUEUE_ROOM_FOR_ANY_POLL)
		return;
	if (DEFECT(ROOM_RESERVED)) {
		packets = prospects->good_for ?: 1;
	} else if (prospects->good_for > prospects->room / ROOM_LENT) {
		prospects->good_for = prospects->room / ROOM_LENT;
	}
	if (!charge->whole && !DEFECT(FRAGMENT_EXPECTED)) {
		prospects->good_for = 0;
		return;
	}
	flight_expect(sock, 0, packets * queue->truesize);
	entry->lent = prospects->good_for;
	entry->lent_len = charge->ip_len;
}

static __always_inline void udp_socket(struct weir_destination *entry,
				       __u64 sock, __u32 lent,
				       const struct charge *charge,
				       struct weir_poll *poll,
				       struct prospects *prospects)
{
	const struct sock *sk = kernel_cast(sock, struct sock);
	struct queue queue = queue_of(sk, charge->truesize);

	queue.lent = lent;
	prospects->room = queue_room_left(sock, 0, &queue);
	/* Full by what is on its way: not for longer than that can be. */
	if (!prospects->room && queue.in_flight &&
	    prospects->good_for > flight_packets())
		prospects->good_for = flight_packets();
	if (!prospects->room && !queue_is_over(&queue) &&
	    charge_asks(charge, poll, poll->now_ns)) {
		queue.truesize = 0;
		prospects->room = ROOM_UNKNOWN;
		prospects->good_for = 0;
	}
	entry->truesize = queue.truesize;
	if (DEFECT(ROOM_RESERVED) && prospects->room &&
	    prospects->room < prospects->good_for)
		prospects->good_for = prospects->room;
	/* A connected socket is given its peer's packets only. */
	entry->connected = kernel_read(sk, __sk_common.skc_dport) != 0;
	if (!entry->connected && interface.selective)
		contest_judge(sock, &queue, charge, poll->now_ns, prospects);
	if (!prospects->yields)
		udp_expect(entry, sock, &queue, charge, prospects);
}

/* Which member a packet is for cannot be told: while one has room, all pass. */
static __always_inline void udp_members(const struct weir_destination *entry,
					const struct sock *sk,
					const struct charge *charge,
					struct weir_poll *poll,
					struct prospects *prospects)
{
	prospects->room = reuseport_room(kernel_address(sk, sk_reuseport_cb),
					 charge->truesize);
	prospects->good_for = prospects->room < WEIR_REMEMBERED
				      ? prospects->room
				      : WEIR_REMEMBERED;
	if (prospects->room)
		return;
	if (!queue_takes_one_more() &&
	    charge_asks(charge, poll, poll->now_ns)) {
		prospects->room = ROOM_UNKNOWN;
	} else if (udp_is_nobodys(entry,
				  kernel_address(sk, __sk_common.skc_net.net),
				  kernel_address_of(sk)) ||
		   DEFECT(GROUP_ALWAYS_ALONE)) {
		prospects->good_for = WEIR_REMEMBERED;
	}
}

/*
 * Does the socket have a filter that may keep count, as eBPF with maps does?
 * One that bans who sends much is to see all of it, and then there is room.
 */
static __always_inline bool has_counting_filter(const struct sock *sk)
{
	__u64 address = kernel_address(sk, sk_filter);
	const struct bpf_prog *prog;
	const struct bpf_prog_aux *aux;

	if (!address)
		return false;
	address = kernel_address(kernel_cast(address, struct sk_filter), prog);
	prog = kernel_cast(address, struct bpf_prog);
	aux = kernel_cast(kernel_address(prog, aux), struct bpf_prog_aux);
	return kernel_read(aux, used_map_cnt);
}

/*
 * What speaks for and against a packet for this socket. A global function,
 * which the verifier looks at once; so the socket comes as a number.
 */
__noinline int udp_judge(struct weir_destination *entry, __u64 sock,
			 const struct charge *charge,
			 struct prospects *prospects)
{
	const struct sock *sk = kernel_cast(sock, struct sock);
	const struct udp_sock *up = kernel_cast(sock, struct udp_sock);
	struct weir_poll *poll = current_poll();
	__u32 lent;

	if (!entry || !charge || !prospects || !poll)
		return 0;
	lent = udp_lent(entry, poll);
	prospects->pass = WEIR_REASON_UDP_ROOM;
	prospects->room = ROOM_UNKNOWN;
	entry->full_from = charge->from;
	entry->truesize = charge->truesize;
	if (kernel_read(up, encap_type) && !DEFECT(ENCAP_IGNORED)) {
		prospects->pass = WEIR_REASON_UDP_ENCAP;
	} else if (reuseport_may_pick_another(sk)) {
		udp_members(entry, sk, charge, poll, prospects);
	} else {
		udp_socket(entry, sock, lent, charge, poll, prospects);
	}
	if (!prospects->room && has_counting_filter(sk)) {
		prospects->room = ROOM_UNKNOWN;
		prospects->good_for = 0;
	}
	return 0;
}

/*
 * Every socket on the port that has joined the group gets a copy
 * (__udp4_lib_mcast_deliver()). Those that have not are asked too: discarding
 * takes them all to be full, which errs towards admitting.
 */
__noinline int udp_judge_group(struct weir_destination *entry, __u64 sock,
			       const struct charge *charge,
			       struct prospects *prospects)
{
	const struct sock *sk = kernel_cast(sock, struct sock);
	struct workspace *workspace = get_workspace();
	struct weir_poll *poll = current_poll();
	struct survey *survey;
	bool full, over;
	__u64 net;

	if (!entry || !charge || !prospects || !workspace || !poll)
		return 0;
	net = kernel_address(sk, __sk_common.skc_net.net);
	survey = survey_begin(workspace, entry, net);
	survey->any_address = true;
	survey->truesize = charge->truesize;
	survey->whole = charge->whole;
	/* Not 0, which is no group's. */
	survey->group =
		DEFECT(GROUPS_ARE_ONE) ? 1 : hash_address(0, entry->address);
	survey_bucket(survey, udp_bucket(sk, net, survey->port), true);
	if (DEFECT(MULTICAST_FIRST_FULL) && survey->full)
		survey->full = survey->sockets;
	entry->full_from = charge->from;
	entry->truesize = charge->truesize;
	over = survey->over == survey->sockets;
	full = survey->sockets && survey->full == survey->sockets &&
	       !survey->uncertain &&
	       (over || !charge_asks(charge, poll, poll->now_ns));
	prospects->pass = WEIR_REASON_MULTICAST_ROOM;
	prospects->room = full ? 0 : ROOM_UNKNOWN;
	if (!full && survey->tight)
		prospects->good_for = 0;
	return 0;
}

/*
 * The socket that the kernel would find, by address; 0 if none. It stays
 * readable: UDP sockets are freed after a grace period (SOCK_RCU_FREE).
 */
static __noinline __u64 udp_find(void *ctx, const struct flow *flow)
{
	struct bpf_sock_tuple tuple;
	struct bpf_sock *sk;
	__u64 address;

	sk = bpf_sk_lookup_udp(ctx, &tuple, tuple_of(flow, &tuple),
			       BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	address = kernel_address_of(sk);
	bpf_sk_release(sk);
	return address;
}

/* One receiver, or many. */
static __always_inline void udp_look(const struct packet *packet,
				     const struct flow *flow, bool to_many,
				     const struct charge *charge,
				     struct weir_destination *entry,
				     struct prospects *prospects)
{
	__u64 sock = udp_find(packet->ctx, flow);

	if (!sock) {
		/* A connected socket's peer is no stranger to its port. */
		entry->connected =
			!udp_is_nobodys(entry, packet_net(packet), 0);
		prospects->pass = DEFECT(NO_SOCKET_DISCARDED)
					  ? WEIR_REASON_UDP_FULL
					  : WEIR_REASON_UDP_NO_SOCKET;
		return;
	}
	if (to_many) {
		udp_judge_group(entry, sock, charge, prospects);
		return;
	}
	if (!udp_is_alone(sock, entry))
		prospects->good_for = 0;
	udp_judge(entry, sock, charge, prospects);
	if (entry->sock && !entry->connected)
		entry->alone_left = WEIR_REMEMBERED;
}

#endif /* WEIR_UDP_H */
