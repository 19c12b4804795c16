/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fragments follow the first one of their datagram, and share its verdict
 * (Druschel & Banga, section 3.2): a tail without its head is of no use to
 * anybody, and a head without its tail wastes the memory that it waits in.
 */
#ifndef WEIR_FRAGMENT_H
#define WEIR_FRAGMENT_H

#include "map.h"
#include "defect.h"
#include "flow.h"
#include "decide.h"

/*
 * How long a datagram's verdict is believed. Its fragments come back to back;
 * after 100 ms, its number may be another's (RFC 6864), and what is not known
 * for certain passes.
 */
#define DATAGRAM_BELIEVED_NS 100000000ULL

MAP(datagrams, BPF_MAP_TYPE_LRU_HASH, 0, WEIR_DATAGRAMS,
    struct weir_datagram_key, struct weir_datagram);

static __always_inline void datagram_key(const struct flow *flow,
					 struct weir_datagram_key *key)
{
	key->family = flow->family;
	key->id_be = DEFECT(DATAGRAM_ID_FORGOTTEN) ? 0 : flow->fragment_id_be;
	/* In IPv6 the later fragments may name another one (RFC 8200). */
	key->protocol = flow->family == WEIR_FAMILY_IPV4 &&
					!DEFECT(DATAGRAM_PROTOCOL_FORGOTTEN)
				? flow->protocol
				: 0;
	key->pad = 0;
	__builtin_memcpy(key->source, flow->source, sizeof(key->source));
	if (DEFECT(DATAGRAM_SOURCE_FORGOTTEN))
		__builtin_memset(key->source, 0, sizeof(key->source));
	__builtin_memcpy(key->destination, flow->destination,
			 sizeof(key->destination));
}

/* What became of the datagram so far; else NO_REASON. */
static __always_inline int datagram_find(const struct weir_datagram_key *key,
					 __u64 now_ns)
{
	struct weir_datagram *known = bpf_map_lookup_elem(&datagrams, key);

	if (!known || now_ns > known->until_ns)
		return NO_REASON;
	return known->reason;
}

static __always_inline void datagram_note(const struct weir_datagram_key *key,
					  __u32 reason, __u64 now_ns)
{
	struct weir_datagram datagram = {
		.until_ns = now_ns + DATAGRAM_BELIEVED_NS,
		.reason = reason,
	};

	bpf_map_update_elem(&datagrams, key, &datagram, BPF_ANY);
}

/* A tail came first, and passed: so must its head. */
__noinline bool fragment_is_overtaken(const struct flow *flow)
{
	struct weir_datagram_key key;

	if (!flow || DEFECT(FRAGMENT_HEAD_AFTER_TAIL))
		return false;
	datagram_key(flow, &key);
	return datagram_find(&key, bpf_ktime_get_ns()) ==
	       WEIR_REASON_FRAGMENT_EARLY;
}

/* The first fragment has been judged, as a whole packet is. */
__noinline int fragment_note(const struct flow *flow, __u32 reason)
{
	struct weir_datagram_key key;

	if (!flow)
		return 0;
	datagram_key(flow, &key);
	datagram_note(&key, reason, bpf_ktime_get_ns());
	return 0;
}

/* Why a later fragment passes, or is discarded. */
__noinline __u32 fragment_later(const struct flow *flow)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct weir_datagram_key key;
	int first;

	if (!flow)
		return WEIR_REASON_FRAGMENT_EARLY;
	datagram_key(flow, &key);
	first = datagram_find(&key, now_ns);
	if (first == NO_REASON && DEFECT(FRAGMENT_EARLY_DISCARDED))
		return WEIR_REASON_FRAGMENT_DISCARDED;
	if (first == NO_REASON)
		datagram_note(&key, WEIR_REASON_FRAGMENT_EARLY, now_ns);
	if (first == NO_REASON || first == WEIR_REASON_FRAGMENT_EARLY)
		return WEIR_REASON_FRAGMENT_EARLY;
	if (verdict_of_reason(first) == WEIR_VERDICT_DISCARD ||
	    DEFECT(FRAGMENT_TAIL_DISCARDED))
		return WEIR_REASON_FRAGMENT_DISCARDED;
	return WEIR_REASON_FRAGMENT;
}

#endif /* WEIR_FRAGMENT_H */
