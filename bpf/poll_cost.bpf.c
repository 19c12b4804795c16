// SPDX-License-Identifier: GPL-2.0-only
/*
 * The time of full NAPI polls, for the lab's gate-cost. From the end of one
 * poll to the end of the next, where both took a whole budget and the instance
 * is the same: nothing but the receive path ran between, the ring was never
 * empty, and no thread slept. So a generator that is slower than the receiver,
 * or other people's work on the CPU, changes how many polls count, not what
 * they cost.
 */
#include "abi.h"
#include "compat.h"
#include <bpf/bpf_tracing.h>

/* Set by user space: the instance to watch; 0: none. */
__u32 watched_napi_id;
/* Written here, on the one CPU that polls the instance. */
struct weir_poll_cost poll_cost;
__u64 last_ns; /* when the last poll ended, if it was full; else 0 */

SEC("tp_btf/napi_poll")
int BPF_PROG(weir_poll_cost, struct napi_struct *napi, int work, int budget)
{
	__u64 now, took, per_packet;

	/* The backlog of a CPU has no number, 0. */
	if (!watched_napi_id || napi->napi_id != watched_napi_id)
		return 0;
	poll_cost.packets += work;
	if (work < budget || work <= 0) {
		last_ns = 0;
		return 0;
	}
	now = bpf_ktime_get_ns();
	took = last_ns ? now - last_ns : 0;
	last_ns = now;
	if (!took)
		return 0;
	per_packet = took / (__u32)work;
	if (per_packet >= WEIR_POLL_NS_PER_PACKET_MAX)
		return 0;
	poll_cost.histogram[per_packet]++;
	poll_cost.full_packets += work;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
