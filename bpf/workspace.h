/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the long way works with, per CPU: too large for the stack, which the
 * frames of all functions called within each other share (512 bytes). Nothing
 * in it outlives one packet.
 */
#ifndef WEIR_WORKSPACE_H
#define WEIR_WORKSPACE_H

#include "charge.h"
#include <bpf/bpf_helpers.h>

struct finding {
	__u32 reason;	 /* enum weir_reason */
	__u32 remember;	 /* for how many packets; 0: for this one only */
	__u32 full_from; /* a discard is for packets at least this long (IP) */
	__u32 egress_ifindex;
	__u32 connected; /* and then only for this packet's peer */
	__u32 sock_tag;
	__u64 sock; /* these as struct weir_memory says */
	__u64 bucket;
	__u64 known_until_ns;
	__u32 truesize;
	__u32 contest;
	__u32 room;
	__u32 reserved;
	__u32 alone_left;
	__u32 pad;
};

struct survey {
	/* What is asked. */
	__u64 net; /* the kernel's struct net */
	__u32 destination[4];
	__u32 family; /* enum weir_family */
	__u16 port;
	/* What it is charged; 0: not known. */
	__u32 truesize;
	__u64 group; /* tells one multicast address from another */
	__u64 but;   /* the SO_REUSEPORT group whose members do not count */
	__u8 any_address; /* whatever the sockets are bound to */
	/* What is found. */
	__u8 uncertain;
	__u16 sockets; /* that could be given the packet */
	__u16 full;    /* those of them whose queue is full... */
	__u16 tight;   /* one has no room for all of a poll */
	__u64 last;    /* the last of them */
};

struct workspace {
	struct flow flow;
	struct charge charge;
	struct bpf_sock_tuple tuple;
	struct finding finding;
	struct survey survey;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct workspace);
} workspaces SEC(".maps");

static __always_inline struct workspace *get_workspace(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&workspaces, &zero);
}

#endif /* WEIR_WORKSPACE_H */
