/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few kernel types and kfuncs that weir reads. Fields are relocated
 * against the running kernel's BTF (CO-RE), so the layouts here need only the
 * right names and types, not the right offsets.
 */
#ifndef WEIR_COMPAT_H
#define WEIR_COMPAT_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct in6_addr_words {
	__u32 u6_addr32[4];
};

struct in6_addr___kernel {
	struct in6_addr_words in6_u;
};

struct sock_common {
	__u64 skc_addrpair; /* remote and local IPv4 address */
	__u32 skc_portpair; /* remote and local port */
	unsigned char skc_reuseport : 1;
	struct in6_addr___kernel skc_v6_daddr;
	struct in6_addr___kernel skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	int sk_rcvbuf;
	void *sk_filter;
};

struct udp_sock {
	__u8 encap_type;
};

struct sk_buff {
	unsigned int truesize;
	unsigned char *head;
	unsigned int end;	/* an offset from head, on 64-bit kernels */
	__u16 transport_header; /* likewise */
	__be16 protocol;
};

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
};

#pragma clang attribute pop

/* Kernel 6.2: kernel/bpf/helpers.c. Reads through it cannot fault. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

#define kernel_cast(pointer, type) \
	((type *)bpf_rdonly_cast((pointer), bpf_core_type_id_kernel(type)))

#endif /* WEIR_COMPAT_H */
