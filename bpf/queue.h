/* SPDX-License-Identifier: GPL-2.0-only */
/* For how many packets has a socket's queue room? */
#ifndef WEIR_QUEUE_H
#define WEIR_QUEUE_H

#include "address.h"
#include "charge.h"
#include "compat.h"
#include "decide.h"

/* A batch of veth's. Bounds what an old charge decides where no NAPI polls. */
#define LOOKS_BY_OLD_CHARGE 16

/* More packets than one NAPI poll takes from a ring (NAPI_POLL_WEIGHT, twice):
 * none of them can fill such a queue, whoever else they are for. */
#define QUEUE_ROOM_FOR_ANY_POLL 128

/* What a packet is charged, and who sent it. */
struct charge {
	__u32 truesize; /* bytes; 0: not known */
	__u32 from;	/* the least length that is charged as much */
	/* Believed until then, CLOCK_MONOTONIC, and then asked for again. */
	__u64 known_until_ns;
	__u32 ip_len;
	__u32 whole;   /* it is no fragment */
	__u32 packets; /* that it stands for */
	__u64 source;  /* a hash of who sent it, where that matters */
};

/* What is known of a length of one kind: itself, or the least of any. */
static __always_inline const struct weir_charge *
charge_known(const struct weir_charges *charges, __u32 kind, __u32 len,
	     __u64 now)
{
	const struct weir_charge *known;

	known = charge_at(charges, kind, charge_class(len));
	if (known && now < known->learned_ns + CHARGE_KEPT_NS)
		return known;
	known = &charges->least[kind & 1];
	if (now < known->learned_ns + CHARGE_KEPT_NS &&
	    (known->from <= len || DEFECT(CHARGE_OF_ANY_LENGTH)))
		return known;
	return NULL;
}

/* Several packets in one? What each is charged cannot be told. */
static __always_inline bool is_piece(const struct flow *flow)
{
	return interface.packet_max && flow->ip_len > interface.packet_max;
}

/* So many is a datagram if all are as long as the first one. */
static __always_inline __u32 fragments_of(const struct flow *flow)
{
	return flow->left ? (flow->udp_len + flow->left - 1) / flow->left : 1;
}

/*
 * What a packet is charged. The first fragment of a datagram stands for all:
 * they are taken to be as many as if all were of its length. Where that is not
 * known, the datagram is charged what a whole packet of that length is, at
 * least.
 */
static __always_inline void charge_of(const struct flow *flow, __u32 truesize,
				      __u64 now, struct charge *charge)
{
	bool whole = flow->fragment == WEIR_FRAGMENT_NONE, of_fragment = false;
	__u32 fragments = fragments_of(flow);
	const struct weir_charge *known = NULL;
	const struct weir_charges *charges;

	charge->whole = whole;
	charge->ip_len = flow->ip_len;
	charge->truesize = truesize;
	charge->from = flow->ip_len;
	charge->known_until_ns = ~0ULL;
	if (truesize && whole)
		return;
	charges = is_piece(flow) ? NULL : charges_at(interface.charges);
	if (charges && !whole && fragments <= FRAGMENTS_COUNTED)
		known = charge_known(charges, 1, flow->ip_len, now);
	of_fragment = known;
	if (!known && truesize)
		return;
	if (charges && !known)
		known = charge_known(charges, 0, flow->ip_len, now);
	charge->truesize = known ? known->truesize : 0;
	charge->known_until_ns =
		charges ? charges->confirmed_ns + CHARGE_BELIEVED_NS : 0;
	if (!known)
		return;
	charge->from = known->from;
	if (of_fragment) {
		charge->truesize *= fragments;
		charge->from = ~0U;
	}
}

/*
 * What is known has become old: one packet that it would discard asks the
 * kernel, and the rest of its NAPI poll is judged by what was known. If the
 * kernel takes that packet, nothing is known any more.
 */
static __always_inline bool charge_asks(const struct charge *charge,
					const struct weir_poll *poll, __u64 now)
{
	struct weir_charges *charges;
	__u64 poll_id;

	if (now <= charge->known_until_ns || DEFECT(TRUESIZE_GUESSED))
		return false;
	charges = charges_at(interface.charges);
	if (!charges || now > charge->known_until_ns + CHARGE_BELIEVED_NS)
		return true;
	poll_id = poll_id_of(poll);
	if (charges->asked_poll)
		return charges->asked_poll != poll_id ||
		       charges->asked_looks++ >= LOOKS_BY_OLD_CHARGE;
	charges->asked_poll = poll_id;
	charges->asked_looks = 0;
	return true;
}

struct queue {
	__u32 charged; /* bytes, also of what is on its way to it */
	__u32 limit;
	__u32 truesize;	 /* bytes charged for a packet; 0: not known */
	__u32 lent;	 /* bytes of packets admitted since the last look */
	__u32 in_flight; /* bytes of charged that are on their way */
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
	if (DEFECT(QUEUE_HALVED))
		limit /= 2;
	if (queue->takes_one_more && charged > limit)
		return 0;
	if (!queue->truesize)
		return ROOM_UNKNOWN;
	if (queue->takes_one_more)
		return (limit - charged) / queue->truesize + 1;
	if (!charged && !DEFECT(EMPTY_QUEUE_FULL))
		return queue->truesize > limit ? 1 : limit / queue->truesize;
	if (charged + queue->truesize > limit)
		return 0;
	return (limit - charged) / queue->truesize;
}

/*
 * Is every packet refused, whatever it is charged, and whether or not others
 * are on their way? Then there is nothing to ask the kernel.
 */
static __always_inline bool queue_is_over(const struct queue *queue)
{
	return queue->takes_one_more &&
	       queue->charged - queue->in_flight > queue->limit;
}

/* sk_acceptq_is_full(), which tcp_conn_request() asks before all else. */
static __always_inline bool tcp_backlog_is_full(const struct sock *sk)
{
	__u32 waiting = kernel_read(sk, sk_ack_backlog);
	__u32 limit = kernel_read(sk, sk_max_ack_backlog);

	return DEFECT(BACKLOG_AT_LIMIT) ? waiting >= limit : waiting > limit;
}

/*
 * Of a socket by its address, without regard to what is in flight, for loops
 * over several: a global function, which the verifier looks at once, not in
 * each round.
 */
__noinline __u32 socket_room(__u64 address, __u32 truesize)
{
	const struct sock *sk = kernel_cast(address, struct sock);
	struct queue queue = queue_of(sk, truesize);

	/* Of TCP, for requests. */
	if (kernel_read(sk, __sk_common.skc_state) == BPF_TCP_LISTEN)
		return !tcp_backlog_is_full(sk);
	return queue_room(&queue);
}

#endif /* WEIR_QUEUE_H */
