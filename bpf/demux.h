/* SPDX-License-Identifier: GPL-2.0-only */
/* From a flow to its channel and that channel's state: why pass, or not? */
#ifndef WEIR_DEMUX_H
#define WEIR_DEMUX_H

#include "address.h"
#include "explain.h"
#include "forward.h"
#include "fragment.h"
#include "recall.h"
#include "tcp.h"
#include "udp.h"

#define ICMP_UNREACHABLE 3 /* also: fragmentation needed */
#define ICMP_SOURCE_QUENCH 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
#define ICMPV6_ERROR_LAST 4  /* unreachable, too big, time, parameter */
#define ICMPV6_MLD_FIRST 130 /* query, report, done */
#define ICMPV6_MLD_LAST 132
#define ICMPV6_ND_FIRST 133 /* router and neighbour, redirect */
#define ICMPV6_ND_LAST 137
#define ICMPV6_MLD2_REPORT 143
/* None but neighbours can send it (RFC 4861, section 3.1)... */
#define TTL_ON_LINK 255
/* ...or nobody forwards it (RFC 2236, 3376, 2710, 3810). */
#define TTL_GROUP 1

static __always_inline __u32 icmp_reason(__u8 type)
{
	return type == ICMP_UNREACHABLE || type == ICMP_SOURCE_QUENCH ||
			       type == ICMP_TIME_EXCEEDED ||
			       type == ICMP_PARAMETER_PROBLEM
		       ? WEIR_REASON_ICMP_ERROR
		       : WEIR_REASON_ICMP;
}

/* What comes from off the link keeps no network together. */
static __always_inline __u32 icmpv6_reason(__u8 type, __u8 hop_limit)
{
	if (type <= ICMPV6_ERROR_LAST)
		return WEIR_REASON_ICMP_ERROR;
	if (((type >= ICMPV6_MLD_FIRST && type <= ICMPV6_MLD_LAST) ||
	     type == ICMPV6_MLD2_REPORT) &&
	    hop_limit == TTL_GROUP)
		return WEIR_REASON_GROUP;
	if (type >= ICMPV6_ND_FIRST && type <= ICMPV6_ND_LAST &&
	    hop_limit == TTL_ON_LINK)
		return WEIR_REASON_NEIGHBOUR;
	return WEIR_REASON_ICMP;
}

/* Looks at the kernel's tables: who receives this, and is there room? */
static __always_inline void
demux_look(struct packet *packet, const struct flow *flow,
	   enum weir_target target, const struct charge *charge,
	   struct weir_memory *memory, struct finding *finding)
{
	enum destination destination = destination_of(flow);
	bool to_many = destination == DESTINATION_GROUP;

	/* A frame to many, to any other address: not for certain. */
	if (target == WEIR_TARGET_UDP_GROUP && !to_many)
		return;
	if (destination == DESTINATION_OTHER)
		return forward(packet, flow, finding);
	if (target == WEIR_TARGET_UDP || target == WEIR_TARGET_UDP_GROUP)
		return udp_look(packet->ctx, flow, to_many, charge, memory,
				finding);
	if (to_many)
		return;
	if (target == WEIR_TARGET_TCP_SYN)
		return tcp_syn(packet->ctx, flow, finding);
	if (target == WEIR_TARGET_TCP)
		return tcp_segment(packet->ctx, flow, memory, finding);
}

/* Where what belongs to no connection is counted, apart from what does. */
static __always_inline struct weir_memory *
stray_place(const struct flow *flow, const struct weir_poll *poll)
{
	struct weir_memory *memory = memory_place(flow, WEIR_TARGET_TCP_STRAY);

	if (!memory || memory_is_of(memory, flow, WEIR_TARGET_TCP_STRAY))
		return memory;
	return memory_take(memory, flow, WEIR_TARGET_TCP_STRAY, poll);
}

/*
 * The slow path: everything is looked up, and kept where there is a place for
 * it. NULL: nowhere, which cannot be.
 */
static __noinline struct weir_memory *demux_refresh(struct packet *packet,
						    const struct flow *flow,
						    enum weir_target target,
						    struct weir_memory *memory,
						    struct weir_poll *poll)
{
	struct workspace *workspace = get_workspace();
	struct finding *finding;

	if (!memory_is_of(memory, flow, target))
		memory = memory_take(memory, flow, target, poll);
	if (!memory || !workspace)
		return NULL;
	finding = &workspace->finding;
	__builtin_memset(finding, 0, sizeof(*finding));
	finding->reason = WEIR_REASON_OTHER_MAC;
	if (flow->udp_len)
		charge_of(flow, packet->truesize, poll->now_ns,
			  &workspace->charge);
	if (udp_is_still_alone(memory)) {
		finding->remember = WEIR_REMEMBERED;
		finding->sock = memory->sock;
		finding->bucket = memory->bucket;
		finding->sock_tag = memory->sock_tag;
		udp_judge(memory->sock, flow, &workspace->charge, finding);
	} else {
		demux_look(packet, flow, target, &workspace->charge, memory,
			   finding);
	}
	if (finding->reason == WEIR_REASON_TCP_STRAY) {
		memory = stray_place(flow, poll);
		if (!memory || memory_is_fresh(memory, poll))
			return memory;
	}
	remember(memory, flow, finding, poll);
	memory_charge(memory);
	if (memory->contest &&
	    verdict_of_reason(memory->reason) == WEIR_VERDICT_PASS)
		source_admit(contest_at(memory->contest - 1), source_hash(flow),
			     packet->seen.packets);
	return memory;
}

static __always_inline __u32 demux_target(struct packet *packet,
					  const struct flow *flow,
					  enum weir_target target)
{
	struct weir_memory *memory = memory_place(flow, target);
	struct weir_poll *poll = current_poll();

	if (!memory || !poll)
		return WEIR_REASON_OTHER_MAC;
	if (!memory_answers(memory, flow, target, packet->truesize, poll)) {
		memory = demux_refresh(packet, flow, target, memory, poll);
		if (!memory)
			return WEIR_REASON_OTHER_MAC;
	}
	if (explaining)
		explanation.egress_ifindex = memory->egress_ifindex;
	return memory_use(memory, poll, packet->seen);
}

/* For this host, and neither UDP nor TCP. */
static __always_inline __u32 other_reason(const struct flow *flow,
					  enum weir_parse parse)
{
	switch (parse) {
	case WEIR_PARSE_ICMP:
		return icmp_reason(flow->icmp_type);
	case WEIR_PARSE_ICMPV6:
		return icmpv6_reason(flow->icmp_type, flow->ttl);
	case WEIR_PARSE_IGMP:
		return flow->ttl == TTL_GROUP ? WEIR_REASON_GROUP
					      : WEIR_REASON_ICMP;
	default:
		return WEIR_REASON_OTHER_PROTOCOL;
	}
}

/* An IP packet that is for no destination in particular; else COUNT. */
static __always_inline __u32 ip_kind_reason(const struct flow *flow,
					    enum weir_parse parse)
{
	if (!is_own_mac(flow->mac) && !is_group_mac(flow->mac) &&
	    !DEFECT(MAC_UNCHECKED))
		return WEIR_REASON_OTHER_MAC;
	/* tcp_v4_rcv() wants them to be for this host alone. */
	if (parse == WEIR_PARSE_TCP && is_group_mac(flow->mac))
		return WEIR_REASON_OTHER_MAC;
	if (flow->routed && !DEFECT(SOURCE_ROUTE_IGNORED))
		return WEIR_REASON_SOURCE_ROUTED;
	if (parse == WEIR_PARSE_LATER_FRAGMENT)
		return fragment_later(flow);
	if (target_of(flow, parse) == WEIR_TARGET_FORWARD &&
	    destination_of(flow) != DESTINATION_OTHER)
		return other_reason(flow, parse);
	if (flow->fragment == WEIR_FRAGMENT_FIRST &&
	    fragment_is_overtaken(flow))
		return WEIR_REASON_FRAGMENT;
	return WEIR_REASON_COUNT;
}

/* A packet of a kind that has no destinations of its own; else COUNT. */
static __always_inline __u32 kind_reason(const struct flow *flow,
					 enum weir_parse parse)
{
	if (parse == WEIR_PARSE_MALFORMED)
		return WEIR_REASON_MALFORMED;
	if (flow->vlan_tags && !DEFECT(VLAN_IGNORED))
		return WEIR_REASON_VLAN;
	switch (parse) {
	case WEIR_PARSE_ARP:
		return WEIR_REASON_NEIGHBOUR;
	case WEIR_PARSE_OTHER_ETHERTYPE:
		return WEIR_REASON_OTHER_ETHERTYPE;
	case WEIR_PARSE_IPV6_CHAIN:
		return WEIR_REASON_IPV6_CHAIN;
	default:
		return ip_kind_reason(flow, parse);
	}
}

/*
 * A head that waits for its tail costs what no queue shows, so it is charged to
 * fragments, too.
 */
static __always_inline __u32 demux_head(struct packet *packet,
					const struct flow *flow,
					enum weir_target target)
{
	__u32 reason = kind_charge(WEIR_REASON_FRAGMENT, packet->seen.packets);

	if (verdict_of_reason(reason) == WEIR_VERDICT_PASS)
		reason = demux_target(packet, flow, target);
	fragment_note(flow, reason);
	return reason;
}

/* Why this packet passes, or is discarded. */
static __always_inline __u32 demux(struct packet *packet,
				   const struct flow *flow,
				   enum weir_parse parse)
{
	__u32 reason = kind_reason(flow, parse);

	if (reason != WEIR_REASON_COUNT)
		return kind_charge(reason, packet->seen.packets);
	if (flow->fragment == WEIR_FRAGMENT_FIRST)
		return demux_head(packet, flow, target_of(flow, parse));
	return demux_target(packet, flow, target_of(flow, parse));
}

#endif /* WEIR_DEMUX_H */
