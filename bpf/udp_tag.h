/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells a socket from another that lies where it lay: the kernel gives the
 * memory of a closed socket to a new one, whose bucket may be the same.
 */
#ifndef WEIR_UDP_TAG_H
#define WEIR_UDP_TAG_H

#include "compat.h"

#define UDP_TAG_FACTOR 0x9e3779b97f4a7c15ULL /* Fibonacci's */

static __always_inline __u64 udp_tag_mix(__u64 tag, __u64 word)
{
	return (tag ^ tag >> 32 ^ word) * UDP_TAG_FACTOR;
}

/* What a socket is bound and connected to, in 32 bits. */
static __always_inline __u32 udp_socket_tag(const struct sock *sk)
{
	const struct sock_common *common = &sk->__sk_common;
	__u64 tag = kernel_read(common, skc_portpair), only_v6;

	if (has_rdonly_cast())
		only_v6 = BPF_CORE_READ_BITFIELD(common, skc_ipv6only);
	else
		only_v6 = BPF_CORE_READ_BITFIELD_PROBED(common, skc_ipv6only);
	tag |= (__u64)kernel_read(common, skc_rcv_saddr) << 32;
	tag = udp_tag_mix(tag, (__u32)kernel_read(common, skc_bound_dev_if) |
				       (__u64)kernel_read(common, skc_family)
					       << 32 |
				       only_v6 << 48);
	tag = udp_tag_mix(
		tag,
		kernel_read(common, skc_v6_rcv_saddr.in6_u.u6_addr32[0]) |
			(__u64)kernel_read(common,
					   skc_v6_rcv_saddr.in6_u.u6_addr32[1])
				<< 32);
	tag = udp_tag_mix(
		tag,
		kernel_read(common, skc_v6_rcv_saddr.in6_u.u6_addr32[2]) |
			(__u64)kernel_read(common,
					   skc_v6_rcv_saddr.in6_u.u6_addr32[3])
				<< 32);
	return tag >> 32;
}

#endif /* WEIR_UDP_TAG_H */
