/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The meter: shares the time of a NAPI poll out among the channels whose
 * packets were admitted in it, by how many they were and what one of each has
 * cost of late. A poll of one channel's packets alone tells what one costs; in
 * others the shares come nearer to the truth each time (expectation
 * maximization).
 */
#ifndef WEIR_METER_H
#define WEIR_METER_H

#include "shared.h"
#include <stdbool.h>

/* A packet's cost is the average over so many, and less. */
#define COST_PACKETS 4096

static __always_inline void account_charge(struct weir_account *account,
					   __u64 ns)
{
	account->charged_ns += ns;
	account->packets += account->in_poll;
	account->cost_ns += ns;
	account->cost_packets += account->in_poll;
	if (account->cost_packets > COST_PACKETS) {
		account->cost_ns /= 2;
		account->cost_packets /= 2;
	}
	account->in_poll = 0;
	/* What it had without a limit is no debt, nor is what no poll takes. */
	if (account->limited_until_ns)
		account->tokens_ns -= poll_time(ns);
}

/* One of those touched; where there were more than are noted, of all. */
static __always_inline struct weir_account *
account_touched(const struct weir_poll *poll, __u32 i)
{
	struct weir_account *account;

	account = account_at(poll->touches > WEIR_TOUCHES
				     ? i
				     : poll->touch[i & (WEIR_TOUCHES - 1)]);
	if (!account || account->poll + 1 != poll->touched)
		return NULL;
	return account->in_poll ? account : NULL;
}

/* How many accounts, or places of them, are to be looked at. */
static __always_inline __u32 touched_places(const struct weir_poll *poll)
{
	return poll->touches > WEIR_TOUCHES ? WEIR_ACCOUNTS : poll->touches;
}

/*
 * Of one of those touched: how many packets were admitted, and what they cost
 * by what one did of late; 0 of any other. Global functions, as all that
 * follow: the verifier looks at each once, not for each place.
 */
__noinline __u64 touched_packets(__u32 i)
{
	struct weir_poll *poll = current_poll();
	struct weir_account *account = poll ? account_touched(poll, i) : NULL;

	return account ? account->in_poll : 0;
}

__noinline __u64 touched_cost(__u32 i)
{
	struct weir_poll *poll = current_poll();
	struct weir_account *account = poll ? account_touched(poll, i) : NULL;

	return account ? account->in_poll * account_cost(account) : 0;
}

/* Its part of that time is charged to it. */
__noinline int touched_charge(__u32 i, __u64 ns, __u64 costs)
{
	struct weir_poll *poll = current_poll();
	struct weir_account *account = poll ? account_touched(poll, i) : NULL;

	if (account && costs)
		account_charge(account, ns * account->in_poll *
						account_cost(account) / costs);
	return 0;
}

/* How many packets were admitted in the poll that has just ended. */
__noinline __u64 admitted_packets(void)
{
	struct weir_poll *poll = current_poll();
	__u64 packets = 0;
	__u32 i, places;

	if (!poll)
		return 0;
	places = touched_places(poll);
	for (i = 0; i < WEIR_ACCOUNTS && i < places; i++)
		packets += touched_packets(i);
	return packets;
}

/* On the CPU of the poll that has just ended. */
__noinline int share_out(__u64 took, __u64 discarding)
{
	__u64 admitting = took > discarding ? took - discarding : 0;
	struct weir_poll *poll = current_poll();
	struct weir_account *account;
	__u32 i, places;
	__u64 costs = 0;

	if (!poll)
		return 0;
	places = touched_places(poll);
	account = account_touched(poll, 0);
	if (places == 1 && account) {
		account_charge(account, admitting);
		goto out;
	}
	for (i = 0; i < WEIR_ACCOUNTS && i < places; i++)
		costs += touched_cost(i);
	for (i = 0; i < WEIR_ACCOUNTS && i < places && costs; i++)
		touched_charge(i, admitting, costs);
out:
	poll->touched = 0;
	poll->touches = 0;
	return 0;
}

#endif /* WEIR_METER_H */
