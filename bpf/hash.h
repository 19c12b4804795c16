/* SPDX-License-Identifier: GPL-2.0-only */
/* The one hash of all tables; the seed keeps others from choosing places. */
#ifndef WEIR_HASH_H
#define WEIR_HASH_H

#include <linux/types.h>

/* Random, set by user space when the object is loaded. */
const volatile __u64 hash_seed;

/* The finalizer of MurmurHash3 (Appleby). */
static __always_inline __u64 hash_mix(__u64 hash)
{
	hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdULL;
	hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return hash ^ hash >> 33;
}

/*
 * Fibonacci's, where a collision costs speed alone: one multiplication, and the
 * top bits are to be used.
 */
static __always_inline __u64 hash_quick(__u64 word)
{
	return (word ^ hash_seed) * 0x9e3779b97f4a7c15ULL;
}

/* Adds a word to what has been hashed; hash_seed comes first. */
static __always_inline __u64 hash_add(__u64 hash, __u64 word)
{
	return hash_mix(hash ^ word);
}

static __always_inline __u64 hash_address(__u64 hash, const __u32 *address)
{
	hash = hash_add(hash, address[0] | (__u64)address[1] << 32);
	return hash_add(hash, address[2] | (__u64)address[3] << 32);
}

#endif /* WEIR_HASH_H */
