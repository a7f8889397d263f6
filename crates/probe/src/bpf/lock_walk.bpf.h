/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which tasks wait for a lock now: one walk over all tasks. Waits that began before we attached are known where the kernel notes them for
 * its own hung task detector.
 */
#pragma once

/* From the walk: a task that waits for a lock now. */
struct locks_open {
	struct lock_wait wait;
	__u32 tgid;
	__u32 owner_tgid;
	__s32 depth;
	__u32 zero;
	char comm[16];
	char owner_comm[16];
	__u64 frames[FRAMES];
};

/* For the walk; and the skeleton knows the types of map values. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct locks_open);
} open SEC(".maps");

/* Stacks of waiters taken by the walk, counted down by it. */
__u64 stacks_left;

/* At the start, after the tracepoints are attached: waits that have begun before. */
SEC("iter/task")
int seed(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct lock_word word;
	struct blocked b, still;
	struct lock_wait *w;
	__u32 place;
	__u64 now;

	if (!t || !blocked_at(t, &b))
		return 0;
	place = place_by_pid(t->pid);
	w = lock_wait_at(place);
	if (!w || w->lock)
		return 0;
	now = bpf_ktime_get_ns();
	read_lock_word(b.lock, b.kind, &word);
	open_wait(w, place, t->pid, b.lock, b.kind, b.write, now, &word);
	/* The kernel clears its note before it fires the end: if the note is still there, the end is still to come. */
	if ((!blocked_at(t, &still) || still.lock != b.lock) && w->since == now)
		w->lock = 0;
	return 0;
}

/* Report the tasks that wait now. */
SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task, *owner;
	struct locks_open *out;
	struct lock_word word;
	struct lock_wait *w;
	struct blocked b;
	__u32 zero = 0;

	if (!t)
		return 0;
	w = lock_wait_at(place_by_pid(t->pid));
	out = bpf_map_lookup_elem(&open, &zero);
	if (!out)
		return 0;
	if (w && w->lock && w->pid == (__u32)t->pid) {
		out->wait = *w;
	} else if (blocked_at(t, &b)) {
		__builtin_memset(&out->wait, 0, sizeof(out->wait));
		out->wait.lock = b.lock;
		out->wait.kind = b.kind;
		out->wait.write = b.write;
		out->wait.pid = t->pid;
	} else {
		return 0;
	}
	read_lock_word(out->wait.lock, out->wait.kind, &word);
	out->wait.owner_again = word.pid;
	out->wait.reader_owned = word.reader_owned;
	out->tgid = t->tgid;
	bpf_probe_read_kernel(out->comm, sizeof(out->comm), t->comm);
	owner = word.pid ? word.task : 0;
	out->owner_tgid = owner ? BPF_CORE_READ(owner, tgid) : 0;
	if (!owner || bpf_probe_read_kernel(out->owner_comm, sizeof(out->owner_comm), &owner->comm))
		out->owner_comm[0] = 0;
	out->depth = 0;
	if (stacks_left) {
		stacks_left--;
		out->depth = bpf_get_task_stack(t, out->frames, sizeof(out->frames), 0);
	}
	bpf_seq_write(ctx->meta->seq, out, sizeof(*out)); /* if it does not fit the kernel asks again for this task */
	return 0;
}
