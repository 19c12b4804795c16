/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Samples of discards. The queue probe's object owns the maps; each gate is
 * loaded with them in place of its own.
 */
#ifndef WEIR_SAMPLE_MAP_H
#define WEIR_SAMPLE_MAP_H

#include "abi/sample.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* WEIR_SAMPLES for each CPU; user space sizes it by CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_SAMPLES);
	__type(key, __u32);
	__type(value, struct weir_sample);
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_sampler);
} samplers SEC(".maps");

#endif /* WEIR_SAMPLE_MAP_H */
