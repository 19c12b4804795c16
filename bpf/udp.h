/* SPDX-License-Identifier: GPL-2.0-only */
/* UDP: to which socket, and has its queue room? */
#ifndef WEIR_UDP_H
#define WEIR_UDP_H

#include "address.h"
#include "contest.h"
#include "finding.h"
#include "lookup.h"
#include "reuseport.h"
#include "udp_alone.h"
#include "udp_queue.h"

static __always_inline void udp_socket(const struct sock *sk,
				       const struct flow *flow,
				       const struct charge *charge,
				       struct weir_poll *poll,
				       struct finding *finding)
{
	struct queue queue;
	__u32 room;

	room = udp_room(sk, poll, charge, &queue, finding);
	/* A connected socket is given its peer's packets only. */
	finding->connected = kernel_read(sk, __sk_common.skc_dport) != 0;
	if (!finding->connected && interface.selective)
		room = contest_judge(sk, &queue, room, flow, finding);
	else if (!finding->connected && finding->sock)
		finding->alone_left = WEIR_REMEMBERED;
	udp_expect(sk, &queue, room, flow->fragment, finding);
}

/* Can nobody but the members of this group be given such packets? */
static __always_inline bool udp_group_is_alone(const struct sock *sk,
					       const struct flow *flow)
{
	__u64 net = kernel_address(sk, __sk_common.skc_net.net);
	struct workspace *workspace = get_workspace();
	struct survey *survey;

	if (!workspace || udp_lookup_is_steered(net))
		return false;
	survey = survey_begin(workspace, flow->destination, flow->family,
			      flow->port_be, net);
	survey->but = kernel_pointer(sk, sk_reuseport_cb);
	survey_bucket(survey, udp_bucket(sk, net, survey->port), false);
	return !survey->sockets && !survey->uncertain;
}

/* Which member a packet is for cannot be told: while one has room, all pass. */
static __always_inline void udp_members(const struct sock *sk,
					const struct flow *flow,
					const struct charge *charge,
					struct weir_poll *poll,
					struct finding *finding)
{
	__u32 room = reuseport_room(kernel_address(sk, sk_reuseport_cb),
				    charge->truesize);

	finding->reason = WEIR_REASON_UDP_ROOM;
	finding->full_from = charge->from;
	finding->truesize = charge->truesize;
	finding->remember = room < WEIR_REMEMBERED ? room : WEIR_REMEMBERED;
	if (room || charge_asks(charge, poll, poll->now_ns))
		return;
	finding->reason = WEIR_REASON_UDP_FULL;
	if (udp_group_is_alone(sk, flow) || DEFECT(GROUP_ALWAYS_ALONE))
		finding->remember = WEIR_REMEMBERED;
}

/*
 * What becomes of a packet for this socket, and for how many that is to be
 * remembered. A global function, which the verifier looks at once; so the
 * socket comes as a number.
 */
__noinline int udp_judge(__u64 address, const struct flow *flow,
			 const struct charge *charge, struct finding *finding)
{
	const struct sock *sk = kernel_cast(address, struct sock);
	const struct udp_sock *up = kernel_cast(address, struct udp_sock);
	struct weir_poll *poll = current_poll();

	if (!flow || !charge || !finding || !poll)
		return 0;
	if (kernel_read(up, encap_type) && !DEFECT(ENCAP_IGNORED)) {
		finding->reason = WEIR_REASON_UDP_ENCAP;
	} else if (reuseport_may_pick_another(sk)) {
		udp_members(sk, flow, charge, poll, finding);
	} else {
		udp_socket(sk, flow, charge, poll, finding);
	}
	return 0;
}

/* Not 0, which is no group's. */
static __always_inline __u64 group_of(const __u32 *address)
{
	__u64 high = address[0] | (__u64)address[1] << 32;
	__u64 low = address[2] | (__u64)address[3] << 32;

	if (DEFECT(GROUPS_ARE_ONE))
		return 1;
	return hash_mix(hash_mix(high) ^ low);
}

/*
 * Every socket on the port that has joined the group gets a copy
 * (__udp4_lib_mcast_deliver()). Those that have not are asked too: discarding
 * takes them all to be full, which errs towards admitting.
 */
__noinline int udp_judge_group(__u64 address, const struct flow *flow,
			       const struct charge *charge,
			       struct finding *finding)
{
	const struct sock *sk = kernel_cast(address, struct sock);
	struct workspace *workspace = get_workspace();
	struct weir_poll *poll = current_poll();
	struct survey *survey;
	__u64 net;

	if (!flow || !charge || !finding || !workspace || !poll)
		return 0;
	net = kernel_address(sk, __sk_common.skc_net.net);
	survey = survey_begin(workspace, flow->destination, flow->family,
			      flow->port_be, net);
	survey->any_address = true;
	survey->truesize = charge->truesize;
	survey->group = group_of(flow->destination);
	survey_bucket(survey, udp_bucket(sk, net, survey->port), true);
	if (DEFECT(MULTICAST_FIRST_FULL) && survey->full)
		survey->full = survey->sockets;
	finding->reason = WEIR_REASON_MULTICAST_ROOM;
	finding->full_from = charge->from;
	finding->truesize = charge->truesize;
	finding->remember = survey->tight ? 0 : WEIR_REMEMBERED;
	if (survey->sockets && survey->full == survey->sockets &&
	    !survey->uncertain && !charge_asks(charge, poll, poll->now_ns)) {
		finding->reason = WEIR_REASON_MULTICAST_FULL;
		finding->remember = WEIR_REMEMBERED;
	}
	return 0;
}

/*
 * The socket that the kernel would find, by address; 0 if none. It stays
 * readable: UDP sockets are freed after a grace period (SOCK_RCU_FREE).
 */
static __noinline __u64 udp_find(void *ctx, const struct flow *flow)
{
	struct bpf_sock_tuple tuple;
	struct bpf_sock *sk;
	__u64 address;

	sk = bpf_sk_lookup_udp(ctx, &tuple, tuple_of(flow, &tuple),
			       BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	address = kernel_address_of(sk);
	bpf_sk_release(sk);
	return address;
}

/* One receiver, or many. */
static __always_inline void udp_look(void *ctx, const struct flow *flow,
				     bool group, const struct charge *charge,
				     const struct weir_memory *memory,
				     struct finding *finding)
{
	__u64 address = udp_find(ctx, flow);

	finding->remember = WEIR_REMEMBERED;
	if (!address) {
		/* Passing is always right, so this can be remembered. */
		finding->reason = WEIR_REASON_UDP_NO_SOCKET;
	} else if (group) {
		udp_judge_group(address, flow, charge, finding);
	} else {
		if (!udp_is_alone(address, memory, finding))
			finding->remember = 0;
		udp_judge(address, flow, charge, finding);
	}
}

#endif /* WEIR_UDP_H */
