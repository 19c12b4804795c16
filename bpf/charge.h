/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a packet is charged to a UDP socket's queue (its skb's truesize), by the
 * interface that it came in by and its length: drivers differ. docs/adr/
 * 0001-queue-state.md.
 *
 * At tc the skb says it. In the driver there is no skb yet, and the queue probe
 * teaches it: each packet that the kernel refuses tells what packets of its
 * length are charged there, and with that the least that longer ones are.
 */
#ifndef WEIR_CHARGE_H
#define WEIR_CHARGE_H

#include "address.h"
#include "charge_map.h"
#include "queue_map.h"
#include <stdbool.h>

/* A batch of veth's. Bounds what an old charge decides where no NAPI polls. */
#define LOOKS_BY_OLD_CHARGE 16

struct charge {
	__u32 truesize; /* bytes; 0: not known */
	__u32 from;	/* the least length that is charged as much */
	/* Believed until then, CLOCK_MONOTONIC, and then asked for again. */
	__u64 known_until_ns;
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

/*
 * What a packet is charged. The first fragment of a datagram stands for all:
 * they are taken to be as many as if all were of its length.
 */
static __always_inline void charge_of(const struct flow *flow, __u32 truesize,
				      __u64 now, struct charge *charge)
{
	bool whole = flow->fragment == WEIR_FRAGMENT_NONE;
	const struct weir_charge *known = NULL;
	const struct weir_charges *charges;

	charge->truesize = truesize;
	charge->from = flow->ip_len;
	charge->known_until_ns = ~0ULL;
	if (truesize && whole)
		return;
	charges = charges_at(interface.charges);
	if (charges)
		known = charge_known(charges, whole ? 0 : 1, flow->ip_len, now);
	charge->truesize = known ? known->truesize : 0;
	charge->known_until_ns =
		charges ? charges->confirmed_ns + CHARGE_BELIEVED_NS : 0;
	if (!known)
		return;
	charge->from = known->from;
	if (!whole && flow->left) {
		charge->truesize *=
			(flow->udp_len + flow->left - 1) / flow->left;
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

#endif /* WEIR_CHARGE_H */
