// SPDX-License-Identifier: GPL-2.0
/* How many cgroups and namespaces are made, by which process tree? Calls that need the end of a system call (unshare, setns, mount, umount)
 * are counted by the probe that sees each end (failed.bpf.c).
 */
#include "kernel.bpf.h"

/* Our own process. */
__u32 own_tgid;
/* When the window begins. */
__u64 began;

#include "churn.bpf.h"

/* include/uapi/linux/sched.h: all CLONE_NEW*. */
#define ANY_NAMESPACE 0x7e020080

/* The root's own counts are read: cgroup_mutex is held by who is here, and taken by nobody for us. */
static __noinline int note_cgroups(struct cgroup *group)
{
	struct cgroup_root *root = BPF_CORE_READ(group, root);

	note_population(CGROUP_MADE, (__u64)root,
			BPF_CORE_READ(root, cgrp.nr_descendants) + BPF_CORE_READ(root, cgrp.nr_dying_descendants));
	return 0;
}

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(made, struct cgroup *group)
{
	note_cgroups(group);
	return count_churn(CGROUP_MADE);
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(removed, struct cgroup *group)
{
	note_cgroups(group);
	return count_churn(CGROUP_REMOVED);
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(joined, struct cgroup *group)
{
	return count_churn(CGROUP_JOINED);
}

SEC("tp_btf/task_newtask")
int BPF_PROG(cloned, struct task_struct *t, unsigned long flags)
{
	return flags & ANY_NAMESPACE ? count_namespaces(flags) : 0;
}
