/* SPDX-License-Identifier: GPL-2.0-only */
/* Who holds a socket. */
#ifndef WEIR_ABI_PROCESS_H
#define WEIR_ABI_PROCESS_H

#include <linux/types.h>

/* A process, told from a later one with its number. */
struct weir_process_id {
	__u64 started; /* CLOCK_MONOTONIC, ns */
	__u32 pid;     /* in the reader's pid namespace */
	__u32 pad;
};

/* A process has a socket open. */
struct weir_holder {
	struct weir_process_id process;
	__u64 inode; /* the socket's */
};

struct weir_process {
	struct weir_process_id process;
	/* The address of the set of control groups that it is in: it has
	 * another one in others. */
	__u64 cgroups;
	__u64 cgroup_id; /* of the group in cgroup v2 */
	__u32 uid;	 /* effective */
	__s32 nice;
	__u32 policy; /* SCHED_* */
	char comm[16];
	__u32 pad;
};

#endif /* WEIR_ABI_PROCESS_H */
