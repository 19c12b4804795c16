/* SPDX-License-Identifier: GPL-2.0-only */
/* Processes and the sockets that they hold, as the kernel keeps them. */
#ifndef WEIR_HOLDER_H
#define WEIR_HOLDER_H

#include "abi.h"
#include "compat.h"
#include "task.h"
#include <linux/in.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct socket {
	struct sock *sk;
};

struct inode {
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

typedef struct {
	__u32 val;
} kuid_t;

struct cred {
	kuid_t euid;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct nsproxy {
	struct net *net_ns;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* Iterators run in their reader's read(). */
static __always_inline const struct task_struct *reader(void)
{
	return (const void *)bpf_get_current_task();
}

/* A task's process, by the number that its reader knows it by. */
static __always_inline struct weir_process_id
process_of(const struct task_struct *task)
{
	const struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	const struct pid *pid = BPF_CORE_READ(leader, thread_pid);
	__u32 level = BPF_CORE_READ(reader(), thread_pid, level);
	struct weir_process_id process = {};
	struct upid number = {};

	/* No task of a namespace has a number in fewer than the namespace. */
	bpf_core_read(&number.nr, sizeof(number.nr),
		      (const void *)pid +
			      bpf_core_field_offset(struct pid, numbers) +
			      level * bpf_core_type_size(struct upid));
	process.started = BPF_CORE_READ(leader, start_time);
	process.pid = number.nr;
	return process;
}

/* Could it receive a channel's packets in the reader's network namespace? */
static __always_inline bool may_be_owned(const struct socket *socket)
{
	const struct sock *sk = BPF_CORE_READ(socket, sk);
	__u16 protocol = BPF_CORE_READ(sk, sk_protocol);
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family != AF_INET && family != AF_INET6)
		return false;
	/* The inode of MPTCP's listener is its TCP listener's. */
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP) {
		if (BPF_CORE_READ(sk, __sk_common.skc_state) != BPF_TCP_LISTEN)
			return false;
	} else if (protocol != IPPROTO_UDP) {
		return false;
	}
	return BPF_CORE_READ(sk, __sk_common.skc_net.net) ==
	       BPF_CORE_READ(reader(), nsproxy, net_ns);
}

#endif /* WEIR_HOLDER_H */
