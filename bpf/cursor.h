/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reading a packet from front to back. A cursor never moves past the end: a
 * read that does not fit yields NULL and leaves the cursor where it was.
 */
#ifndef WEIR_CURSOR_H
#define WEIR_CURSOR_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

struct cursor {
	void *pos;
	void *end;
};

static __always_inline struct cursor cursor_over(void *data, void *data_end)
{
	return (struct cursor){.pos = data, .end = data_end};
}

/* Over the packet of a program's context. */
#define cursor_of(ctx) \
	cursor_over((void *)(long)(ctx)->data, (void *)(long)(ctx)->data_end)

/* The next len bytes (a compile-time constant), or NULL. */
static __always_inline void *cursor_take(struct cursor *cursor, __u32 len)
{
	void *taken = cursor->pos;

	if (taken + len > cursor->end)
		return NULL;
	cursor->pos = taken + len;
	return taken;
}

/*
 * Steps over len bytes. The mask, a compile-time constant that no valid length
 * exceeds, is what bounds the step for the verifier.
 */
static __always_inline bool cursor_skip(struct cursor *cursor, __u32 len,
					__u32 mask)
{
	void *next;

	len &= mask;
	barrier_var(len);
	next = cursor->pos + (len & mask);
	if (next > cursor->end)
		return false;
	cursor->pos = next;
	return true;
}

#endif /* WEIR_CURSOR_H */
