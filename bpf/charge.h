/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What packets are charged to a UDP socket's queue (their skb's truesize), a
 * row for each interface with a gate and in it by length: drivers differ.
 * docs/adr/0001-queue-state.md.
 *
 * At tc the skb says it. In the driver there is no skb yet, and the queue probe
 * teaches it: each packet that the kernel refuses tells what packets of its
 * length are charged there, and with that the least that longer ones are.
 */
#ifndef WEIR_CHARGE_H
#define WEIR_CHARGE_H

#include "shared.h"

/*
 * How long charges are believed. A smaller packet may fit where those refused
 * did not, so the kernel is asked again (at the price of one late drop) at
 * least this often...
 */
#define CHARGE_BELIEVED_NS 10000000ULL
/* ...and how long one length's is kept if only others are asked for. */
#define CHARGE_KEPT_NS 1000000000ULL

/* Classes of 16 bytes, in which drivers that round up differ by one step. */
#define CHARGE_FINE_LEN 2048
#define CHARGE_FINE_SHIFT 4
#define CHARGE_COARSE_SHIFT 11
#define CHARGE_FINE_CLASSES (CHARGE_FINE_LEN >> CHARGE_FINE_SHIFT)

/* More than a datagram has whose fragments fill a link's packets: of what has
 * as many nothing is learned, nor known. */
#define FRAGMENTS_COUNTED 64

/* A row, by 1 + its number. */
static __always_inline struct weir_charges *charges_at(__u32 row)
{
	__u32 key = row - 1;

	return bpf_map_lookup_elem(&charges, &key);
}

static __always_inline __u32 charge_class(__u32 len)
{
	if (len < CHARGE_FINE_LEN)
		return len >> CHARGE_FINE_SHIFT;
	return CHARGE_FINE_CLASSES +
	       ((len - CHARGE_FINE_LEN) >> CHARGE_COARSE_SHIFT);
}

/* The least length of a class. */
static __always_inline __u32 charge_class_from(__u32 class)
{
	if (class < CHARGE_FINE_CLASSES)
		return class << CHARGE_FINE_SHIFT;
	return CHARGE_FINE_LEN +
	       ((class - CHARGE_FINE_CLASSES) << CHARGE_COARSE_SHIFT);
}

static __always_inline struct weir_charge *
charge_at(const struct weir_charges *charges, __u32 kind, __u32 class)
{
	if (class >= WEIR_CHARGE_CLASSES)
		return NULL;
	return (struct weir_charge *)&charges
		->of[(kind & 1) * WEIR_CHARGE_CLASSES + class];
}

#endif /* WEIR_CHARGE_H */
