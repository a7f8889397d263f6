// SPDX-License-Identifier: GPL-2.0
/* Which memory limits apply to the reading process, also above what its cgroup namespace and its mounts show?
 *
 * A task iterator that reports on the thread that reads it. Nothing is locked, nothing is flushed.
 */
#include "kernel.bpf.h"

#define MAX_DEPTH 16

/* Read by own_memory.rs, one after another from the iterator, from the own group up. */
struct own_memory_group {
	__u64 limit_pages;
	__u64 high_pages;
	__u64 used_pages;
	__u32 level;	 /* 0: the root */
	__u32 own_level; /* of the own group: on version 2 it may have no such controller, and the first group above that has one is reported */
	char name[128];
};

/* Makes the type known to user space. */
struct own_memory_group own_memory_group_type;

static __u32 own_level(struct task_struct *t, struct cgroup *cg)
{
	struct cgroup *unified = BPF_CORE_READ(t, cgroups, dfl_cgrp);

	if (unified && BPF_CORE_READ(unified, root) == BPF_CORE_READ(cg, root))
		cg = unified;
	return BPF_CORE_READ(cg, level);
}

SEC("iter/task")
int groups(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct cgroup_subsys_state *css;
	struct own_memory_group g = {};
	int i;

	if (!t || t->pid != (int)bpf_get_current_pid_tgid())
		return 0;
	css = task_css(t, memory_cgrp_id);
	for (i = 0; i < MAX_DEPTH && css; i++) {
		struct mem_cgroup *m = (void *)css; /* css is its first member */
		struct cgroup *cg = BPF_CORE_READ(css, cgroup);

		if (!cg)
			break;
		if (!i)
			g.own_level = own_level(t, cg);
		g.limit_pages = BPF_CORE_READ(m, memory.max);
		g.high_pages = BPF_CORE_READ(m, memory.high);
		g.used_pages = BPF_CORE_READ(m, memory.usage.counter);
		g.level = BPF_CORE_READ(cg, level);
		bpf_probe_read_kernel_str(g.name, sizeof(g.name), BPF_CORE_READ(cg, kn, name));
		bpf_seq_write(ctx->meta->seq, &g, sizeof(g));
		css = BPF_CORE_READ(css, parent);
	}
	return 0;
}
