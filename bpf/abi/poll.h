/* SPDX-License-Identifier: GPL-2.0-only */
/* The NAPI poll that runs, and what wakes gate and governor. */
#ifndef WEIR_ABI_POLL_H
#define WEIR_ABI_POLL_H

#include <linux/types.h>

/* Per CPU: the NAPI poll that is running. */
struct weir_poll {
	__u64 number; /* polls that have ended */
	__u64 moment; /* when now_ns was read: number, and ticks */
	__u64 now_ns; /* CLOCK_MONOTONIC */
	/* The packets that the gate has discarded on this CPU... */
	__u64 discarded;
	/* ...in how many buffers: a merged one stands for several... */
	__u64 discards;
	/* ...for which channel last; 0: none of late... */
	__u64 full_id;
	/* ...and those of other channels that it has admitted meanwhile. */
	__u64 beside;
	/* As the governor's programs last saw them, and when. */
	__u64 discarded_seen;
	__u64 discards_seen;
	__u64 discarded_rung; /* as of the last poll's end */
	__u64 beside_seen;
	__u64 full_ns;	/* CLOCK_MONOTONIC */
	__u64 ended_ns; /* when the meter last saw one end, CLOCK_MONOTONIC */
	/* Packets to forward that were admitted: those that go to a screen's
	 * queue, as far as is known, are counted under 1. */
	__u64 forwarded[2];
	/* The second of them may grow up to here in this poll, by the room that
	 * the screens' queues had in it at first. */
	__u64 forward_until;
	__u64 forward_read; /* 1 + the number of that poll */
	/* 1 + the number of the poll in which the kernel last got a request to
	 * answer by cookie. */
	__u64 requested;
	/* The accounts of which packets were admitted, in this poll. */
	__u64 touched; /* 1 + the poll's number */
	__u32 touches;
	__u32 pad;
	__u32 touch[WEIR_TOUCHES];
};

/* Places for causes: a power of two, and room to spare. */
#define WEIR_CAUSE_PLACES 8

/*
 * Where CPU time alone is short there may be nothing to discard, and looking
 * costs what is short. The gates try it for so long, and this seldom, until
 * they have discarded something.
 */
#define WEIR_TRIAL_NS 100000000ULL
#define WEIR_TRY_AGAIN_NS 1000000000ULL

/* Times of CLOCK_MONOTONIC. */
struct weir_alarm {
	__u32 asleep; /* set by user space, cleared by whoever rings */
	__u32 pad;
	__u64 rung_ns;	/* when something was last wrong, or a little before */
	__u64 tried_ns; /* when a shortage of CPU time alone last woke them */
	__u64 watched_until_ns; /* set by user space: somebody reads counters */
	__u64 sampled_until_ns; /* ...and somebody reads samples of discards */
	__u64 woken[WEIR_CAUSE_PLACES]; /* how often, by cause */
};

/* What a NAPI thread ran and waited, for a governor that sleeps. */
struct weir_strain {
	/* Set by user space. */
	__u64 wait_ns; /* a turn may be waited for so long; 0: do not compare */
	__u64 share;   /* of WEIR_SHARE_ONE: input's of the CPU */
	/* At the last comparison. */
	__u64 seen_ns;
	__u64 ran_ns;
	__u64 waited_ns;
	__u64 turns;
	__u32 full_polls; /* in a row */
	/* Since then. */
	__u32 overruns;
	__u32 full;    /* polls that were */
	__u32 drained; /* polls that were not */
	/* How often was it found to wait long, or to be over its share or its
	 * ring full again and again, of which there is one trial a second? */
	__u32 waits;
	__u32 over;
	__u64 suspected_ns; /* when what its last long wait belongs to began */
};

#endif /* WEIR_ABI_POLL_H */
