/* SPDX-License-Identifier: GPL-2.0-only */
/* What each reason means: its verdict and its kind of channel. */
#ifndef WEIR_REASON_H
#define WEIR_REASON_H

#include "verdict.h"
#include <linux/types.h>
#include <stdbool.h>

#define VERDICT_OF_REASON(name, verdict, kind, text, description) \
	[WEIR_REASON_##name] = WEIR_VERDICT_##verdict,
static const volatile __u8 verdict_of[WEIR_REASON_COUNT] = {
	WEIR_REASONS(VERDICT_OF_REASON)};
#undef VERDICT_OF_REASON

#define KIND_OF_REASON(name, verdict, kind, text, description) \
	[WEIR_REASON_##name] = WEIR_KIND_##kind,
static const volatile __u8 kind_of[WEIR_REASON_COUNT] = {
	WEIR_REASONS(KIND_OF_REASON)};
#undef KIND_OF_REASON

#define SHARE_OF_KIND(name, verdict, kind, text, description) \
	[WEIR_KIND_##kind] = WEIR_REASON_##name,
/* Why packets of a kind are discarded past their share; 0: they never are. */
static const volatile __u8 share_of[WEIR_KIND_COUNT] = {
	WEIR_SHARE_REASONS(SHARE_OF_KIND)};
#undef SHARE_OF_KIND

static __always_inline enum weir_verdict verdict_of_reason(__u32 reason)
{
	return reason < WEIR_REASON_COUNT ? verdict_of[reason]
					  : WEIR_VERDICT_PASS;
}

static __always_inline enum weir_kind kind_of_reason(__u32 reason)
{
	return reason < WEIR_REASON_COUNT ? kind_of[reason] : WEIR_KIND_OTHER;
}

/* They are the last in the list. */
static __always_inline bool is_share_reason(__u32 reason)
{
	return reason >= WEIR_REASON_UDP_SHARE;
}

static __always_inline __u32 share_of_kind(__u32 kind)
{
	return kind < WEIR_KIND_COUNT ? share_of[kind] : 0;
}

#endif /* WEIR_REASON_H */
