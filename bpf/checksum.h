/* SPDX-License-Identifier: GPL-2.0-only */
/* The checksum of IP and TCP (RFC 1071). */
#ifndef WEIR_CHECKSUM_H
#define WEIR_CHECKSUM_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

static __always_inline __u16 checksum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline __u64 checksum_add(__u64 sum, const __u32 *words,
					  __u32 count)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < count; i++)
		sum += words[i];
	return sum;
}

#endif /* WEIR_CHECKSUM_H */
