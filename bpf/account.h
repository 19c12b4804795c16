/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Charges admitted packets to a channel and checks its CPU budget (Druschel &
 * Banga, section 3: resource accounting).
 *
 * A channel's account is looked for once per NAPI poll and destination, not per
 * packet; the meter shares the poll's time out at its end (meter.h). A limit is
 * kept by tokens: time on this CPU, some of it saved up.
 */
#ifndef WEIR_ACCOUNT_H
#define WEIR_ACCOUNT_H

#include "address.h"
#include "destination.h"

/* Longest probe for a place. */
#define ACCOUNT_PROBES 4
/* Unused time is saved up to this much. */
#define TOKENS_SAVED_NS 10000000ULL

static __always_inline bool same_channel(const struct weir_channel_key *a,
					 const struct weir_channel_key *b)
{
	return a->kind == b->kind && a->port == b->port &&
	       a->family == b->family &&
	       a->egress_ifindex == b->egress_ifindex &&
	       same_address(a->address, b->address, a->family);
}

/* What it has had goes to its kind; the place is another's from now on. */
static __always_inline void account_open(struct weir_account *account,
					 const struct weir_channel_key *key)
{
	struct weir_account *kinds = account_at(account->key.kind);

	if (kinds && account->packets) {
		kinds->charged_ns += account->charged_ns;
		kinds->packets += account->packets;
	}
	__builtin_memset(account, 0, sizeof(*account));
	account->key = *key;
}

/* Is it a channel that keeps its account, whatever else comes? */
static __always_inline bool is_protected(const struct weir_channel_key *key)
{
	return (key->kind == WEIR_KIND_TCP ||
		key->kind == WEIR_KIND_TCP_PEER) &&
	       is_protected_port(key->port);
}

/*
 * The place of a channel's account: its own, or one that is idle. Where there
 * is neither, a protected channel takes another's, and others share their
 * kind's.
 */
static __always_inline __u32 account_find(const struct weir_channel_key *key,
					  __u64 now)
{
	__u64 hash = hash_address(hash_seed, key->address);
	__u32 i, place, free = key->kind;
	bool claims = is_protected(key), idle = false;
	struct weir_account *account;

	hash = hash_add(hash, key->port | (__u64)key->kind << 16 |
				      (__u64)key->egress_ifindex << 32);
	for (i = 0; i < ACCOUNT_PROBES; i++) {
		place = WEIR_KIND_COUNT +
			((__u32)(hash >> 32) + i) %
				(WEIR_ACCOUNTS - WEIR_KIND_COUNT);
		account = account_at(place);
		if (!account)
			break;
		if (same_channel(&account->key, key))
			return place;
		if (now - account->used_ns > WEIR_ACCOUNT_IDLE_NS) {
			free = idle ? free : place;
			idle = true;
		} else if (!idle && claims && !is_protected(&account->key)) {
			free = place;
		}
	}
	if (free == key->kind)
		return free;
	account = account_at(free);
	if (account)
		account_open(account, key);
	return free;
}

/* For how many packets has it time left? */
static __always_inline __u32 account_room(struct weir_account *account,
					  struct weir_poll *poll)
{
	__u64 now, since, room;
	__s64 most;

	/* The usual case, without a look at the clock. */
	if (!account->limited_until_ns)
		return ROOM_UNKNOWN;
	now = poll->now_ns;
	since = now - account->filled_ns;
	most = TOKENS_SAVED_NS * account->limit / WEIR_LIMIT_ONE;
	if (now > account->limited_until_ns) {
		account->filled_ns = 0;
		account->tokens_ns = 0;
		return ROOM_UNKNOWN;
	}
	if (since > TOKENS_SAVED_NS)
		since = TOKENS_SAVED_NS;
	account->filled_ns = now;
	account->tokens_ns += since * account->limit / WEIR_LIMIT_ONE;
	if (account->tokens_ns > most)
		account->tokens_ns = most;
	if (account->tokens_ns <= 0)
		return 0;
	room = account->tokens_ns / account_cost(account) + 1;
	if (account->poll != poll->number)
		return room;
	return room > account->in_poll ? room - account->in_poll : 0;
}

/* The meter is to know that packets of it were admitted in this poll. */
static __always_inline void account_touch(struct weir_account *account,
					  __u32 place, struct weir_poll *poll)
{
	if (poll->touched != poll->number + 1) {
		poll->touched = poll->number + 1;
		poll->touches = 0;
	}
	if (account->poll == poll->number && account->in_poll)
		return;
	/* Of an earlier poll, whose end nobody saw. */
	account->in_poll = 0;
	account->poll = poll->number;
	account->used_ns = poll->ended_ns;
	if (poll->touches < WEIR_TOUCHES)
		poll->touch[poll->touches & (WEIR_TOUCHES - 1)] = place;
	poll->touches++;
}

/* How many more packets of this account may be admitted in this poll. */
static __always_inline __u32 account_admits(__u32 place, __u32 kind,
					    struct weir_poll *poll)
{
	struct weir_account *account = account_at(place);
	__u32 room;

	if (!account)
		return ROOM_UNKNOWN;
	/* A kind's own, before its first packet. */
	account->key.kind = kind;
	room = account_room(account, poll);
	if (room)
		account_touch(account, place, poll);
	else
		account->shed++;
	return room;
}

/* How many more packets may a destination's channel have admitted now? */
static __always_inline __u32 account_budget(struct weir_destination *entry,
					    struct weir_poll *poll)
{
	const struct weir_account *account = account_at(entry->account);
	struct weir_channel_key key = {};

	destination_key(entry, &key);
	if (!is_addressed(entry->kind))
		entry->account = entry->kind;
	else if (!account || !same_channel(&account->key, &key))
		entry->account = account_find(&key, poll->ended_ns);
	return account_admits(entry->account, entry->kind, poll);
}

/*
 * Its channel missed those, too, that were discarded while the last answer
 * held: all but the first, for which the answer was found.
 */
static __always_inline void account_missed(struct weir_destination *entry)
{
	__u32 shed = entry->seen[WEIR_SEEN_SHED].packets, since;
	struct weir_account *account = account_at(entry->account);

	since = shed - entry->shed;
	entry->shed = shed;
	if (account && since > 1)
		account->shed += since - 1;
}

/*
 * What is known of a destination is complete: its answer, and for how many
 * packets it holds. A global function, which the verifier looks at once.
 */
__noinline int destination_conclude(struct weir_destination *entry,
				    struct prospects *prospects)
{
	struct weir_poll *poll = current_poll();

	if (!entry || !prospects || !poll)
		return 0;
	prospects->budget = ROOM_UNKNOWN;
	account_missed(entry);
	if (verdict_of_reason(decide(prospects)) == WEIR_VERDICT_PASS)
		prospects->budget = account_budget(entry, poll);
	entry->reason = decide(prospects);
	entry->moment = poll->moment;
	entry->left = prospects->good_for;
	if (is_share(entry->reason))
		entry->left = WEIR_REMEMBERED;
	else if (entry->left > prospects->budget)
		entry->left = prospects->budget;
	if (entry->lent > entry->left)
		entry->lent = entry->left;
	return 0;
}

/* A listener's: it has been seen to have a client. */
static __always_inline void account_serves(__u32 place)
{
	struct weir_account *account = account_at(place);

	if (account)
		account->serves = 1;
}

static __always_inline void account_add(__u32 place, __u32 packets)
{
	struct weir_account *account = account_at(place);

	if (account)
		account->in_poll += packets;
}

/* Charges packets that no limit is asked for to a kind's account. */
static __always_inline void kind_note(__u32 kind, struct weir_poll *poll,
				      __u32 packets)
{
	struct weir_account *account = account_at(kind);

	if (!account)
		return;
	account->key.kind = kind;
	account_touch(account, kind, poll);
	account->in_poll += packets;
}

/*
 * Charges a packet of a kind that has no destinations of its own: why it
 * passes, or is discarded.
 */
__noinline __u32 kind_charge(__u32 pass, __u32 packets)
{
	struct prospects prospects = {.pass = pass, .room = ROOM_UNKNOWN};
	__u32 kind = kind_of_reason(pass), reason = pass;
	struct weir_poll *poll = current_poll();

	if (!poll || verdict_of_reason(pass) == WEIR_VERDICT_DISCARD)
		return pass;
	prospects.budget = account_admits(kind, kind, poll);
	reason = decide(&prospects);
	if (verdict_of_reason(reason) == WEIR_VERDICT_PASS) {
		account_add(kind, packets);
		return reason;
	}
	count_discard(poll, packets);
	/* No destination's id is so small. */
	poll->full_id = 1 + kind;
	return reason;
}

#endif /* WEIR_ACCOUNT_H */
