/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For how many packets has an NFQUEUE room? It refuses one if its program's
 * netlink socket does (netlink_attachskb()), or if too many wait for a verdict
 * (__nfqnl_enqueue_packet()). The socket is read; how many may wait, user space
 * has seen. Those that the program has read and not decided on do not show, so
 * they count as decided on, since it may decide on all of them at once; but for
 * one, while it has more to read.
 */
#ifndef WEIR_SCREEN_QUEUE_H
#define WEIR_SCREEN_QUEUE_H

#include "compat.h"
#include "decide.h"
#include "shared.h"

#define NETLINK_S_CONGESTED 1 /* a bit, net/netlink/af_netlink.h */
/* After so long without a refusal, a destination may go another way by now. */
#define REFUSED_BELIEVED_NS 1000000000ULL

/* Packets in a queue's socket, and how many more that takes. */
struct screen_state {
	__u32 waiting;
	__u32 room;
};

/*
 * A socket that is gone may be anything: then there is room. Its memory stays
 * readable, and what is freed has no packets.
 */
static __always_inline struct screen_state
screen_socket(const struct weir_screen_queue *queue)
{
	const struct netlink_sock *netlink =
		kernel_cast(queue->sock, struct netlink_sock);
	const struct sock *sk = kernel_cast(queue->sock, struct sock);
	struct screen_state state = {.room = ROOM_UNKNOWN};
	__u32 charged, limit, each;

	if (!queue->sock || kernel_read(netlink, portid) != queue->port_id)
		return state;
	state.waiting = kernel_read(sk, sk_receive_queue.qlen);
	if (!state.waiting)
		return state;
	charged = kernel_read(sk, sk_backlog.rmem_alloc.counter);
	limit = kernel_read(sk, sk_rcvbuf);
	each = charged / state.waiting ?: 1;
	/* Until the program has read everything, it is given nothing. */
	if (kernel_read(netlink, state) & NETLINK_S_CONGESTED ||
	    charged >= limit)
		state.room = 0;
	else
		state.room = (limit - charged) / each;
	return state;
}

static __always_inline __u32
screen_queue_room(const struct weir_screen_queue *queue)
{
	struct screen_state state = screen_socket(queue);
	__u32 left, held = state.waiting;

	if (!queue->limit)
		return state.room;
	held += held > 0;
	left = queue->limit > held ? queue->limit - held : 0;
	return left < state.room ? left : state.room;
}

static __always_inline bool refusal_believed(const struct weir_refusal *refusal,
					     __u64 now)
{
	return refusal && now < refusal->at_ns + REFUSED_BELIEVED_NS;
}

#endif /* WEIR_SCREEN_QUEUE_H */
