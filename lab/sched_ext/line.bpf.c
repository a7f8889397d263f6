// SPDX-License-Identifier: GPL-2.0
/* A scheduler in which all ready tasks stand in one line, whatever their weights and groups: the first goes on first.
 *
 * Linux 6.12 and later, with CONFIG_SCHED_CLASS_EXT. Loaded with `bpftool struct_ops register`; it stays until the guest
 * is off, or until the kernel finds a task that had no CPU for 30 s.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

typedef __u64 u64;

/* A full definition: libbpf 1.1 takes a mere declaration for another type than the kernel's. */
struct task_struct {
	int pid;
};

/* include/linux/sched/ext.h, 6.18 */
#define SCX_DSQ_GLOBAL ((1ULL << 63) | 1)
#define SLICE_NS 20000000ULL /* SCX_SLICE_DFL */

/* Only the members in use: libbpf finds members by name, the others keep the kernel's defaults. */
struct sched_ext_ops {
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	char name[128];
};

void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;

/* The kernel takes tasks from the global queue itself when a CPU has nothing else, and respects affinity masks there. */
SEC("struct_ops/line_enqueue")
void BPF_PROG(line_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SLICE_NS, enq_flags);
}

SEC(".struct_ops")
struct sched_ext_ops line = {
	.enqueue = (void *)line_enqueue,
	.name = "line",
};

char LICENSE[] SEC("license") = "GPL";
