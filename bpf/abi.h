/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every type that crosses the boundary between the kernel half and user space.
 *
 * Rust's copies are generated from the loaded objects' BTF (libbpf-cargo), so
 * nothing here is declared a second time. Include <linux/types.h> users only:
 * fixed-width types, no pointers, no implicit padding.
 */
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

#include "abi/parsed.h"
#include "abi/interface.h"
#include "abi/channel.h"
#include "abi/account.h"
#include "abi/queue.h"
#include "abi/poll.h"
#include "abi/governor.h"
#include "abi/lazy.h"
#include "abi/process.h"
#include "abi/sample.h"
#include "abi/screen.h"
#include "abi/egress.h"
#include "abi/lab.h"

#endif /* WEIR_ABI_H */
