/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The irq object's notes of each CPU's softirqs. The napi object reads there to which run of the receive softirq a poll belongs: user space
 * makes it reuse the map before it loads it.
 */
#pragma once

#include "kernel.bpf.h"

/* There are ten. A power of two: every verifier accepts a mask as a bound of a number, but not a comparison. */
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
