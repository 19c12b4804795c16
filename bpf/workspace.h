/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the slow path works with, per CPU: too large for the stack, which the
 * frames of all functions called within each other share (512 bytes). Nothing
 * in it outlives one packet.
 */
#ifndef WEIR_WORKSPACE_H
#define WEIR_WORKSPACE_H

#include "map.h"
#include "queue.h"

/* The sockets of one bucket that could be given a packet. */
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
	__u8 whole;	  /* it is no fragment, which may stay alone */
	/* What is found. */
	__u8 uncertain;
	__u16 sockets; /* that could be given the packet */
	__u16 full;    /* those of them whose queue is full... */
	__u16 over;    /* ...whatever a packet is charged */
	__u16 tight;   /* one has no room for all of a poll */
	__u64 last;    /* the last of them */
};

struct workspace {
	struct flow flow;
	struct charge charge;
	struct bpf_sock_tuple tuple;
	struct bpf_fib_lookup route;
	struct prospects prospects;
	struct survey survey;
	/* A TCP header with its options. */
	__u8 tcp[20 + 15 * 4];
	/* Its checksum is left to whoever sends it. Here, since the verifier
	 * need not know what is written into a map. */
	__u32 partial;
};

MAP_OF_ONE(get_workspace, workspaces, BPF_MAP_TYPE_PERCPU_ARRAY, 0,
	   struct workspace);

#endif /* WEIR_WORKSPACE_H */
