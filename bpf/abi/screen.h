/* SPDX-License-Identifier: GPL-2.0-only */
/* User-mode screens. */
#ifndef WEIR_ABI_SCREEN_H
#define WEIR_ABI_SCREEN_H

#include <linux/types.h>

/* How many NFQUEUEs of a namespace are followed at once. */
#define WEIR_SCREEN_QUEUES 8

/* How many destinations are known to go by way of one. */
#define WEIR_SCREENED 4096

/* What the kernel sends to one queue's program, by its netlink socket. */
struct weir_screen_queue {
	__u64 sock;    /* the kernel's struct netlink_sock * */
	__u32 port_id; /* by which it is known to be that program's still */
	/* How many packets the queue has held while it refused others for
	 * their number; 0: it does not. */
	__u32 limit;
};

/* A network namespace's user-mode screens: programs that read NFQUEUEs. */
struct weir_screen {
	__u32 netns;  /* its inode number */
	__u32 queues; /* 0: there are none, or too many */
	/* Until then, CLOCK_MONOTONIC, everything that is known to go to a
	 * queue is believed to. */
	__u64 believed_until_ns;
	__u64 asked_ns; /* when a packet was last admitted to full queues */
	/* Packets that a queue refused, and that the gates could not know to
	 * go there. */
	__u64 unlearned;
	struct weir_screen_queue queue[WEIR_SCREEN_QUEUES];
};

/* What goes to a queue, as packets that one refused have shown. */
struct weir_screened_key {
	__u32 address[4]; /* destination; network order */
	__u32 ifindex;
	__u32 egress_ifindex;
	__be16 port_be;
	__u8 family; /* enum weir_family */
	__u8 target; /* enum weir_target */
};

/* When a queue last refused a packet that goes there. */
struct weir_refusal {
	__u64 at_ns; /* CLOCK_MONOTONIC */
	__u64 poll;  /* in which the first was that this was learned from */
};

/* A netlink socket of netfilter's. */
struct weir_screen_socket {
	__u64 sock;
	__u32 port_id;
	__u32 pad;
};

#endif /* WEIR_ABI_SCREEN_H */
