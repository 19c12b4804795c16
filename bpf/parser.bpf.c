// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gate's parser by itself, for tests: the packet that it is run on
 * (BPF_PROG_TEST_RUN) goes through parse(), and what that made of it can be
 * read from memory. Never attached.
 */
#include "parsed.h"

struct weir_parsed parsed;

/* Unused: the names of what parsed holds as numbers, for its BTF. */
enum weir_parse parse_names;
enum weir_family family_names;
enum weir_fragment fragment_names;

SEC("xdp.frags")
int parse_only(struct xdp_md *ctx)
{
	struct cursor cursor = cursor_over((void *)(long)ctx->data,
					   (void *)(long)ctx->data_end);
	struct flow flow = {};
	enum weir_parse found;

	__builtin_memset(&parsed, 0, sizeof(parsed));
	found = parse(&cursor, &flow, bpf_xdp_get_buff_len(ctx));
	parsed_from(&flow, found, &parsed);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
