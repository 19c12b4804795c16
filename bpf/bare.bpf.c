// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the lab's gate-cost compares the gate with: XDP programs that do nothing
 * but drop, or pass. No part of the gate.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Ethernet, IPv4 and both ports. */
#define TOUCHED_LEN 38

/* As the gate: it takes multi-buffer frames too. */
SEC("xdp.frags")
int weir_bare_drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/*
 * Reads what any demultiplexer must, ethertype and a port, and drops. Another
 * CPU, or a device, wrote the packet, and bare_drop() never fetches it. Nothing
 * depends on what is read, so the CPU may go on to the next packet meanwhile: a
 * lower bound of what fetching costs a program that decides by it.
 */
SEC("xdp.frags")
int weir_touch_drop(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data;

	if (data + TOUCHED_LEN > (const __u8 *)(long)ctx->data_end)
		return XDP_PASS;
	(void)*(volatile __u16 *)(data + 12);
	(void)*(volatile __u16 *)(data + TOUCHED_LEN - 2);
	return XDP_DROP;
}

SEC("xdp.frags")
int weir_bare_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
