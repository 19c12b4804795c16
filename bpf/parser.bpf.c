// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gate's parser by itself, for tests: the packet that it is run on
 * (BPF_PROG_TEST_RUN) goes through parse() and parse_usual(), and what those
 * made of it can be read from memory. Never attached.
 */
#include "parsed.h"

struct weir_parsed parsed;
struct weir_parsed parsed_usual;

/* Unused: the names of what parsed holds as numbers, for its BTF. */
enum weir_parse parse_names;
enum weir_family family_names;
enum weir_fragment fragment_names;

static __always_inline void parse_into(struct xdp_md *ctx, bool usual,
				       struct weir_parsed *to)
{
	struct cursor cursor = cursor_of(ctx);
	__u32 len = bpf_xdp_get_buff_len(ctx);
	struct flow flow = {};
	enum weir_parse found;

	__builtin_memset(to, 0, sizeof(*to));
	found = usual ? parse_usual(&cursor, &flow, len)
		      : parse(&cursor, &flow, len);
	parsed_from(&flow, found, to);
}

SEC("xdp.frags")
int weir_parser(struct xdp_md *ctx)
{
	parse_into(ctx, false, &parsed);
	parse_into(ctx, true, &parsed_usual);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
