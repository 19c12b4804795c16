/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets that the gate has admitted to a socket and that are not in its queue
 * yet: a NAPI poll runs the gate on a batch before the first packet of it
 * reaches a socket.
 *
 * Not every packet that is admitted arrives: a filter, a firewall, a bad
 * checksum or a group's membership may end it on its way. Once a packet is seen
 * not to arrive, in the next poll, nothing is believed to be in flight to that
 * socket for DOUBTED_NS, and until others are seen to arrive; of a multicast
 * group's packets, from the beginning.
 */
#ifndef WEIR_FLIGHT_H
#define WEIR_FLIGHT_H

#include "queue.h"

#define UDP_FLAGS_GRO_ENABLED 3 /* include/linux/udp.h */
#define DOUBTED_NS 1000000000ULL
/* More are not on their way at a time: GRO keeps 8 back (gro_normal_batch), and
 * a veth takes 16 at once from its ring (VETH_XDP_BATCH). */
#define FLIGHT_PACKETS 8
#define FLIGHT_PACKETS_OF_VETH (FLIGHT_PACKETS + 16)
/* A reader gives one part in so many of the buffer back at a time, or less. */
#define GIVEN_BACK 4

static __always_inline __u32 flight_packets(void)
{
	return interface.unfinished ? FLIGHT_PACKETS_OF_VETH : FLIGHT_PACKETS;
}

/* UDP_GRO: several packets in one skb, charged as one. */
static __always_inline bool udp_takes_merged(__u64 sock)
{
	const struct udp_sock *up = kernel_cast(sock, struct udp_sock);
	const struct udp_sock___before_6_7 *old = (const void *)up;

	if (bpf_core_field_exists(up->udp_flags))
		return kernel_read(up, udp_flags) >> UDP_FLAGS_GRO_ENABLED & 1;
	return BPF_CORE_READ_BITFIELD_PROBED(old, gro_enabled);
}

/* A socket's memberships that are looked at: igmp_max_memberships' default. */
#define MEMBERSHIPS 20

static __always_inline bool memberships_choose(__u64 membership, __u32 next_at,
					       __u32 senders_at)
{
	__u64 senders;
	int i;

	for (i = 0; i < MEMBERSHIPS && membership; i++) {
		bpf_probe_read_kernel(&senders, sizeof(senders),
				      (const void *)(membership + senders_at));
		if (senders)
			return true;
		bpf_probe_read_kernel(&membership, sizeof(membership),
				      (const void *)(membership + next_at));
	}
	return membership;
}

/*
 * May it take some senders' packets to a group, and not others'? It is
 * connected to one, or has chosen some (IGMPv3, MLDv2). A global function,
 * which the verifier looks at once.
 */
__noinline bool udp_chooses_senders(__u64 sock)
{
	const struct inet_sock *inet = kernel_cast(sock, struct inet_sock);
	const struct sock *sk = kernel_cast(sock, struct sock);
	const struct ipv6_pinfo *inet6;
	__u64 address;

	if (kernel_read(sk, __sk_common.skc_dport) ||
	    memberships_choose(
		    kernel_address(inet, mc_list),
		    bpf_core_field_offset(struct ip_mc_socklist, next_rcu),
		    bpf_core_field_offset(struct ip_mc_socklist, sflist)))
		return true;
	address = bpf_core_field_exists(inet->pinet6)
			  ? kernel_address(inet, pinet6)
			  : 0;
	if (!address)
		return false;
	inet6 = kernel_cast(address, struct ipv6_pinfo);
	return memberships_choose(
		kernel_address(inet6, ipv6_mc_list),
		bpf_core_field_offset(struct ipv6_mc_socklist, next),
		bpf_core_field_offset(struct ipv6_mc_socklist, sflist));
}

/*
 * The first packet of a queue, whose reader takes that one first; 0: there is
 * none.
 */
static __always_inline __u64 flight_head(__u64 address)
{
	const struct udp_sock *up = kernel_cast(address, struct udp_sock);
	const struct sock *sk = kernel_cast(address, struct sock);
	__u64 head;

	head = kernel_address(up, reader_queue.next);
	if (head !=
	    address + bpf_core_field_offset(struct udp_sock, reader_queue))
		return head;
	head = kernel_address(sk, sk_receive_queue.next);
	return head == address + bpf_core_field_offset(struct sock,
						       sk_receive_queue)
		       ? 0
		       : head;
}

static __always_inline void flight_doubt(struct weir_queue_slot *slot,
					 __u64 now)
{
	slot->arrives = 0;
	slot->doubted_ns = now;
}

/*
 * A poll has ended on this CPU since it was last looked: did all arrive that
 * was expected? It can be told if no reader has taken any since the first was.
 * What has not may have been refused, if it does not fit.
 */
static __always_inline void flight_settle(struct weir_queue_slot *slot,
					  __u32 charged, __u32 limit, __u64 now)
{
	__u32 arrived = charged - slot->charged_seen;

	if (!slot->in_flight || !slot->head || charged < slot->charged_seen)
		return;
	if (arrived < slot->in_flight &&
	    charged + slot->in_flight - arrived <= limit) {
		flight_doubt(slot, now);
	} else if (2 * arrived >= slot->in_flight) {
		slot->arrives = 1;
	}
}

static __always_inline bool
flight_is_believed(const struct weir_queue_slot *slot, __u64 now)
{
	if (DEFECT(FLIGHT_BELIEVED))
		return true;
	return slot->arrives &&
	       /* Another CPU may have doubted it since this poll began. */
	       (!slot->doubted_ns ||
		(__s64)(now - slot->doubted_ns) > (__s64)DOUBTED_NS);
}

/*
 * A reader on another CPU may have taken what arrived before it was looked for:
 * so what is missing is not on its way if it is more than can be, or if the
 * queue is seen to be empty time and again.
 */
static __always_inline __u32 flight_bound(const struct weir_queue_slot *slot,
					  __u32 left, __u32 charged)
{
	__u32 most = flight_packets() * slot->largest;

	if (DEFECT(FLIGHT_UNBOUNDED))
		return left;
	if (!charged && !slot->charged_seen)
		return 0;
	return left < most ? left : most;
}

/*
 * How many bytes may have arrived since the last look in this poll? What was
 * charged, and what a reader has given back, if it has: a quarter of the
 * buffer at a time, or less if it has found no more packets
 * (udp_rmem_release()). Taken to be the most, which errs towards admitting.
 */
static __always_inline __u32 flight_arrived(const struct weir_queue_slot *slot,
					    __u32 charged, __u32 limit,
					    bool took, __u32 taken)
{
	__s64 arrived = (__s64)charged - slot->charged_seen;

	if (arrived < 0 || (took && taken <= slot->taken_seen))
		arrived += limit / GIVEN_BACK + slot->largest;
	/* It has given back more: all of them may have. */
	return arrived < 0 ? ~0U : arrived;
}

/*
 * Bytes in flight to a queue that has been charged so many. Of packets that are
 * charged less than was expected nothing is assumed to be in flight.
 *
 * A group's packets are followed on their own: of one group's membership
 * another's tells nothing. A global function, which the verifier looks at once.
 */
__noinline __u32 flight_bytes(__u64 sock, __u64 group, __u32 charged,
			      __u32 limit, __u32 lent)
{
	const struct weir_charges *charges = charges_at(interface.charges);
	const struct udp_sock *up = kernel_cast(sock, struct udp_sock);
	const struct sock *sk = kernel_cast(sock, struct sock);
	struct weir_queue_slot *slot = queue_slot(sock ^ group);
	struct weir_poll *poll = current_poll();
	__u32 arrived, left, taken;
	__u64 poll_id, head;
	bool condensed, took;

	/* What a filter drops never arrives, and what is merged is charged
	 * less: only what is there counts. */
	if (!slot || !poll ||
	    (kernel_address(sk, sk_filter) && !DEFECT(FILTER_EXPECTED)) ||
	    (udp_takes_merged(sock) && !DEFECT(MERGED_EXPECTED)))
		return 0;
	if (slot->sock != (sock ^ group)) {
		__builtin_memset(slot, 0, sizeof(*slot));
		slot->sock = sock ^ group;
		slot->arrives = !group;
	}
	poll_id = poll_id_of(poll);
	head = flight_head(sock);
	taken = kernel_read(up, forward_deficit);
	condensed =
		charged != slot->charged_seen && charges && charges->condensed;
	took = slot->head && slot->head != head;
	slot->moved |= took;
	left = slot->in_flight + lent;
	if (slot->poll != poll_id) {
		if ((__u16)slot->poll == (__u16)poll_id && !condensed &&
		    !slot->moved)
			flight_settle(slot, charged, limit, poll->now_ns);
		left = 0;
		slot->largest = 0;
		slot->moved = 0;
	} else if (condensed) {
		left = 0;
	} else {
		arrived = flight_arrived(slot, charged, limit, took, taken);
		left -= arrived < left ? arrived : left;
		left = flight_bound(slot, left, charged);
	}
	slot->poll = poll_id;
	slot->head = head;
	slot->charged_seen = charged;
	slot->taken_seen = taken;
	slot->in_flight = left;
	return left && flight_is_believed(slot, poll->now_ns) ? left : 0;
}

/* So many bytes are on their way now. */
__noinline int flight_expect(__u64 sock, __u64 group, __u32 bytes)
{
	struct weir_queue_slot *slot = queue_slot(sock ^ group);

	if (!slot || slot->sock != (sock ^ group))
		return 0;
	slot->in_flight += bytes;
	if (slot->largest < bytes)
		slot->largest = bytes;
	return 0;
}

/*
 * It is full, of what was on its way to it among others. What it refuses of
 * that is not seen to arrive, nor is the rest if the reader is quick to take
 * it; so this is where a group's packets are seen to.
 */
__noinline int flight_fill(__u64 sock, __u64 group, __u32 charged)
{
	struct weir_queue_slot *slot = queue_slot(sock ^ group);

	if (slot && slot->sock == (sock ^ group) && slot->in_flight &&
	    charged > slot->charged_seen)
		slot->arrives = 1;
	return 0;
}

/*
 * For how many packets has it room, besides those on their way to it? Where it
 * has none without them, they make no difference.
 */
static __always_inline __u32 queue_room_left(__u64 sock, __u64 group,
					     struct queue *queue)
{
	__u32 room = queue_room(queue);

	if (!room) {
		if (group)
			flight_fill(sock, group, queue->charged);
		return 0;
	}
	/* So much room that what is on its way makes no difference. */
	if (room >= QUEUE_ROOM_FOR_ANY_POLL + FLIGHT_PACKETS_OF_VETH)
		return room;
	/* What comes from a sender that is not chosen never arrives. */
	if (group && udp_chooses_senders(sock) && !DEFECT(SENDERS_IGNORED))
		return room;
	queue->in_flight = flight_bytes(sock, group, queue->charged,
					queue->limit, queue->lent);
	queue->charged += queue->in_flight;
	return queue_room(queue);
}

#endif /* WEIR_FLIGHT_H */
