// SPDX-License-Identifier: GPL-2.0
/* By which number is a task known in the pid namespace whose /proc we read?
 *
 * All that BPF tells of tasks is in numbers of the initial namespace. A task has
 * one in each namespace that it can be seen in, for life: noted when it is born,
 * and for those that are there by a walk. A task iterator meets only those that
 * can be seen in the namespace of who opens it (kernel/bpf/task_iter.c).
 *
 * What is told of a number is reported without the time: one that was two tasks' in
 * the window, of which not both are known by the same number, is nobody's.
 */
#include "kernel.bpf.h"

/* It cannot be seen in ours: no task has this number. */
#define NOT_OURS 0
/* It was more than one task's. Above all numbers that Linux gives away. */
#define REUSED (~0U)

/* When there are more the eldest go. Those that live are noted again by each walk. */
#define MAX_NUMBERS 65536

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_NUMBERS);
	__type(key, __u32);   /* in the initial namespace */
	__type(value, __u32); /* in ours */
} numbers SEC(".maps");

/* By so many levels /proc's namespace is above ours. Set by pidns.rs. */
const volatile __u32 above = 0;
/* That namespace: struct pid_namespace, and how deep it is. */
__u64 ours;
__u32 level;
/* Our process, in the initial namespace. */
__u32 own_tgid;
/* Tasks born since. */
__u64 births;

static __always_inline void read_upid(struct upid *number, struct pid *pid, __u32 at)
{
	void *first = (void *)pid + bpf_core_field_offset(struct pid, numbers);

	bpf_core_read(number, sizeof(*number), first + at * bpf_core_type_size(struct upid));
}

/* We are the one who reads the iterator. */
static __always_inline void learn(void)
{
	struct task_struct *current = (void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(current, thread_pid);
	__u32 depth = BPF_CORE_READ(pid, level);
	struct upid number = {};

	level = depth - (above < depth ? above : depth);
	read_upid(&number, pid, level);
	own_tgid = bpf_get_current_pid_tgid() >> 32;
	ours = (__u64)number.ns;
}

static __always_inline void note(struct task_struct *t)
{
	struct pid *pid = BPF_CORE_READ(t, thread_pid);
	__u32 global = t->pid, shown = NOT_OURS, *before;
	struct upid number = {};

	if (!pid)
		return;
	if (BPF_CORE_READ(pid, level) >= level) {
		read_upid(&number, pid, level);
		if ((__u64)number.ns == ours)
			shown = number.nr;
	}
	before = bpf_map_lookup_elem(&numbers, &global);
	if (before && *before != shown)
		shown = REUSED;
	bpf_map_update_elem(&numbers, &global, &shown, BPF_ANY);
}

SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;

	if (!t)
		return 0;
	if (!ours)
		learn();
	if (ours)
		note(t);
	return 0;
}

/* In copy_process(), without locks: it has its numbers, and has not run. */
SEC("tp_btf/task_newtask")
int BPF_PROG(made, struct task_struct *t)
{
	if (!ours)
		return 0;
	__sync_fetch_and_add(&births, 1);
	note(t);
	return 0;
}
