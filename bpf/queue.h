/* SPDX-License-Identifier: GPL-2.0-only */
/* For how many packets has a UDP socket's receive queue room? */
#ifndef WEIR_QUEUE_H
#define WEIR_QUEUE_H

#include "address.h"
#include "charge.h"
#include "compat.h"
#include "defect.h"
#include "queue_map.h"
#include <stdbool.h>

#define QUEUE_ROOM_UNKNOWN (~0U)

/* More packets than one NAPI poll takes from a ring (NAPI_POLL_WEIGHT, twice):
 * none of them can fill such a queue, whoever else they are for. */
#define QUEUE_ROOM_FOR_ANY_POLL 128

struct queue {
	__u32 charged; /* bytes, also of what is on its way to it */
	__u32 limit;
	__u32 truesize; /* bytes charged for a packet; 0: not known */
	bool takes_one_more;
};

/*
 * Before 6.18 a packet is refused only if the queue is over its limit already,
 * whatever its own charge is.
 */
static __always_inline bool queue_takes_one_more(void)
{
	return !bpf_core_field_exists(struct udp_sock, udp_prod_queue);
}

static __always_inline struct queue queue_of(const struct sock *sk,
					     __u32 truesize)
{
	return (struct queue){
		.charged = kernel_read(sk, sk_backlog.rmem_alloc.counter),
		.limit = kernel_read(sk, sk_rcvbuf),
		.truesize = truesize,
		.takes_one_more = queue_takes_one_more(),
	};
}

/*
 * The kernel's own test, __udp_enqueue_schedule_skb(). Since 6.18 a packet is
 * refused when its charge does not fit and the queue is not empty; before, when
 * what is there already is over the limit.
 */
static __always_inline __u32 queue_room(const struct queue *queue)
{
	__u64 charged = queue->charged;
	__u32 limit = queue->limit;

	if (DEFECT(TRUESIZE_GUESSED))
		return charged + 65536 > limit ? 0 : 1;
	if (!queue->truesize)
		return QUEUE_ROOM_UNKNOWN;
	if (DEFECT(QUEUE_HALVED))
		limit /= 2;
	if (queue->takes_one_more)
		return charged > limit
			       ? 0
			       : (limit - charged) / queue->truesize + 1;
	if (!charged && !DEFECT(EMPTY_QUEUE_FULL))
		return queue->truesize > limit ? 1 : limit / queue->truesize;
	if (charged + queue->truesize > limit)
		return 0;
	return (limit - charged) / queue->truesize;
}

/*
 * Of a socket by its address, without regard to what is in flight, for loops
 * over several: a global function, which the verifier looks at once, not in
 * each round.
 */
__noinline __u32 socket_room(__u64 sk, __u32 truesize)
{
	struct queue queue = queue_of(kernel_cast(sk, struct sock), truesize);

	return queue_room(&queue);
}

#endif /* WEIR_QUEUE_H */
