/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lazy sockets and their rings. The queue probe's object owns the maps; each
 * gate is loaded with them in place of its own.
 */
#ifndef WEIR_LAZY_MAP_H
#define WEIR_LAZY_MAP_H

#include "abi.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_lazy);
} lazy SEC(".maps");

/* Of a socket's size. */
struct lazy_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
};

/* By the socket's cookie, which no other socket ever has. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, WEIR_LAZY_SOCKETS);
	__type(key, __u64);
	__array(values, struct lazy_ring);
} lazy_rings SEC(".maps");

#endif /* WEIR_LAZY_MAP_H */
