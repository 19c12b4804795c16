/* SPDX-License-Identifier: GPL-2.0-only */
/* Lazy sockets. */
#ifndef WEIR_ABI_LAZY_H
#define WEIR_ABI_LAZY_H

#include <linux/types.h>

/* How many sockets can be lazy at once. */
#define WEIR_LAZY_SOCKETS 4096

/* Which UDP ports some lazy socket is bound to. */
struct weir_lazy {
	__u32 sockets; /* 0: none is, and the gate looks no further */
	/* 1: what the kernel does to packets first would be bypassed: all go to
	 * the kernel. */
	__u32 held;
	/* When nobody has looked at that for too long; 0: never. */
	__u64 fresh_until_ns;
	__u64 ports[WEIR_PORT_WORDS];
};

/* What else is known of a packet on a lazy socket's ring. */
enum weir_lazy_flag {
	/* Its checksum was verified before, or its sender is this machine. */
	WEIR_LAZY_CHECKED = 1,
	/* Its checksum may be of the pseudo header only: as the last, but the
	 * driver does not tell. */
	WEIR_LAZY_MAY_BE_PARTIAL = 2,
};

/*
 * Ahead of each packet on a lazy socket's ring, which is followed by the packet
 * from its IP header on. The record may be longer than that. weir-socket's
 * record.rs reads it.
 */
struct weir_lazy_record {
	__u64 at_ns; /* CLOCK_MONOTONIC, of the NAPI poll's first packet */
	__u32 len;   /* of the packet that follows */
	__u32 ifindex;
	__u16 gso_size; /* payload bytes of each packet merged; 0: one packet */
	__u8 flags;	/* enum weir_lazy_flag */
	__u8 version;	/* WEIR_LAZY_VERSION */
	__u32 pad;
};

#define WEIR_LAZY_VERSION 1

#endif /* WEIR_ABI_LAZY_H */
