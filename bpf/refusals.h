/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What TCP has refused. No tracepoint tells that a listener's queue or a
 * connection's backlog was full, but the kernel counts both, for each network
 * namespace and CPU (LINUX_MIB_SYNCOOKIESSENT and others, `nstat`). They are
 * compared where a NAPI poll ends, as packets are refused in it.
 */
#ifndef WEIR_REFUSALS_H
#define WEIR_REFUSALS_H

#include "alarm.h"
#include "compat.h"
#include "map.h"

/* How seldom they are read. */
#define REFUSALS_AGAIN_NS 1000000ULL

/* Where the counters are among a namespace's, as enum says; set by user space.
 * At 0 is none. */
const volatile __u32 syn_cookies_sent;
const volatile __u32 listen_drops;
const volatile __u32 backlog_drops;

struct bpf_array {
	char value[0]; /* a per-CPU array's: pointers, of each CPU */
} __attribute__((preserve_access_index));

/* On each CPU. */
struct refusals {
	__u64 counters; /* of which network namespace */
	__u64 seen_ns;
	__u64 listeners;
	__u64 backlogs;
};

MAP_OF_ONE(these_refusals, refusals, BPF_MAP_TYPE_PERCPU_ARRAY, 0,
	   struct refusals);

/*
 * What must be added to a per-CPU pointer to get this CPU's. Nothing tells it
 * but a map that has both.
 */
static __always_inline __u64 this_cpu_offset(const struct refusals *mine)
{
	const struct bpf_array *array =
		kernel_cast(kernel_address_of(&refusals), struct bpf_array);
	__u64 of_each_cpu = 0;

	bpf_core_read(&of_each_cpu, sizeof(of_each_cpu), &array->value);
	return kernel_address_of(mine) - of_each_cpu;
}

static __always_inline __u64 refusals_at(__u64 counters, __u32 place)
{
	__u64 count = 0;

	bpf_probe_read_kernel(&count, sizeof(count),
			      (void *)(counters + place * sizeof(count)));
	return count;
}

/* At the end of a poll. */
static __always_inline void compare_refusals(struct napi_struct *napi,
					     __u64 now)
{
	struct refusals *before = these_refusals();
	struct refusals read = {};
	__u64 here;

	if (!before || now - before->seen_ns < REFUSALS_AGAIN_NS)
		return;
	read.seen_ns = now;
	read.counters =
		(__u64)BPF_CORE_READ(napi, dev, nd_net.net, mib.net_statistics);
	here = read.counters + this_cpu_offset(before);
	read.listeners = refusals_at(here, syn_cookies_sent) +
			 refusals_at(here, listen_drops);
	read.backlogs = refusals_at(here, backlog_drops);
	if (read.counters == before->counters) {
		if (read.listeners != before->listeners)
			ring(WEIR_CAUSE_TCP_QUEUE, now);
		if (read.backlogs != before->backlogs)
			ring(WEIR_CAUSE_TCP_BACKLOG, now);
	}
	*before = read;
}

#endif /* WEIR_REFUSALS_H */
