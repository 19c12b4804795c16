/* SPDX-License-Identifier: GPL-2.0-only */
/* Programs of which a filter, made by user space, is one: they hand on to each
 * other by tail calls. */
#ifndef WEIR_STAGES_H
#define WEIR_STAGES_H

#include "map.h"

enum weir_stage {
	WEIR_STAGE_FILTER,
	WEIR_STAGE_TAKE,
	WEIR_STAGE_MISSED, /* what does not match, in the driver */
	WEIR_STAGES,
};

MAP(stages, BPF_MAP_TYPE_PROG_ARRAY, 0, WEIR_STAGES, __u32, __u32);

/* For user space, which knows the types of variables and of maps alone. */
enum weir_stage stage_type;

#endif /* WEIR_STAGES_H */
