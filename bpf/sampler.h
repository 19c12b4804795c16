/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which discards are sampled. A sample stands for all that was discarded on its
 * CPU since the last one, so samples add up to the discards. The number of
 * packets between two is drawn at random, or senders that take turns could
 * hide. Its mean follows the rate of the period before, and not when single
 * packets come, which depends on who sends them: a few discards are all
 * sampled, and of a flood some WEIR_SAMPLES_WANTED in a period.
 */
#ifndef WEIR_SAMPLER_H
#define WEIR_SAMPLER_H

#include "abi/sample.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#define WEIR_SAMPLE_PERIOD_NS 10000000ULL
#define WEIR_SAMPLES_WANTED 20

/* From 1 up, the gap in the mean. */
static __always_inline __u32 sampler_draw(const struct weir_sampler *sampler)
{
	__u32 gap = sampler->gap ?: 1;

	return 1 + bpf_get_prandom_u32() % (2 * gap - 1);
}

static __always_inline void sampler_period(struct weir_sampler *sampler,
					   __u64 now)
{
	__u64 since = now - sampler->period_ns;

	if (since < WEIR_SAMPLE_PERIOD_NS)
		return;
	/* What was counted before a pause is of another time. */
	if (since >= 2 * WEIR_SAMPLE_PERIOD_NS)
		sampler->packets = sampler->seen = 0;
	sampler->gap = sampler->seen / WEIR_SAMPLES_WANTED ?: 1;
	sampler->due = sampler->packets + sampler_draw(sampler);
	sampler->period_ns = now;
	sampler->seen = 0;
	sampler->taken = 0;
}

/* A flood that has just begun is not sampled packet by packet until the end of
 * the period. */
static __always_inline void sampler_next(struct weir_sampler *sampler)
{
	sampler->number++;
	sampler->packets = 0;
	if (++sampler->taken >= 2 * WEIR_SAMPLES_WANTED) {
		sampler->taken = WEIR_SAMPLES_WANTED;
		sampler->gap *= 2;
	}
	sampler->due = sampler_draw(sampler);
}

/* So many more are discarded: is the last of them the next sample? */
static __always_inline bool sampler_is_due(struct weir_sampler *sampler,
					   __u32 packets, __u64 now)
{
	sampler_period(sampler, now);
	sampler->packets += packets;
	sampler->seen += packets;
	return sampler->packets >= sampler->due;
}

#endif /* WEIR_SAMPLER_H */
