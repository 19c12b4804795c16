/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Samples of what the gate discards, for somebody who asks who sends it.
 * Nothing here runs for a packet that passes, and a discard costs one more load
 * while nobody asks.
 *
 * Places are written round and round, so that any number of readers may look,
 * and a reader that was killed leaves nothing.
 */
#ifndef WEIR_SAMPLE_H
#define WEIR_SAMPLE_H

#include "address.h"
#include "decide.h"
#include "link.h"
#include "sampler.h"
#include "shared.h"

static __always_inline bool is_sampling(void)
{
	struct weir_alarm *it = the_alarm();
	__u64 until = it ? *(volatile __u64 *)&it->sampled_until_ns : 0;
	struct weir_poll *poll;

	if (!until)
		return false;
	poll = current_poll();
	return poll && poll->now_ns < until;
}

/*
 * A sample, if it is time for one. Its place is nobody's until its end; of a
 * length that is not 64 bits wide the verifier learns nothing. Readers always
 * find an Ethernet header, if need be without addresses.
 */
static __always_inline void sample(void *ctx, bool on_skb, __u64 len,
				   __u32 packets, __u32 reason)
{
	struct weir_sampler *sampler = this_sampler();
	struct weir_poll *poll = current_poll();
	__u32 absent = ETH_HLEN - LINK_HEADER_LEN, key;
	struct weir_sample *sample;
	__u8 *bytes;
	long failed;

	if (!sampler || !poll ||
	    !sampler_is_due(sampler, packets, poll->now_ns))
		return;
	key = bpf_get_smp_processor_id() * WEIR_SAMPLES +
	      (sampler->number & (WEIR_SAMPLES - 1));
	sample = bpf_map_lookup_elem(&samples, &key);
	if (!sample)
		return;
	bytes = sample->bytes + absent;
	*(volatile __u64 *)&sample->number = 0;
	/* The compiler keeps what is before it before what is after. */
	barrier();
	sample->packets = sampler->packets;
	sample->reason = reason;
	sample->ifindex = interface.ifindex;
	sampler_next(sampler);
	if (len > WEIR_SAMPLE_LEN - absent)
		len = WEIR_SAMPLE_LEN - absent;
	/* Or clang has one comparison for both ends, and the verifier none. */
	barrier_var(len);
	failed = -1;
	if (len >= ETH_HLEN)
		failed = on_skb ? bpf_skb_load_bytes(ctx, 0, bytes, len)
				: bpf_xdp_load_bytes(ctx, 0, bytes, len);
	if (no_ethernet)
		*(struct ethernet *)sample->bytes = (struct ethernet){
			.ethertype_be = bare_ethertype(bytes),
		};
	sample->len = failed ? 0 : len + absent;
	barrier();
	*(volatile __u64 *)&sample->number = sampler->number;
}

/* Functions of their own, so that what a usual discard needs stays small. */
static __noinline int xdp_sample(struct xdp_md *ctx, __u32 reason)
{
	sample(ctx, false, bpf_xdp_get_buff_len(ctx), 1, reason);
	return 0;
}

static __noinline int skb_sample(struct __sk_buff *skb, __u32 reason,
				 __u32 packets)
{
	sample(skb, true, skb->len, packets, reason);
	return 0;
}

#endif /* WEIR_SAMPLE_H */
