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

/* On the CPU of the poll that has just ended. */
static __always_inline void share_out(struct weir_poll *poll, __u64 took,
				      __u64 discarding)
{
	__u64 admitting = took > discarding ? took - discarding : 0;
	struct weir_account *account;
	__u64 parts = 0;
	__u32 i;

	poll->touched = 0;
	account = account_at(poll->touch[0]);
	if (poll->touches == 1 && account && account->in_poll) {
		account_charge(account, admitting);
		poll->touches = 0;
		return;
	}
	for (i = 0; i < WEIR_TOUCHES && i < poll->touches; i++) {
		account = account_at(poll->touch[i]);
		if (account)
			parts += account->in_poll * account_cost(account);
	}
	if (!parts)
		return;
	for (i = 0; i < WEIR_TOUCHES && i < poll->touches; i++) {
		account = account_at(poll->touch[i]);
		if (account && account->in_poll)
			account_charge(account, admitting * account->in_poll *
							account_cost(account) /
							parts);
	}
	poll->touches = 0;
}

#endif /* WEIR_METER_H */
