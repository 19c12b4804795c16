/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * User-mode screens, and what goes to them. The queue probe's object owns the
 * maps; each gate is loaded with them in place of its own.
 */
#ifndef WEIR_SCREEN_MAP_H
#define WEIR_SCREEN_MAP_H

#include "shared.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_screen);
} screen SEC(".maps");

/* When a packet to there was last refused, CLOCK_MONOTONIC. */
SHARED_MAP(screened, BPF_MAP_TYPE_LRU_HASH, WEIR_SCREENED,
	   struct weir_screened_key, __u64);

SHARED_ONE(the_screen, struct weir_screen, screen)

#endif /* WEIR_SCREEN_MAP_H */
