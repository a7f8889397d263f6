// SPDX-License-Identifier: GPL-2.0
/* Which number does a task have in the pid namespace whose /proc we read?
 *
 * BPF reports tasks by their numbers in the initial namespace. A task has one number in each namespace where it can be seen, for life. The
 * number is noted when the task is born, and a walk notes those of tasks that are there. A task iterator meets only tasks that can be seen
 * in the namespace of the process that opens it (kernel/bpf/task_iter.c).
 *
 * Events are reported by number, without the time: a number that two tasks had in the window, of which not both are known by the same
 * number in ours, belongs to no task.
 */
#include "kernel.bpf.h"

/* The task cannot be seen in our namespace: no task has this number. */
#define NOT_OURS 0
/* More than one task had the number. Above all numbers that Linux gives out. */
#define REUSED (~0U)

/* When there are more, the oldest go. Each walk notes the living tasks again. */
#define MAX_NUMBERS 65536

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_NUMBERS);
	__type(key, __u32);   /* in the initial namespace */
	__type(value, __u32); /* in ours */
} numbers SEC(".maps");

/* So many levels is the namespace of /proc above ours. Set by pidns.rs. */
const volatile __u32 above = 0;
/* That namespace: struct pid_namespace, and how deep it is. */
__u64 ours;
__u32 level;
/* Our process, in the initial namespace. */
__u32 own_tgid;
/* Tasks born since then. */
__u64 births;

static __always_inline void read_upid(struct upid *number, struct pid *pid, __u32 at)
{
	void *first = (void *)pid + bpf_core_field_offset(struct pid, numbers);

	bpf_core_read(number, sizeof(*number), first + at * bpf_core_type_size(struct upid));
}

/* Our process reads the iterator. */
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

/* In copy_process(), without locks: the task has its numbers, and has not run. */
SEC("tp_btf/task_newtask")
int BPF_PROG(made, struct task_struct *t)
{
	if (!ours)
		return 0;
	__sync_fetch_and_add(&births, 1);
	note(t);
	return 0;
}
