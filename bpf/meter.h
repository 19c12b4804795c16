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

/* On the CPU of the poll that has just ended. */
static __always_inline void share_out(struct weir_poll *poll, __u64 took,
				      __u64 discarding)
{
	__u64 admitting = took > discarding ? took - discarding : 0;
	struct weir_account *account;
	__u32 i, places = poll->touches;
	__u64 parts = 0;

	if (places > WEIR_TOUCHES)
		places = WEIR_ACCOUNTS;
	account = account_touched(poll, 0);
	if (places == 1 && account) {
		account_charge(account, admitting);
		goto out;
	}
	for (i = 0; i < WEIR_ACCOUNTS && i < places; i++) {
		account = account_touched(poll, i);
		if (account)
			parts += account->in_poll * account_cost(account);
	}
	if (!parts)
		goto out;
	for (i = 0; i < WEIR_ACCOUNTS && i < places; i++) {
		account = account_touched(poll, i);
		if (account)
			account_charge(account, admitting * account->in_poll *
							account_cost(account) /
							parts);
	}
out:
	poll->touched = 0;
	poll->touches = 0;
}

#endif /* WEIR_METER_H */
