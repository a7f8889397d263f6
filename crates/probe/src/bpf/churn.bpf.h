/* SPDX-License-Identifier: GPL-2.0 */
/* What is made and taken down again with each isolated job: cgroups, namespaces, mounts. Counted by the process at the top of those that do
 * it: the first one above them that is older than the window.
 */
#pragma once

#include "kernel.bpf.h"

#define MAX_CHURNS 1024
/* Processes between a job and the one that starts jobs: a shell, a wrapper, a sandbox. */
#define MOST_ABOVE 16

/* As whyslow_model::churn::What. */
enum churn_what {
	CGROUP_MADE,
	CGROUP_REMOVED,
	CGROUP_JOINED,
	MOUNTED,
	UNMOUNTED,
	NAMESPACE_JOINED,
	MOUNT_NAMESPACE,
	UTS_NAMESPACE,
	IPC_NAMESPACE,
	USER_NAMESPACE,
	PID_NAMESPACE,
	NET_NAMESPACE,
	CGROUP_NAMESPACE,
	TIME_NAMESPACE,
	CHURNS
};

struct churn_key {
	__u32 tgid;
	__u32 what;
};

struct churn_count {
	__u64 count;
	__u64 begun_ns; /* the process began */
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_CHURNS);
	__type(key, struct churn_key);
	__type(value, struct churn_count);
} churns SEC(".maps");

/* Events for which there was no room. */
__u64 churn_lost;

/* How many there are of what an event makes or removes (enum churn_what of what makes it), in one place: a hierarchy of cgroups, a mount
 * namespace, a user. Of several places the one with most.
 */
struct population {
	__u64 of; /* the place */
	__u64 most;
	__u64 count; /* the largest number that an event found since user space looked here; 0: no event */
};

struct population populations[CHURNS];

static __always_inline void note_population(__u32 what, __u64 of, __u64 count)
{
	struct population *p;

	if (what >= CHURNS)
		return;
	p = &populations[what];
	if (p->of != of) {
		if (count <= p->most)
			return;
		p->of = of;
		p->most = 0;
		p->count = 0;
	}
	if (p->most < count)
		p->most = count;
	if (p->count < count)
		p->count = count;
}

static __always_inline void note_mounts(struct task_struct *t)
{
	struct mnt_namespace *ns = BPF_CORE_READ(t, nsproxy, mnt_ns);

	note_population(MOUNTED, (__u64)ns, mounts_of(ns));
}

static __always_inline void note_namespaces(struct task_struct *t, __u32 what, __u32 type)
{
	struct ucounts *user = root_user(t);

	if (user)
		note_population(what, (__u64)user, namespaces_of(user, type));
}

static __always_inline struct task_struct *at_the_top(struct task_struct *t)
{
	struct task_struct *at = BPF_CORE_READ(t, group_leader), *above;

	for (int i = 0; i < MOST_ABOVE; i++) {
		if (BPF_CORE_READ(at, start_time) < began)
			break; /* it is older than the window */
		above = BPF_CORE_READ(at, real_parent, group_leader);
		if (!above || above == at || BPF_CORE_READ(above, tgid) == own_tgid)
			break; /* whyslow started it */
		at = above;
	}
	return at;
}

static __noinline int count_churn(__u32 what)
{
	static const struct churn_count none;
	struct task_struct *top = at_the_top(current_task());
	struct churn_key key = { .what = what, .tgid = BPF_CORE_READ(top, tgid) };
	struct churn_count *c = bpf_map_lookup_elem(&churns, &key);

	if (!c) {
		bpf_map_update_elem(&churns, &key, &none, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&churns, &key);
		if (!c) {
			__sync_fetch_and_add(&churn_lost, 1);
			return 0;
		}
		c->begun_ns = BPF_CORE_READ(top, start_time);
		BPF_CORE_READ_INTO(&c->comm, top, comm);
	}
	__sync_fetch_and_add(&c->count, 1);
	return 0;
}

/* include/uapi/linux/sched.h: CLONE_NEW*. */
static __always_inline __u64 namespace_flag(__u32 what)
{
	switch (what) {
	case MOUNT_NAMESPACE:
		return 0x00020000;
	case UTS_NAMESPACE:
		return 0x04000000;
	case IPC_NAMESPACE:
		return 0x08000000;
	case USER_NAMESPACE:
		return 0x10000000;
	case PID_NAMESPACE:
		return 0x20000000;
	case NET_NAMESPACE:
		return 0x40000000;
	case CGROUP_NAMESPACE:
		return 0x02000000;
	case TIME_NAMESPACE:
		return 0x00000080;
	}
	return 0;
}

/* enum ucount_type (include/linux/user_namespace.h). */
static __always_inline __u32 ucount_type(__u32 what)
{
	switch (what) {
	case PID_NAMESPACE:
		return 1;
	case UTS_NAMESPACE:
		return 2;
	case IPC_NAMESPACE:
		return 3;
	case NET_NAMESPACE:
		return 4;
	case MOUNT_NAMESPACE:
		return 5;
	case CGROUP_NAMESPACE:
		return 6;
	case TIME_NAMESPACE:
		return 7;
	}
	return 0; /* USER_NAMESPACE */
}

static __noinline int count_namespaces(__u64 flags)
{
	struct task_struct *t = current_task();

	for (__u32 what = MOUNT_NAMESPACE; what < CHURNS; what++)
		if (flags & namespace_flag(what)) {
			count_churn(what);
			note_namespaces(t, what, ucount_type(what));
		}
	return 0;
}
