/* SPDX-License-Identifier: GPL-2.0-only */
/* What a look at the kernel's tables and sockets has yielded. */
#ifndef WEIR_FINDING_H
#define WEIR_FINDING_H

#include "address.h"
#include "memory.h"
#include "packet.h"
#include "workspace.h"

/* Is what was found another channel than the one that was counted? */
static __always_inline bool is_another(const struct weir_memory *memory,
				       const struct flow *flow,
				       const struct finding *finding)
{
	__u32 kind = kind_of_reason(finding->reason);

	if (kind == WEIR_KIND_TCP_PEER &&
	    memory->peer_port_be != flow->source_port_be)
		return true;
	return kind_of_reason(memory->reason) != kind ||
	       memory->egress_ifindex != finding->egress_ifindex;
}

static __always_inline void remember(struct weir_memory *memory,
				     const struct flow *flow,
				     const struct finding *finding,
				     const struct weir_poll *poll)
{
	/* What was counted is the former one's. */
	if (is_another(memory, flow, finding))
		memory_fold(memory);
	memory->reason = finding->reason;
	memory->left = finding->remember;
	memory->full_from = finding->full_from;
	memory->egress_ifindex = finding->egress_ifindex;
	memory->connected = finding->connected;
	memory->moment = poll->moment;
	memory->sock = finding->sock;
	memory->bucket = finding->bucket;
	memory->sock_tag = finding->sock_tag;
	memory->alone_left = finding->alone_left;
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
