/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SO_REUSEPORT groups. Without a program the kernel picks by a hash of the
 * tuple, as the lookup helpers do; a program, or sockets that prefer a CPU
 * (SO_INCOMING_CPU), may pick any other of the group. Then every socket of the
 * group must be full.
 */
#ifndef WEIR_REUSEPORT_H
#define WEIR_REUSEPORT_H

#include "compat.h"
#include "queue.h"

/* Larger groups pass. */
#define REUSEPORT_SOCKETS 64

/* The address of the group that it is of; 0: of none. */
static __always_inline __u64 reuseport_group(const struct sock *sk)
{
	bool shares = kernel_bitfield(sk, __sk_common.skc_reuseport);

	return shares ? kernel_address(sk, sk_reuseport_cb) : 0;
}

static __always_inline bool reuseport_may_pick_another(const struct sock *sk)
{
	const struct sock_reuseport *group;
	__u64 address = reuseport_group(sk);

	if (!address || DEFECT(GROUP_PROGRAM_IGNORED))
		return false;
	group = kernel_cast(address, struct sock_reuseport);
	if (kernel_address(group, prog))
		return true;
	return bpf_core_field_exists(group->incoming_cpu) &&
	       kernel_read(group, incoming_cpu);
}

/* The address of the group's socket number i; 0 past the end. */
static __always_inline __u64
reuseport_socket(const struct sock_reuseport *group, __u32 i)
{
	__u64 socket = 0;

	bpf_probe_read_kernel(
		&socket, sizeof(socket),
		(const void *)((__u64)group +
			       bpf_core_field_offset(struct sock_reuseport,
						     socks) +
			       i * sizeof(socket)));
	return socket;
}

/*
 * For how many packets has the first member room that has any? 0: all are full.
 * A global function, which the verifier looks at once.
 */
__noinline __u32 reuseport_room(__u64 address, __u32 truesize)
{
	const struct sock_reuseport *group =
		kernel_cast(address, struct sock_reuseport);
	__u32 sockets = kernel_read(group, num_socks), room, i;

	for (i = 0; i < REUSEPORT_SOCKETS && i < sockets; i++) {
		__u64 member = reuseport_socket(group, i);

		room = member ? socket_room(member, truesize) : 1;
		if (room || DEFECT(GROUP_FIRST_FULL))
			return room;
	}
	return (sockets && sockets <= REUSEPORT_SOCKETS) ||
			       DEFECT(LARGE_GROUP_FULL)
		       ? 0
		       : ROOM_UNKNOWN;
}

#endif /* WEIR_REUSEPORT_H */
