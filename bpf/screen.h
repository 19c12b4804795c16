/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets to forward that go by way of a user-mode screen: what would overflow
 * its queue is discarded here (Mogul & Ramakrishnan, section 6.6). Which do is
 * not configured: the kernel's refusals tell (screen.bpf.c).
 */
#ifndef WEIR_SCREEN_H
#define WEIR_SCREEN_H

#include "destination.h"
#include "screen_queue.h"

/*
 * Full queues are given a packet so often, whatever is believed of them. The
 * paper's time limit on the feedback, for the same reason.
 */
#define SCREEN_ASKED_NS 1000000ULL

/* Which queue a packet is for cannot be told: one that has room is enough. */
static __always_inline __u32 screen_room_now(const struct weir_screen *screen)
{
	__u32 i, room, most = 0;

	for (i = 0; i < WEIR_SCREEN_QUEUES && i < screen->queues; i++) {
		room = screen_queue_room(&screen->queue[i]);
		if (room > most)
			most = room;
	}
	return most;
}

/*
 * It is read once in a NAPI poll: later some of what was admitted in it is on
 * its way, and the queue does not show it.
 */
static __always_inline __u32 screen_room(struct weir_screen *screen,
					 struct weir_poll *poll)
{
	__u64 admitted = poll->forwarded[1];

	if (poll->forward_read != poll->number + 1) {
		poll->forward_read = poll->number + 1;
		poll->forward_until = admitted + screen_room_now(screen);
	}
	return poll->forward_until > admitted ? poll->forward_until - admitted
					      : 0;
}

static __always_inline void screened_key(const struct weir_destination *entry,
					 __u32 ifindex, __u32 egress_ifindex,
					 struct weir_screened_key *key)
{
	copy_address(key->address, entry->address);
	key->ifindex = ifindex;
	key->egress_ifindex = egress_ifindex;
	key->port_be = entry->port_be;
	key->family = entry->family;
	key->target = entry->target;
}

static __always_inline bool is_screened(const struct weir_destination *entry,
					__u32 ifindex, __u32 egress_ifindex,
					__u64 now)
{
	struct weir_screened_key key;

	screened_key(entry, ifindex, egress_ifindex, &key);
	return refusal_believed(bpf_map_lookup_elem(&screened, &key), now);
}

/*
 * Has a screen room for what is sent this way? A global function, which the
 * verifier looks at once.
 */
__noinline int screen_judge(struct weir_destination *entry, __u32 ifindex,
			    struct prospects *prospects)
{
	struct weir_screen *screen = the_screen();
	struct weir_poll *poll = current_poll();
	__u32 room;

	if (!entry || !prospects || !screen || !poll || !screen->queues ||
	    prospects->pass != WEIR_REASON_FORWARD ||
	    !is_screened(entry, ifindex, prospects->egress_ifindex,
			 poll->now_ns))
		return 0;
	entry->screened = 1;
	if (poll->now_ns >= screen->believed_until_ns)
		return 0;
	room = screen_room(screen, poll);
	if (!room && poll->now_ns - screen->asked_ns > SCREEN_ASKED_NS) {
		screen->asked_ns = poll->now_ns;
		prospects->good_for = 0;
		return 0;
	}
	prospects->room = room;
	if (room && room < prospects->good_for)
		prospects->good_for = room;
	return 0;
}

#endif /* WEIR_SCREEN_H */
