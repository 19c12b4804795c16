/* SPDX-License-Identifier: GPL-2.0-only */
/* When what a packet is charged is asked of the kernel again. */
#ifndef WEIR_QUEUE_ASK_H
#define WEIR_QUEUE_ASK_H

#include "queue_map.h"
#include <stdbool.h>

/* A batch of veth's. Bounds what an old charge decides where no NAPI polls. */
#define QUEUE_LOOKS_BY_OLD_CHARGE 16

/* Distinct over CPUs: none mistakes another's packets for its own. */
static __always_inline __u64 queue_poll_id(const struct weir_poll *poll)
{
	return poll->number << 16 | bpf_get_smp_processor_id();
}

/*
 * What is known has become old: one packet asks the kernel, and the rest of its
 * NAPI poll is judged by what was known. If the kernel takes that packet,
 * nothing is known any more.
 */
static __always_inline bool queue_asks(struct weir_queue_slot *slot,
				       const struct weir_poll *poll)
{
	__u64 poll_id = queue_poll_id(poll);

	if (slot->asked_poll)
		return slot->asked_poll != poll_id ||
		       slot->asked_looks++ >= QUEUE_LOOKS_BY_OLD_CHARGE;
	slot->asked_poll = poll_id;
	slot->asked_looks = 0;
	return true;
}

#endif /* WEIR_QUEUE_ASK_H */
