/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the irq object notes of each CPU's softirqs. The napi object reads there which run of the receive softirq a poll is of:
 * user space has it reuse the map before it loads it.
 */
#pragma once

#include "kernel.bpf.h"

/* There are ten. A power of two: what masks a number is a bound that every verifier follows, a comparison is not. */
#define VECTORS 16
/* include/linux/interrupt.h: the order has not changed since v2.6.31. */
#define NET_RX 3

struct irq_soft {
	__u64 entered[VECTORS];
	__u64 ns[VECTORS];
	__u64 count[VECTORS];
	__u64 hard_entered;
	__u64 net_rx_tick; /* jiffies when the last run of NET_RX began */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct irq_soft);
} soft SEC(".maps");
