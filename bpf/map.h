/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef WEIR_MAP_H
#define WEIR_MAP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAP(name, map_type, flags, places, key_type, value_type) \
	struct {                                                 \
		__uint(type, map_type);                          \
		__uint(map_flags, flags);                        \
		__uint(max_entries, places);                     \
		__type(key, key_type);                           \
		__type(value, value_type);                       \
	} name SEC(".maps")

/* What there is one of, on this CPU or at all. */
#define MAP_OF_ONE(function, name, map_type, flags, value_type) \
	MAP(name, map_type, flags, 1, __u32, value_type);       \
                                                                \
	static __always_inline value_type *function(void)       \
	{                                                       \
		__u32 zero = 0;                                 \
                                                                \
		return bpf_map_lookup_elem(&name, &zero);       \
	}                                                       \
	_Static_assert(1, "")

#endif /* WEIR_MAP_H */
