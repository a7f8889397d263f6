/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What a process's time had gone to when it executed its program, and when it began to end: the first is set-up, the rest after the second
 * is teardown. Of an ended process both are reported with its sums.
 */
#pragma once

#include "shared.bpf.h"

/* Sums by state; the place of NONE holds when that was (CLOCK_MONOTONIC; 0: it was not seen). */
struct life_marks {
	__u64 task;
	__u64 executed[STATES];
	__u64 ending[STATES];
};

/* By process. User space makes it larger where there are many CPUs. A process that executed long ago makes room: then its phases are not
 * known.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, struct life_marks);
} life_marks SEC(".maps");

static __always_inline struct life_marks *marks_of(struct task_struct *t)
{
	struct life_marks none = { .task = (__u64)t }, *m;
	__u32 pid = t->pid;

	m = bpf_map_lookup_elem(&life_marks, &pid);
	if (m && m->task == (__u64)t)
		return m;
	if (bpf_map_update_elem(&life_marks, &pid, &none, BPF_ANY))
		return 0;
	return bpf_map_lookup_elem(&life_marks, &pid);
}

/* `at`: the place for the sums. `t` runs: its slot is written by no other CPU but by a waker that finds it awake. */
static __always_inline void mark(__u64 *at, struct sched_slot *s, __u64 now, __s64 shift)
{
	at[NONE] = now + shift;
	for (__u32 i = RUNNING; i < STATES; i++)
		at[i] = s->sum[i].ns;
	if (s->state == RUNNING)
		at[RUNNING] += elapsed(s->since, now);
}
