// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gate: early demultiplexing and early packet discard (Druschel & Banga,
 * section 3.2), at the driver, before an skb exists, or as early as the
 * interface allows.
 *
 * Parse, look up, decide, count (fast_path.h, slow_path.h, decide.h). A packet
 * is discarded only if the socket that it is for would refuse it; whatever the
 * gate does not understand, or cannot name the destination of, passes.
 */
#include "alarm.h"
#include "cookie.h"
#include "forward.h"
#include "lazy.h"
#include "limit.h"
#include "merged.h"
#include "sample.h"
#include "slow_path.h"
#include "unsent.h"
#include <linux/pkt_cls.h>

/*
 * What is decided before a packet is parsed; else NO_REASON. in_poll: the skb
 * says that NAPI has brought it.
 */
static __always_inline int standing_reason(bool past_limit, bool in_poll)
{
	/* Where no NAPI poll ever ends, nothing of one packet holds for the
	 * next. */
	if (interface.no_polls && !in_poll)
		end_poll();
	if (interface.policy_off)
		return WEIR_REASON_POLICY_OFF;
	if (is_stale())
		return WEIR_REASON_STALE;
	if (past_limit)
		return WEIR_REASON_CPU_SHARE;
	if (interface.diverted && !DEFECT(DIVERTED_IGNORED))
		return WEIR_REASON_DIVERTED;
	return NO_REASON;
}

/*
 * A packet's end: it is counted under its one reason, and whether it is
 * discarded. Nothing else turns a reason into an action. In shadow nothing is:
 * what would be is counted, and sampled, all the same.
 */
static __always_inline bool is_discarded(void *ctx, bool on_skb, __u32 reason,
					 struct weir_counter seen)
{
	struct weir_poll *poll;

	if (is_past_its_part(reason))
		reason = WEIR_REASON_CPU_SHARE;
	if (reason == WEIR_REASON_CPU_SHARE) {
		poll = current_poll();
		/* As long as there are such the gates stay awake. */
		if (poll)
			count_discard(poll, seen.packets);
	}
	count(reason, seen);
	if (verdict_of_reason(reason) != WEIR_VERDICT_DISCARD)
		return false;
	if (is_sampling()) {
		if (on_skb)
			skb_sample(ctx, reason, seen.packets);
		else
			xdp_sample(ctx, reason);
	}
	return !interface.shadow;
}

/* In the driver, or on an skb (generic). */
SEC("xdp.frags")
int weir_gate(struct xdp_md *ctx)
{
	__u32 len = bpf_xdp_get_buff_len(ctx);
	struct weir_counter seen = {.packets = 1, .bytes = len};
	bool asleep = is_asleep(), past_limit;
	int reason;

	past_limit = !asleep && interface.limited && xdp_is_past_limit(ctx);
	if (!past_limit && has_lazy_sockets() && xdp_is_lazy(ctx))
		return XDP_DROP;
	if (asleep) {
		count(WEIR_REASON_ASLEEP, seen);
		return XDP_PASS;
	}
	reason = standing_reason(past_limit, false);
	if (reason == NO_REASON && !explaining)
		reason = xdp_fast_path(ctx, len);
	if (reason == NO_REASON)
		reason = xdp_slow_path(ctx);
	if (is_to_be_answered(reason) && xdp_answer(ctx)) {
		count(WEIR_REASON_TCP_COOKIE, seen);
		return send_back();
	}
	if (may_bring_cookie(reason))
		xdp_welcome(ctx);
	return is_discarded(ctx, false, reason, seen) ? XDP_DROP : XDP_PASS;
}

static __always_inline bool forwards_from(__u32 ifindex)
{
	return ifindex == interface.ifindex;
}

/* The gate, for what the fast path of forwarding does not take. */
MAP(behind, BPF_MAP_TYPE_PROG_ARRAY, 0, 1, __u32, __u32);

/* Is the packet left to the gate, which discards past input's share? */
static __always_inline bool is_for_limit(void)
{
	return interface.limited && !is_asleep() &&
	       is_over_limit(this_softirq());
}

/* In the driver, in front of the gate, where the fast path is asked for. */
SEC("xdp.frags")
int weir_forward(struct xdp_md *ctx)
{
	__u32 len = bpf_xdp_get_buff_len(ctx);
	struct weir_counter seen = {.packets = 1, .bytes = len};
	struct weir_poll *poll = current_poll();
	struct ingress at = {.mac = interface.mac};
	long action;

	/* is_stale() also sees to it that this poll has a time. */
	if (poll && !is_stale() && interface.forwards && !interface.diverted &&
	    !is_for_limit()) {
		at.now = poll->now_ns;
		at.unfinished = interface.unfinished;
		action = forward_fast(ctx, len, &at);
		if (action == XDP_REDIRECT) {
			if (!is_asleep())
				kind_note(WEIR_KIND_FORWARD, poll, 1);
			count(WEIR_REASON_FORWARDED, seen);
			return action;
		}
	}
	bpf_tail_call(ctx, &behind, 0);
	count(WEIR_REASON_INTERNAL, seen);
	return XDP_PASS;
}

/*
 * What an skb is charged; 0: cannot be told. Nobody will cut it up, nor copy it
 * out of pages on the way into the queue (skb_condense()).
 */
static __always_inline __u32 skb_truesize(struct __sk_buff *skb)
{
	const struct sk_buff *kernel_skb;

	if (!has_kern_ctx() || skb->gso_size)
		return 0;
	kernel_skb = bpf_cast_to_kern_ctx(skb);
	return kernel_skb->data_len ? 0 : kernel_skb->truesize;
}

static __always_inline bool skb_is_misnamed(const struct __sk_buff *skb)
{
	return is_misnamed(skb, cursor_of(skb));
}

/*
 * The same at tc ingress, on an skb. TC_ACT_UNSPEC, which tcx calls TCX_NEXT:
 * what passes here goes on to the other programs at the hook.
 */
SEC("tc")
int weir_gate_tc(struct __sk_buff *skb)
{
	bool asleep = is_asleep(), past_limit = false;
	struct weir_counter seen;
	__u32 truesize;
	int reason;

	if (!asleep && interface.limited) {
		pull_headers(skb);
		past_limit = !skb_is_misnamed(skb) && skb_is_past_limit(skb);
	}
	if (!past_limit && has_lazy_sockets() && skb_is_lazy(skb))
		return TC_ACT_SHOT;
	if (asleep) {
		count(WEIR_REASON_ASLEEP, packets_of(skb));
		return TC_ACT_UNSPEC;
	}
	pull_headers(skb);
	seen = packets_of(skb);
	if (skb_is_misnamed(skb))
		reason = kind_charge(WEIR_REASON_OTHER_ETHERTYPE, seen.packets);
	else
		reason = standing_reason(past_limit, skb->napi_id);
	/* The kernel has taken the tag off: skb_vlan_untag(). */
	if (reason == NO_REASON && skb->vlan_present &&
	    is_of_vlan(skb->vlan_tci) && !DEFECT(VLAN_IGNORED))
		reason = kind_charge(WEIR_REASON_VLAN, seen.packets);
	truesize = skb_truesize(skb);
	if (reason == NO_REASON && !explaining && !skb->gso_size)
		reason = skb_fast_path(skb, truesize);
	if (reason == NO_REASON)
		reason = skb_slow_path(skb, seen.packets, seen.bytes, truesize);
	if (is_to_be_answered(reason) && skb_answer(skb)) {
		count(WEIR_REASON_TCP_COOKIE, seen);
		return bpf_redirect(skb->ifindex, 0);
	}
	if (may_bring_cookie(reason))
		skb_welcome(skb);
	return is_discarded(skb, true, reason, seen) ? TC_ACT_SHOT
						     : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
