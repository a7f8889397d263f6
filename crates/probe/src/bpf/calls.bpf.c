// SPDX-License-Identifier: GPL-2.0
/* Time of system calls, by file, of the tasks that a trace follows.
 *
 * This file keeps the cost of a call low. Each task remembers where its last few (call, file) are summed, so a repeated call touches arrays
 * only. Times off the CPU come from the scheduler's slot, which is read only if it has changed. A call of a task that is not followed costs
 * one array lookup at each end.
 *
 * Both hooks run in the task that they are about, with preemption off: a task's notes have one writer.
 */
#include "calls.bpf.h"
#include "call_args.bpf.h"
#include "call_places.bpf.h"

#define MSEC 1000000ULL
/* Stacks of waits in calls: at most so many a slice, on each CPU. */
#define SLICE (50 * MSEC)
#define STACKS_PER_SLICE 10
/* Bit in the call's number: a call by the 32-bit table. */
#define COMPAT (1U << 31)

static __noinline void begin_life(struct call_task *ct, struct task_struct *t, __u32 pid)
{
	struct call_own *own = own_numbers_here();

	if (!own)
		return;
	__builtin_memset(ct, 0, sizeof(*ct));
	ct->pid = pid;
	ct->life = 1 + new_number(&own->lives);
	ct->task = (__u64)t;
}

/* `at`: the place of the task's notes, here and in the scheduler's maps. */
static __always_inline struct call_task *task_of(struct task_struct *t, __u32 *at)
{
	__u32 pid = of_current(t, pid);
	struct call_task *ct;

	if (!is_followed(pid))
		return 0;
	*at = place_by_pid(pid);
	ct = bpf_map_lookup_elem(&call_tasks, at);
	if (ct && ct->task != (__u64)t)
		begin_life(ct, t, pid);
	return ct;
}

/* The time that the task has spent off the CPU since the last call of this function. */
static __noinline void off_cpu(struct call_task *ct, struct sched_slot *s, __u64 *split)
{
	int i;

	for (i = 0; i < SPLITS; i++) {
		__u64 now = s->sum[READY + i].ns;

		if (split)
			split[i] = elapsed(ct->off[i], now);
		ct->off[i] = now;
	}
	ct->since = s->since;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(entered, struct pt_regs *regs, long id)
{
	struct task_struct *t = current_task();
	__u32 nr = id, what, fd, at = 0;
	struct call_task *ct = task_of(t, &at);
	struct sched_slot *s;

	if (!ct || ended_at)
		return 0;
	what = call_file(nr);
	if (of_current(t, thread_info.status) & TS_COMPAT) {
		nr |= COMPAT;
		what = NO_FILE;
	}
	s = slot_at(at);
	if (s && s->since != ct->since)
		off_cpu(ct, s, 0);
	if (what & (NEVER | GOES_ON)) {
		if (what & NEVER)
			return 0;
		if (ct->entry) {
			ct->start = bpf_ktime_get_ns(); /* of the call that it resumes */
			return 0;
		}
	}
	ct->nr = nr;
	ct->after = what & (OPENS | NO_RESULT);
	switch (what & KIND) {
	case NO_FILE:
		ct->entry = by_file(ct, nr, 0, 0);
		break;
	case FD:
	case FD4:
		fd = (what & KIND) == FD ? regs->di : regs->r8;
		ct->entry = by_file(ct, nr, fd, file_at(t, fd));
		break;
	default:
		ct->entry = by_argument(ct, t, regs, what, false);
	}
	ct->start = bpf_ktime_get_ns();
	return 0;
}

static __always_inline bool may_take_stack(__u64 now)
{
	__u32 zero = 0;
	struct call_rate *rate = bpf_map_lookup_elem(&call_rates, &zero);

	if (!rate)
		return false;
	if (elapsed(rate->slice, now) > SLICE) {
		rate->slice = now;
		rate->taken = 0;
	}
	return rate->taken++ < STACKS_PER_SLICE;
}

static __always_inline void fill_slow(struct call_slow *slow, struct call_task *ct, struct task_struct *t, __u64 start,
				      __u64 ns, const __u64 *split)
{
	struct call_entry *e = bpf_map_lookup_elem(&entries, &ct->entry);
	int i;

	slow->start = start;
	slow->ns = ns;
	for (i = 0; i < SPLITS; i++)
		slow->split[i] = split[i];
	slow->pid = BPF_CORE_READ(t, pid);
	slow->tgid = BPF_CORE_READ(t, tgid);
	slow->nr = ct->nr;
	slow->file = e && ct->entry >= SPARE ? e->file : NO_NAME;
	slow->depth = 0;
	bpf_probe_read_kernel_str(slow->comm, sizeof(slow->comm), t->comm);
}

static __noinline void tell_slow(void *ctx, struct call_task *ct, __u64 ns, const __u64 *split)
{
	__u32 zero = 0, size = __builtin_offsetof(struct call_slow, frames);
	struct call_slow *slow = bpf_map_lookup_elem(&slow_scratch, &zero);

	if (!slow || (ns < slow_ns && !may_take_stack(ct->start + ns)))
		return;
	fill_slow(slow, ct, (void *)bpf_get_current_task(), ct->start, ns, split);
	slow->open = 0;
	if (user_stacks) {
		slow->depth = bpf_get_stack(ctx, slow->frames, sizeof(slow->frames), BPF_F_USER_STACK);
		size = sizeof(*slow);
	}
	if (bpf_ringbuf_output(&slow_calls, slow, size, BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

/* A number's own entry, for all tasks. */
static __noinline void sum_spare(struct call_entry *e, __u64 ns, bool failed, const __u64 *split)
{
	int i;

	__sync_fetch_and_add(&e->count, 1);
	__sync_fetch_and_add(&e->errors, failed);
	__sync_fetch_and_add(&e->total_ns, ns);
	for (i = 0; i < SPLITS; i++)
		__sync_fetch_and_add(&e->split[i], split[i]);
	if (ns > e->worst_ns)
		e->worst_ns = ns;
}

/* Restarts (512 to 516) never reach the caller: the call resumes, or fails with EINTR. */
static __always_inline bool has_failed(long ret)
{
	return ret < 0 && ret >= -4095 && !(ret <= -512 && ret >= -516);
}

/* Values that were not known when the call began: the file that it opened, and a path that could not be read then. */
static __noinline void look_again(struct call_task *ct, struct task_struct *t, struct pt_regs *regs, long ret)
{
	__u32 what = call_file(ct->nr);

	if (what & OPENS && ret >= 0)
		ct->entry = by_file(ct, ct->nr, ret, file_at(t, ret));
	else if (ct->after & AGAIN)
		ct->entry = by_argument(ct, t, regs, what, true);
}

/* The rare half of an exit: the call waited, was slow, or its sums are shared. */
static __noinline void sum_rest(void *ctx, struct call_task *ct, struct call_entry *e, __u64 ns, bool failed)
{
	__u64 split[SPLITS] = {}, waited = 0;
	struct sched_slot *s = slot_at(place_by_pid(ct->pid));
	int i;

	if (s && s->since != ct->since)
		off_cpu(ct, s, split);
	if (ct->entry < SPARE) {
		sum_spare(e, ns, failed, split);
	} else {
		for (i = 0; i < SPLITS; i++)
			e->split[i] += split[i];
	}
	for (i = 0; i < SPLITS; i++)
		waited += split[i];
	if (ns >= slow_ns || (user_stacks && waited >= MSEC))
		tell_slow(ctx, ct, ns, split);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(left, struct pt_regs *regs, long ret)
{
	struct task_struct *t = current_task();
	__u32 at = 0;
	struct call_task *ct = task_of(t, &at);
	struct call_entry *e;
	struct sched_slot *s;
	bool failed;
	__u64 ns;

	if (!ct || !ct->start || ended_at)
		return 0; /* it began before us, or in the parent of a fork, or ends after the window */
	ns = elapsed(ct->start, bpf_ktime_get_ns());
	if (ct->after)
		look_again(ct, t, regs, ret);
	e = bpf_map_lookup_elem(&entries, &ct->entry);
	if (!e)
		return 0;
	failed = has_failed(ret) && !(ct->after & NO_RESULT);
	s = slot_at(at);
	if (ct->entry < SPARE || ns >= slow_ns || (s && s->since != ct->since))
		sum_rest(ctx, ct, e, ns, failed);
	if (ct->entry >= SPARE) {
		e->count++;
		e->errors += failed;
		e->total_ns += ns;
		if (ns > e->worst_ns)
			e->worst_ns = ns;
	}
	ct->start = 0;
	return 0;
}

/* A thread that is not its process's first takes over the first thread's pid when it executes. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed, struct task_struct *t, int old_pid)
{
	__u32 old = old_pid, pid = t->pid, at = place_by_pid(old), to = place_by_pid(pid);
	struct call_task *before, *ct;

	if (old == pid || !(is_followed(old) || is_followed(pid)))
		return 0;
	before = bpf_map_lookup_elem(&call_tasks, &at);
	ct = bpf_map_lookup_elem(&call_tasks, &to);
	if (!before || !ct || before->task != (__u64)t)
		return 0;
	__builtin_memcpy(ct, before, sizeof(*ct));
	ct->pid = pid;
	before->task = 0;
	ct->since = 0; /* the scheduler's slot begins anew */
	__builtin_memset(ct->off, 0, sizeof(ct->off));
	return 0;
}

/* User space may take the entries of the task. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended, struct task_struct *t)
{
	__u32 at = place_by_pid(t->pid);
	struct call_task *ct = is_followed(t->pid) ? bpf_map_lookup_elem(&call_tasks, &at) : 0;

	if (ct && ct->task == (__u64)t) {
		ct->task = 0;
		ct->start = 0;
	}
	return 0;
}

/* At the end, when no more calls are seen to begin or end: the calls that tasks are still in. A program that had begun before may still
 * write; two reads would not agree.
 */
SEC("iter/task")
int still(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u32 zero = 0, at = t ? place_by_pid(t->pid) : 0;
	struct call_slow *slow = bpf_map_lookup_elem(&still_scratch, &zero);
	struct call_task *ct = t && is_followed(t->pid) ? bpf_map_lookup_elem(&call_tasks, &at) : 0;
	__u64 split[SPLITS] = {}, start, ns, left;
	struct sched_slot *s;
	int i;

	if (!slow || !ct || ct->task != (__u64)t)
		return 0;
	start = *(volatile __u64 *)&ct->start;
	if (!start)
		return 0;
	ns = left = elapsed(start, ended_at);
	s = slot_of(t);
	for (i = 0; s && i < SPLITS; i++) {
		split[i] = elapsed(ct->off[i], s->sum[READY + i].ns);
		split[i] = split[i] < left ? split[i] : left;
		left -= split[i];
	}
	/* The task has been in its state since the slot's time, by a clock that differs a little. */
	i = s ? s->state - READY : -1;
	if (i >= 0 && i < SPLITS) {
		__u64 lasts = elapsed(s->since, ended_at);

		split[i & 3] += lasts < left ? lasts : left;
	}
	fill_slow(slow, ct, t, start, ns, split);
	slow->open = 1;
	bpf_seq_write(ctx->meta->seq, slow, __builtin_offsetof(struct call_slow, frames));
	return 0;
}
