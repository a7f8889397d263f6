/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The words that a process was started with, or calls itself by: the words of its argument area.
 *
 * /proc/PID/cmdline takes the process's mmap_lock (fs/proc/base.c, get_mm_cmdline -> access_remote_vm), for which the reader may have to
 * wait. A task reads its own memory without it: when it has executed, and when it leaves a CPU.
 */
#pragma once

#include "rows.bpf.h"

/* A process's words are read again when they are this old: servers overwrite them with what they do now. */
#define TITLE_AGE (250 * 1000000ULL)
/* Longer titles are cut. */
#define TITLE 255

/* By process. */
struct title {
	__u64 start; /* the kernel's start time of its first thread: pids are reused */
	__u64 at;    /* when it was read, by the run queue's clock */
	__u32 area;  /* bytes of the argument area; behind it lies the environment, or its place */
	__u32 len;
	__u32 same; /* so many of its first bytes were the same at all reads */
	__u32 unused;
	char text[256];
};

/* User space makes it larger where there are many CPUs, each of which keeps a share of its free places. The process whose words were read
 * or looked for longest ago makes room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct title);
} titles SEC(".maps");

/* Words that are read again: the hook that reads them is not preempted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct title);
} title_again SEC(".maps");

/* Never written: the initial value of a new row of `titles`. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct title);
} no_title SEC(".maps");

/* Read straight into the process's row, not through a buffer of the CPU: the hook of exec may be preempted by that of another task. */
static __always_inline struct title *title_of(__u32 tgid)
{
	struct title *known = bpf_map_lookup_elem(&titles, &tgid), *none;
	__u32 zero = 0;

	if (known)
		return known;
	none = bpf_map_lookup_elem(&no_title, &zero);
	if (!none || bpf_map_update_elem(&titles, &tgid, none, BPF_ANY))
		return 0;
	return bpf_map_lookup_elem(&titles, &tgid);
}

/* The strings of the environment lie behind the arguments (fs/binfmt_elf.c, create_elf_tables), the last with its zero. A process whose
 * title needs more room than the arguments has moved the environment, and clears the rest of its place (setproctitle(3), nginx, PostgreSQL,
 * sshd): the end is then zeroes, which the end of an environment is not.
 */
static __always_inline int has_moved(struct mm_struct *mm, __u64 to)
{
	__u64 begin = BPF_CORE_READ(mm, env_start), end = BPF_CORE_READ(mm, env_end), last = ~0ULL;

	/* As get_mm_cmdline does it. */
	if (begin != to || end < begin + 2 * sizeof(last))
		return 0;
	return !bpf_probe_read_user(&last, sizeof(last), (void *)(end - sizeof(last))) && !last;
}

/* As fs/proc/base.c does it (get_mm_cmdline, get_mm_proctitle): an area whose last byte is no zero was overwritten, and is one text, which
 * may go on in the environment's place. An environment that is still there is not read.
 */
static __always_inline void read_title(struct title *title, struct mm_struct *mm)
{
	__u64 from = BPF_CORE_READ(mm, arg_start), to = BPF_CORE_READ(mm, arg_end), bytes = to - from;
	char last = 0;
	long got;

	if (from >= to || bpf_probe_read_user(&last, 1, (void *)(to - 1)))
		return;
	title->area = bytes > ~0U ? ~0U : bytes;
	if (bytes > TITLE || (last && has_moved(mm, to)))
		bytes = TITLE;
	asm("" : "+r"(bytes)); /* the compiler knows its bound, the verifier does not */
	bytes &= TITLE;
	if (last) {
		got = bpf_probe_read_user_str(title->text, bytes + 1, (void *)from);
		if (got > 0)
			title->len = got - 1; /* without its zero */
	} else if (!bpf_probe_read_user(title->text, bytes, (void *)from)) {
		title->len = bytes;
	}
}

/* A server's words say what it does now, and soon it does something else: the first bytes that are the same at all reads identify it. Words
 * whose first word differs belong to another process, or to a program that has begun to call itself something. A global function, which the
 * verifier checks once: on each path to it the loop took five times as many steps as all the rest.
 */
__noinline int compare(__u32 tgid)
{
	__u32 i, has_word = 0, zero = 0;
	struct title *title = bpf_map_lookup_elem(&titles, &tgid), *again = bpf_map_lookup_elem(&title_again, &zero);

	if (!title || !again)
		return 0;
	for (i = 0; i < TITLE; i++) {
		if (i >= title->len || i >= again->len || title->text[i] != again->text[i])
			break;
		has_word |= title->text[i] == ' ';
	}
	if (!has_word && (i < title->len || i < again->len))
		title->same = ~0U;
	else if (i < title->same)
		title->same = i;
	return 0;
}

/* The current task is `t`. One thread of a process reads for all, unless it has just executed. Some of its pages may be in swap: then the
 * words that were read before stay.
 */
static __noinline int take_title(struct task_struct *t, __u64 now, __u32 executed)
{
	struct mm_struct *mm = BPF_CORE_READ(t, mm);
	__u64 start = BPF_CORE_READ(t, group_leader, start_time);
	__u32 tgid = BPF_CORE_READ(t, tgid), zero = 0;
	struct title *title, *again;

	if (!mm || BPF_CORE_READ(t, flags) & PF_KTHREAD)
		return 0;
	title = title_of(tgid);
	if (!title)
		return 0;
	if (title->start != start || executed) {
		title->len = 0;
		title->same = ~0U;
		title->start = start;
	} else if (elapsed(title->at, now) < TITLE_AGE) {
		return 0;
	}
	title->at = now;
	if (!title->len) {
		read_title(title, mm);
		return 0;
	}
	again = bpf_map_lookup_elem(&title_again, &zero);
	if (!again)
		return 0;
	again->len = 0;
	read_title(again, mm);
	if (!again->len)
		return 0;
	compare(tgid);
	title->len = again->len;
	title->area = again->area;
	bpf_probe_read_kernel(title->text, sizeof(title->text), again->text);
	return 0;
}

/* The task's new memory is there, with its arguments (fs/exec.c, exec_binprm). */
static __noinline int title_executed(struct task_struct *t)
{
	__u64 now = bpf_ktime_get_ns() - skew;
	struct sched_slot *s = slot_of(t);

	if (s)
		s->titled = now;
	return take_title(t, now, true);
}
