// SPDX-License-Identifier: GPL-2.0
/* How long do softirqs and interrupt handlers hold each CPU?
 *
 * Per CPU, so each value has one writer; handlers nest (a hardirq in a
 * softirq), so a softirq's time contains that of the hardirqs inside it.
 */
#include "soft.bpf.h"

#define MAX_IRQS 512

struct irq_hard {
	__u64 ns;
	__u64 count;
	char name[32];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_IRQS);
	__type(key, __u32);
	__type(value, struct irq_hard);
} hard SEC(".maps");

/* Handlers for which there was no room. */
__u64 lost;

static __always_inline struct irq_soft *here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&soft, &zero);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_began, unsigned int vector)
{
	struct irq_soft *cpu = here();

	if (!cpu)
		return 0;
	cpu->entered[vector & (VECTORS - 1)] = bpf_ktime_get_ns();
	if (vector == NET_RX)
		cpu->net_rx_tick = bpf_jiffies64();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ended, unsigned int vector)
{
	struct irq_soft *cpu = here();

	vector &= VECTORS - 1;
	if (!cpu || !cpu->entered[vector])
		return 0;
	cpu->ns[vector] += elapsed(cpu->entered[vector], bpf_ktime_get_ns());
	cpu->count[vector]++;
	cpu->entered[vector] = 0;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(handler_began, int irq, struct irqaction *action)
{
	struct irq_soft *cpu = here();

	if (cpu)
		cpu->hard_entered = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(handler_ended, int irq, struct irqaction *action)
{
	static const struct irq_hard none;
	struct irq_soft *cpu = here();
	struct irq_hard *line;
	__u32 key = irq;

	if (!cpu || !cpu->hard_entered)
		return 0;
	line = bpf_map_lookup_elem(&hard, &key);
	if (!line) {
		bpf_map_update_elem(&hard, &key, &none, BPF_NOEXIST);
		line = bpf_map_lookup_elem(&hard, &key);
	}
	if (!line) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	if (!line->count)
		bpf_probe_read_kernel_str(line->name, sizeof(line->name), action->name);
	line->ns += elapsed(cpu->hard_entered, bpf_ktime_get_ns());
	line->count++;
	cpu->hard_entered = 0;
	return 0;
}
