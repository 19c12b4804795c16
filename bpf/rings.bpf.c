// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which lazy sockets' rings there are: an iterator over all maps, read on
 * demand. A program can keep a ring, by its descriptor or by mapping it, after
 * the gates have forgotten it; its memory is in use until it is not found here.
 */
#include "abi.h"
#include "compat.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct bpf_map {
	__u32 id;
	enum bpf_map_type map_type;
};

struct bpf_iter__bpf_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
};

#pragma clang attribute pop

SEC("iter/bpf_map")
int weir_rings(struct bpf_iter__bpf_map *ctx)
{
	struct bpf_map *map = ctx->map;
	__u32 id;

	if (!map || map->map_type != BPF_MAP_TYPE_RINGBUF)
		return 0;
	id = map->id;
	bpf_seq_write(ctx->meta->seq, &id, sizeof(id));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
