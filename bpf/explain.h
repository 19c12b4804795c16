/* SPDX-License-Identifier: GPL-2.0-only */
/* `weir explain`: what the gate made of the packet that it was run on. */
#ifndef WEIR_EXPLAIN_H
#define WEIR_EXPLAIN_H

#include "parsed.h"

/* Off in every gate that is attached: the verifier then removes this code. */
const volatile bool explaining;

struct weir_explanation explanation;

static __always_inline void explain(const struct flow *flow,
				    enum weir_parse parse, __u32 reason)
{
	__builtin_memset(&explanation.parsed, 0, sizeof(explanation.parsed));
	parsed_from(flow, parse, &explanation.parsed);
	explanation.reason = reason;
}

#endif /* WEIR_EXPLAIN_H */
