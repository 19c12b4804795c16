/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets to forward whose egress queue is full are discarded here, instead of
 * after all the work of forwarding them (Mogul & Ramakrishnan, section 6.6).
 * The queue stays full: it sends as steadily as without. Which destinations it
 * is for is not configured: the kernel's refusals tell (egress.bpf.c).
 */
#ifndef WEIR_EGRESS_H
#define WEIR_EGRESS_H

#include "alarm.h"
#include "destination.h"
#include "egress_queue.h"
#include "screen.h"

/* Egress queues that one CPU counts what it admits to; direct-mapped. */
#define EGRESS_PLACES 64

/* What one NAPI poll has left of an egress queue's room. */
struct egress_poll {
	__u64 read; /* 1 + the number of that poll */
	__u32 ifindex;
	__u32 left;
};

MAP(egress_polls, BPF_MAP_TYPE_PERCPU_ARRAY, 0, EGRESS_PLACES, __u32,
    struct egress_poll);

/* The queue that such packets were refused by a short while ago. */
static __always_inline struct weir_egress *
egress_believed(const struct weir_screened_key *key, __u64 now)
{
	struct weir_egress *egress = bpf_map_lookup_elem(&egresses, key);

	return egress && now < egress->refused_ns + REFUSED_BELIEVED_NS ? egress
									: NULL;
}

/*
 * It is read once in a NAPI poll: later some of what was admitted in it is on
 * its way, and the queue does not show it.
 */
static __always_inline struct egress_poll *
egress_poll(const struct weir_egress *egress, __u32 ifindex,
	    const struct weir_poll *poll)
{
	__u32 place = ifindex & (EGRESS_PLACES - 1);
	struct egress_poll *it = bpf_map_lookup_elem(&egress_polls, &place);

	if (!it || (it->read == poll->number + 1 && it->ifindex == ifindex))
		return it;
	it->read = poll->number + 1;
	it->ifindex = ifindex;
	it->left = egress_room(egress);
	return it;
}

/*
 * Has the egress queue room for this packet, or for one of those that it stands
 * for? A global function, which the verifier looks at once.
 */
__noinline int egress_judge(struct weir_destination *entry, __u32 ifindex,
			    __u32 ip_len, struct prospects *prospects)
{
	struct weir_poll *poll = current_poll();
	struct weir_screened_key key;
	struct weir_egress *egress;
	struct egress_poll *it;
	__u32 need;

	if (!entry || !prospects || !poll ||
	    prospects->pass != WEIR_REASON_FORWARD)
		return 0;
	screened_key(entry, ifindex, prospects->egress_ifindex, &key);
	egress = egress_believed(&key, poll->now_ns);
	if (!egress) {
		egress_any_port(&key);
		egress = egress_believed(&key, poll->now_ns);
	}
	if (!egress)
		return 0;
	it = egress_poll(egress, prospects->egress_ifindex, poll);
	if (!it)
		return 0;
	need = egress_need(egress, ip_len + egress->header_len);
	if (it->left >= need) {
		it->left -= need;
		prospects->good_for = 0;
		return 0;
	}
	ring(WEIR_CAUSE_EGRESS_QUEUE, poll->now_ns);
	prospects->room = 0;
	/* Of another sender, TOS or label the route may be another. */
	entry->connected = true;
	entry->full_from = egress->in_bytes ? ip_len : 0;
	return 0;
}

#endif /* WEIR_EGRESS_H */
