// SPDX-License-Identifier: GPL-2.0-only
/*
 * What one socket lookup costs. Each program does the same many lookups of the
 * address and port that user space set, the last one does none: the difference
 * of their times, over the lookups, is one lookup with its release. No part of
 * the gate.
 */
#include "abi.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Set by user space before a run. */
struct weir_lookup_tuple looked_up;
/* Written here: lookups of the last run that found a socket. */
__u32 found;

static __always_inline struct bpf_sock_tuple tuple4(void)
{
	struct bpf_sock_tuple tuple = {
		.ipv4.sport = looked_up.source_port_be,
		.ipv4.dport = looked_up.destination_port_be,
	};

	__builtin_memcpy(&tuple.ipv4.saddr, looked_up.source, 4);
	__builtin_memcpy(&tuple.ipv4.daddr, looked_up.destination, 4);
	return tuple;
}

static __always_inline struct bpf_sock_tuple tuple6(void)
{
	struct bpf_sock_tuple tuple = {
		.ipv6.sport = looked_up.source_port_be,
		.ipv6.dport = looked_up.destination_port_be,
	};

	__builtin_memcpy(tuple.ipv6.saddr, looked_up.source, 16);
	__builtin_memcpy(tuple.ipv6.daddr, looked_up.destination, 16);
	return tuple;
}

#define LOOKUP_PROGRAM(name, helper, version)                                \
	SEC("xdp")                                                           \
	int name(struct xdp_md *ctx)                                         \
	{                                                                    \
		struct bpf_sock_tuple tuple = tuple##version();              \
		struct bpf_sock *sk;                                         \
		__u32 i, n = 0;                                              \
                                                                             \
		for (i = 0; i < WEIR_LOOKUPS_PER_RUN; i++) {                 \
			sk = helper(ctx, &tuple, sizeof(tuple.ipv##version), \
				    BPF_F_CURRENT_NETNS, 0);                 \
			if (sk) {                                            \
				n++;                                         \
				bpf_sk_release(sk);                          \
			}                                                    \
		}                                                            \
		found = n;                                                   \
		return XDP_PASS;                                             \
	}

LOOKUP_PROGRAM(weir_udp4, bpf_sk_lookup_udp, 4)
LOOKUP_PROGRAM(weir_udp6, bpf_sk_lookup_udp, 6)
LOOKUP_PROGRAM(weir_tcp4, bpf_sk_lookup_tcp, 4)
LOOKUP_PROGRAM(weir_tcp6, bpf_sk_lookup_tcp, 6)
LOOKUP_PROGRAM(weir_skc_tcp4, bpf_skc_lookup_tcp, 4)
LOOKUP_PROGRAM(weir_skc_tcp6, bpf_skc_lookup_tcp, 6)

SEC("xdp")
int weir_no_lookup(struct xdp_md *ctx)
{
	struct bpf_sock_tuple tuple = tuple6();
	__u32 i, n = 0;

	for (i = 0; i < WEIR_LOOKUPS_PER_RUN; i++) {
		/* Stands for the call: the loop is not to be optimised away. */
		asm volatile("" : "+r"(n) : "r"(&tuple) : "memory");
	}
	found = n;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
