// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs at netfilter's hooks (Linux 6.4) of the reader's network namespace:
 * an iterator over the host's BPF links. Listing them by number, with
 * BPF_LINK_GET_NEXT_ID, takes CAP_SYS_ADMIN.
 */
#include "holder.h"

#define BPF_LINK_TYPE_NETFILTER 10 /* include/uapi/linux/bpf.h */

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct bpf_link {
	enum bpf_link_type type;
	struct bpf_prog *prog;
};

struct nf_hook_ops {
	unsigned int hooknum;
};

struct bpf_nf_link {
	struct nf_hook_ops hook_ops;
	struct net *net;
};

struct bpf_iter__bpf_link {
	struct bpf_iter_meta *meta;
	struct bpf_link *link;
};

#pragma clang attribute pop

/* Where a program is. */
struct weir_netfilter_link {
	__u32 prog_id;
	__u32 hooknum;
};

SEC("iter/bpf_link")
int weir_netfilter(struct bpf_iter__bpf_link *ctx)
{
	struct bpf_link *link = ctx->link;
	const struct bpf_nf_link *at = (const void *)link;
	struct weir_netfilter_link found = {};

	if (!link || link->type != BPF_LINK_TYPE_NETFILTER ||
	    !bpf_core_type_exists(struct bpf_nf_link) ||
	    BPF_CORE_READ(at, net) != BPF_CORE_READ(reader(), nsproxy, net_ns))
		return 0;
	found.prog_id = BPF_CORE_READ(link, prog, aux, id);
	found.hooknum = BPF_CORE_READ(at, hook_ops.hooknum);
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}

/* The record's type, for the skeleton. */
struct weir_netfilter_link link_type;

char LICENSE[] SEC("license") = "GPL";
