/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TCP: connection requests to a listener whose accept queue is over its limit.
 * Nothing else is discarded for a queue: nearly every segment carries an
 * acknowledgement that frees something, and a final ACK is a client's word that
 * it is connected.
 */
#ifndef WEIR_TCP_H
#define WEIR_TCP_H

#include "destination.h"
#include "explain.h"
#include "lookup.h"
#include "reuseport.h"
#include "workspace.h"

/* A request to connect, and nothing besides. */
static __always_inline bool tcp_is_syn(const struct flow *flow)
{
	__u8 others = TCP_NO_REQUEST;

	if (DEFECT(SYN_ACK_AS_SYN))
		others = 0;
	return (flow->tcp_flags & (TCP_SYN | others)) == TCP_SYN;
}

/* Once a segment of no connection is seen, each is looked for, this long. */
#define STRAY_NS 100000000ULL
/* Where no listener was on a port, none is looked for in so many polls. */
#define NO_LISTENER_POLLS 64

/* In jiffies: at any HZ no more than half of the two minutes for which the
 * kernel takes its cookies back (TCP_SYNCOOKIE_VALID). */
#define COOKIE_SENT_LATELY 6000

/*
 * Has the kernel answered by cookie for it lately (tcp_synq_overflow())? Of
 * another listener it takes none back (tcp_synq_no_recent_overflow()).
 */
static __always_inline bool tcp_has_sent_cookie(const struct sock *sk)
{
	__u64 group = reuseport_group(sk);
	__u32 sent;

	sent = group ? kernel_read(kernel_cast(group, struct sock_reuseport),
				   synq_overflow_ts)
		     : (__u32)kernel_read(kernel_cast(kernel_address_of(sk),
						      struct tcp_sock),
					  rx_opt.ts_recent_stamp);
	return (__u32)bpf_jiffies64() - sent < COOKIE_SENT_LATELY;
}

/*
 * inet_csk_reqsk_queue_is_full(): the kernel keeps nothing of further requests,
 * and answers them by SYN cookie, if at all. At the limit, one more is kept or
 * none (before Linux 6.14 and its backports), which its cookies tell.
 */
static __always_inline bool tcp_requests_are_full(const struct sock *sk)
{
	const struct inet_connection_sock *icsk =
		kernel_cast(kernel_address_of(sk), struct inet_connection_sock);
	__u32 waiting = kernel_read(icsk, icsk_accept_queue.qlen.counter);
	__u32 limit = kernel_read(sk, sk_max_ack_backlog);

	return waiting > limit || (waiting == limit && tcp_has_sent_cookie(sk));
}

static __always_inline bool tcp_listener_is_full(const struct sock *sk)
{
	if (reuseport_may_pick_another(sk))
		return !reuseport_room(kernel_address(sk, sk_reuseport_cb), 0);
	return tcp_backlog_is_full(sk);
}

/*
 * What speaks for and against a SYN for this socket. A connection, a request or
 * TIME_WAIT of the same four-tuple has its own use for it (a challenge ACK, RFC
 * 5961; a new life for an old port): only what the kernel gives to the listener
 * is judged. A global function, like udp_judge().
 */
__noinline int tcp_judge_syn(__u64 address, struct prospects *prospects)
{
	const struct sock *sk = kernel_cast(address, struct sock);

	if (!prospects)
		return 0;
	prospects->pass = WEIR_REASON_TCP_SYN;
	if (kernel_read(sk, __sk_common.skc_state) != BPF_TCP_LISTEN) {
		/* It says nothing of the next one. */
		prospects->good_for = 0;
	} else if (tcp_listener_is_full(sk)) {
		prospects->room = 0;
		prospects->good_for = 0;
	} else if (tcp_requests_are_full(sk)) {
		prospects->pass = WEIR_REASON_TCP_REQUEST;
	}
	return 0;
}

/* Does a program choose since this listener was first found? */
static __always_inline bool tcp_is_steered(__u64 address)
{
	const struct sock *sk = kernel_cast(address, struct sock);

	return lookup_is_steered(kernel_address(sk, __sk_common.skc_net.net));
}

/*
 * The tuple is the workspace's, so as to spare the callers' stack. A listener
 * that was full is not asked again in the same poll.
 */
static __always_inline void tcp_syn(void *ctx, const struct flow *flow,
				    struct weir_destination *entry,
				    struct workspace *workspace,
				    const struct weir_poll *poll)
{
	struct prospects *prospects = &workspace->prospects;
	struct bpf_sock *skc;
	__u64 address;
	__u32 len;

	prospects->pass = WEIR_REASON_TCP_NO_SOCKET;
	len = tuple_of(flow, &workspace->tuple);
	if (DEFECT(SEGMENT_AS_SYN))
		workspace->tuple.ipv4.sport = 0;
	skc = bpf_skc_lookup_tcp(ctx, &workspace->tuple, len,
				 BPF_F_CURRENT_NETNS, 0);
	if (!skc)
		return;
	address = kernel_address_of(skc);
	if (address == entry->sock && entry->moment == poll->moment) {
		prospects->pass = WEIR_REASON_TCP_SYN;
		prospects->room = 0;
		prospects->good_for = 0;
	} else {
		tcp_judge_syn(address, prospects);
		entry->sock = prospects->room ? 0 : address;
	}
	entry->connected = tcp_is_steered(address);
	bpf_sk_release(skc);
}

/*
 * Did this host open it, and to a protected port of its peer's? An accepted
 * socket is a copy of its listener (sk_clone()), the accept queue's limit
 * included; whoever called listen() with 0 is found by his listener.
 */
static __always_inline __u32 tcp_reason_of_client(const struct sock *sk,
						  const struct flow *flow)
{
	if (kernel_read(sk, sk_max_ack_backlog))
		return WEIR_REASON_TCP_SEGMENT;
	return is_protected_port(bpf_ntohs(flow->source_port_be))
		       ? WEIR_REASON_TCP_PEER
		       : WEIR_REASON_TCP_CLIENT;
}

/*
 * Whose segment is it that the kernel gives to this socket? If a client's, only
 * where no listener is on the port. A global function, like udp_judge().
 */
__noinline __u32 tcp_reason_of(__u64 address, const struct flow *flow)
{
	const struct sock *sk = kernel_cast(address, struct sock);

	if (!flow)
		return WEIR_REASON_TCP_CLIENT;
	/* Requests and TIME_WAIT are no whole sockets. */
	switch (kernel_read(sk, __sk_common.skc_state)) {
	case BPF_TCP_LISTEN:
		return WEIR_REASON_TCP_STRAY;
	case BPF_TCP_NEW_SYN_RECV:
		return WEIR_REASON_TCP_SEGMENT;
	case BPF_TCP_TIME_WAIT:
		return WEIR_REASON_TCP_CLIENT;
	default:
		return tcp_reason_of_client(sk, flow);
	}
}

static __noinline __u32 tcp_connection(void *ctx, const struct flow *flow,
				       struct prospects *prospects)
{
	struct bpf_sock_tuple tuple;
	struct bpf_sock *skc;
	__u32 reason;

	skc = bpf_skc_lookup_tcp(ctx, &tuple, tuple_of(flow, &tuple),
				 BPF_F_CURRENT_NETNS, 0);
	if (!skc)
		return WEIR_REASON_TCP_NO_SOCKET;
	reason = tcp_reason_of(kernel_address_of(skc), flow);
	/* A request that nobody has answered shows no client. */
	prospects->serves = reason == WEIR_REASON_TCP_SEGMENT &&
			    skc->state != BPF_TCP_NEW_SYN_RECV;
	bpf_sk_release(skc);
	return reason;
}

/* Is a listener on its port? No connection has port 0. */
static __noinline bool tcp_has_listener(void *ctx, const struct flow *flow)
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
	if (!skc)
		return false;
	bpf_sk_release(skc);
	return true;
}

/*
 * Any other segment passes, but past its channel's share. One that belongs to
 * no connection costs what no queue bounds, so it has a channel of its own.
 * They are few as a rule: the first segment of a poll stands for all on its
 * port, until such a one is seen.
 */
static __noinline __u32 tcp_segment(void *ctx, const struct flow *flow,
				    struct weir_destination *entry,
				    struct prospects *prospects)
{
	struct weir_poll *poll = current_poll();
	__u32 reason = tcp_connection(ctx, flow, prospects);

	if (!poll)
		return WEIR_REASON_INTERNAL;
	if (reason == WEIR_REASON_TCP_STRAY ||
	    reason == WEIR_REASON_TCP_NO_SOCKET) {
		entry->stray_until_ns = poll->now_ns + STRAY_NS;
	} else if (reason != WEIR_REASON_TCP_SEGMENT &&
		   entry->no_listener_until <= poll->number) {
		if (tcp_has_listener(ctx, flow))
			reason = WEIR_REASON_TCP_SEGMENT;
		else
			entry->no_listener_until =
				poll->number + NO_LISTENER_POLLS;
	}
	return reason;
}

#endif /* WEIR_TCP_H */
