/* SPDX-License-Identifier: GPL-2.0-only */
/* What a look at the kernel's tables and sockets has yielded. */
#ifndef WEIR_FINDING_H
#define WEIR_FINDING_H

#include "address.h"
#include "memory.h"
#include "packet.h"
#include "workspace.h"

static __always_inline void remember(struct weir_memory *memory,
				     const struct flow *flow,
				     const struct finding *finding,
				     const struct weir_poll *poll)
{
	/* Another channel: what was counted is the former one's. */
	if (kind_of_reason(memory->reason) != kind_of_reason(finding->reason) ||
	    memory->egress_ifindex != finding->egress_ifindex)
		memory_fold(memory);
	memory->reason = finding->reason;
	memory->left = finding->remember;
	memory->udp_len = finding->udp_len;
	memory->egress_ifindex = finding->egress_ifindex;
	memory->connected = finding->connected;
	memory->poll = poll->number;
	memory->sock = finding->sock;
	memory->bucket = finding->bucket;
	memory->sock_tag = finding->sock_tag;
	memory->known_until_ns = finding->known_until_ns;
	memory->truesize = finding->truesize;
	memory->generation = interface.generation;
	memory->contest = finding->contest;
	memory->contest_left = WEIR_REMEMBERED;
	memory->room = finding->room;
	memory->reserved = finding->reserved;
	if (finding->connected) {
		memory->peer_port_be = flow->source_port_be;
		copy_address(memory->peer, flow->source);
	}
}

#endif /* WEIR_FINDING_H */
