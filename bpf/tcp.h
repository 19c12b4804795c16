/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TCP: connection requests to a listener whose accept queue is over its limit.
 * Nothing else is ever discarded: nearly every segment carries an
 * acknowledgement that frees something, and a final ACK is a client's word that
 * it is connected.
 */
#ifndef WEIR_TCP_H
#define WEIR_TCP_H

#include "finding.h"
#include "lookup.h"
#include "reuseport.h"

#define TCP_LISTEN 10 /* enum in net/tcp_states.h */

/* sk_acceptq_is_full(), which tcp_conn_request() asks before all else. */
static __always_inline bool tcp_backlog_is_full(const struct sock *sk)
{
	__u32 waiting = kernel_read(sk, sk_ack_backlog);
	__u32 limit = kernel_read(sk, sk_max_ack_backlog);

	return DEFECT(BACKLOG_AT_LIMIT) ? waiting >= limit : waiting > limit;
}

/*
 * inet_csk_reqsk_queue_is_full(): the kernel keeps nothing of further requests,
 * and answers them by SYN cookie, if at all.
 */
static __always_inline bool tcp_requests_are_full(const struct sock *sk)
{
	const struct inet_connection_sock *icsk =
		kernel_cast(kernel_address_of(sk), struct inet_connection_sock);
	__u32 waiting = kernel_read(icsk, icsk_accept_queue.qlen.counter);

	return waiting && waiting >= kernel_read(sk, sk_max_ack_backlog);
}

/* By its address, for the loop below: see socket_is_full(). */
__noinline bool tcp_listener_is_over(__u64 sk)
{
	return tcp_backlog_is_full(kernel_cast(sk, struct sock));
}

static __noinline bool tcp_group_is_full(const struct sock *sk)
{
	const struct sock_reuseport *group = kernel_cast(
		kernel_address(sk, sk_reuseport_cb), struct sock_reuseport);
	__u32 sockets = kernel_read(group, num_socks), i;

	for (i = 0; i < REUSEPORT_SOCKETS; i++) {
		__u64 member = reuseport_socket(group, i);

		if (i >= sockets)
			break;
		if (!member || !tcp_listener_is_over(member))
			return false;
	}
	return sockets && sockets <= REUSEPORT_SOCKETS;
}

static __always_inline bool tcp_listener_is_full(const struct sock *sk)
{
	if (reuseport_may_pick_another(sk))
		return tcp_group_is_full(sk);
	return tcp_backlog_is_full(sk);
}

/*
 * What becomes of a SYN for this socket. A connection, a request or TIME_WAIT
 * of the same four-tuple has its own use for it (a challenge ACK, RFC 5961; a
 * new life for an old port): only what the kernel gives to the listener is
 * judged. A global function, like udp_judge().
 */
__noinline int tcp_judge_syn(__u64 address, struct finding *finding)
{
	const struct sock *sk = kernel_cast(address, struct sock);

	if (!finding)
		return 0;
	finding->reason = WEIR_REASON_TCP_SYN;
	if (kernel_read(sk, __sk_common.skc_state) != TCP_LISTEN) {
		/* It says nothing of the next one. */
		finding->remember = 0;
	} else if (tcp_listener_is_full(sk)) {
		finding->reason = WEIR_REASON_TCP_BACKLOG_FULL;
		finding->remember =
			DEFECT(SYN_OF_CONNECTION) ? WEIR_REMEMBERED : 0;
	} else if (tcp_requests_are_full(sk)) {
		finding->reason = WEIR_REASON_TCP_REQUEST;
	}
	return 0;
}

static __noinline void tcp_syn(void *ctx, const struct flow *flow,
			       struct finding *finding)
{
	struct bpf_sock_tuple tuple;
	struct bpf_sock *skc;

	skc = bpf_skc_lookup_tcp(ctx, &tuple, tuple_of(flow, &tuple),
				 BPF_F_CURRENT_NETNS, 0);
	finding->remember = WEIR_REMEMBERED;
	finding->reason = WEIR_REASON_TCP_NO_SOCKET;
	if (!skc)
		return;
	tcp_judge_syn(kernel_address_of(skc), finding);
	bpf_sk_release(skc);
}

/*
 * Any other segment passes; whether there is a listener on its port only gives
 * its channel a name. No connection has port 0, so this finds listeners alone.
 */
static __noinline void tcp_segment(void *ctx, const struct flow *flow,
				   struct finding *finding)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *skc;
	__u32 len = tuple_of(flow, &tuple);

	if (flow->family == WEIR_FAMILY_IPV4) {
		tuple.ipv4.saddr = 0;
		tuple.ipv4.sport = 0;
	} else {
		__builtin_memset(tuple.ipv6.saddr, 0, sizeof(tuple.ipv6.saddr));
		tuple.ipv6.sport = 0;
	}
	skc = bpf_skc_lookup_tcp(ctx, &tuple, len, BPF_F_CURRENT_NETNS, 0);
	finding->remember = WEIR_REMEMBERED;
	finding->reason = WEIR_REASON_TCP_CLIENT;
	if (!skc)
		return;
	if (DEFECT(SEGMENT_AS_SYN))
		tcp_judge_syn(kernel_address_of(skc), finding);
	else
		finding->reason = WEIR_REASON_TCP_SEGMENT;
	bpf_sk_release(skc);
}

#endif /* WEIR_TCP_H */
