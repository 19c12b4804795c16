// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who has which socket open: iterators over every open file and every thread of
 * the reader's pid namespace and those in it. Read on demand, never attached to
 * anything that happens.
 */
#include "holder.h"

SEC("iter/task_file")
int weir_holders(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct weir_holder holder = {};
	struct socket *socket;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket || !may_be_owned(socket))
		return 0;
	holder.process = process_of(task);
	holder.inode = BPF_CORE_READ(file, f_inode, i_ino);
	bpf_seq_write(ctx->meta->seq, &holder, sizeof(holder));
	return 0;
}

/*
 * Each process by its first thread, and again by each further thread that is
 * scheduled unlike that one: the heaviest counts.
 */
SEC("iter/task")
int weir_processes(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct weir_process process = {};
	struct task_struct *leader;

	if (!task || task->flags & PF_KTHREAD)
		return 0;
	leader = BPF_CORE_READ(task, group_leader);
	if (task->pid != task->tgid &&
	    task->static_prio == BPF_CORE_READ(leader, static_prio) &&
	    task->policy == BPF_CORE_READ(leader, policy))
		return 0;
	process.process = process_of(task);
	process.uid = BPF_CORE_READ(leader, real_cred, euid.val);
	process.nice = task->static_prio - DEFAULT_PRIO;
	process.policy = task->policy;
	BPF_CORE_READ_INTO(&process.comm, leader, comm);
	if (bpf_core_field_exists(leader->cgroups)) {
		process.cgroups = (__u64)BPF_CORE_READ(leader, cgroups);
		process.cgroup_id =
			BPF_CORE_READ(leader, cgroups, dfl_cgrp, kn, id);
	}
	bpf_seq_write(ctx->meta->seq, &process, sizeof(process));
	return 0;
}

/* The records' types, for the skeleton. */
struct weir_holder holder_type;
struct weir_process process_type;

char LICENSE[] SEC("license") = "GPL";
