// SPDX-License-Identifier: GPL-2.0
/* Which tasks wait in D state now, where in the kernel, for which lock, and which task holds it?
 *
 * One walk over all tasks is one sample of each that waits; user space walks a few times a second. The walk takes no lock of the host (RCU
 * only), and costs nothing between two walks. Waits that began before we looked, and never end, are seen like any other.
 *
 * Not seen: idle kernel threads (TASK_NOLOAD), and waits for a spinlock that sleeps (PREEMPT_RT): they have a state of their own.
 */
#include "lock_word.bpf.h"

#define FRAMES 32

/* Read by blocked.rs, one after another from the iterator. */
struct blocked_task {
	__u64 lock;     /* 0: none that is known */
	__u64 work;     /* function of the work item that it runs; 0: none */
	__u64 switches; /* the same number: the same wait */
	__u32 pid;
	__u32 tgid;
	__u32 state; /* enum sched_state */
	__u32 kind;  /* enum lock_kind */
	__u32 write;
	__u32 owner; /* pid in the lock's word; 0: none, or not readable */
	__u32 owner_tgid;
	__u32 owner_state; /* enum sched_state */
	__u32 reader_owned;
	__s32 depth; /* bytes of `frames` */
	char comm[16];
	char owner_comm[16];
	__u64 frames[FRAMES];
};

/* Too large for the stack of a BPF program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct blocked_task);
} waiter SEC(".maps");

/* Of any task, also of one that is known by its address alone. */
static __always_inline __u32 state_now(struct task_struct *t)
{
	struct task_struct___before_5_14 *old = (void *)t;
	__u32 state;

	if (bpf_core_field_exists(t->__state))
		state = BPF_CORE_READ(t, __state);
	else
		state = BPF_CORE_READ(old, state);
	if (state & TASK_DEAD)
		return NONE;
	if (BPF_CORE_READ(t, on_cpu))
		return RUNNING; /* it may be about to sleep */
	if (state == TASK_RUNNING)
		return READY;
	if (!(state & TASK_UNINTERRUPTIBLE) || (state & TASK_NOLOAD))
		return ASLEEP;
	return BPF_CORE_READ_BITFIELD_PROBED(t, in_iowait) ? IO : BLOCKED;
}

/* The lock by the event at the begin of its wait, else as the kernel notes it for its hung task detector. */
static __always_inline void note_lock(struct blocked_task *out, struct task_struct *t)
{
	struct lock_wait *w = lock_wait_at(place_by_pid(t->pid));
	struct blocked b = {};

	if (w && w->lock && w->pid == (__u32)t->pid) {
		b.lock = w->lock;
		b.kind = w->kind;
		b.write = w->write;
	} else {
		blocked_at(t, &b);
	}
	out->lock = b.lock;
	out->kind = b.lock ? b.kind : LOCK_UNKNOWN;
	out->write = b.lock ? b.write : 0;
}

static __always_inline void note_owner(struct blocked_task *out)
{
	struct lock_word word = {};
	struct task_struct *owner;

	if (out->lock)
		read_lock_word(out->lock, out->kind, &word);
	owner = word.pid ? word.task : 0;
	out->owner = word.pid;
	out->reader_owned = word.reader_owned;
	out->owner_tgid = owner ? BPF_CORE_READ(owner, tgid) : 0;
	out->owner_state = owner ? state_now(owner) : NONE;
	if (!owner || bpf_probe_read_kernel(out->owner_comm, sizeof(out->owner_comm), &owner->comm))
		out->owner_comm[0] = 0;
}

SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct blocked_task *out;
	__u32 zero = 0;

	if (!t || !(task_state(t) & TASK_UNINTERRUPTIBLE))
		return 0;
	out = bpf_map_lookup_elem(&waiter, &zero);
	if (!out)
		return 0;
	out->switches = t->nvcsw + t->nivcsw;
	out->state = state_now(t);
	if (out->state != IO && out->state != BLOCKED)
		return 0;
	out->pid = t->pid;
	out->tgid = t->tgid;
	out->work = work_of(t);
	bpf_probe_read_kernel(out->comm, sizeof(out->comm), t->comm);
	note_lock(out, t);
	note_owner(out);
	out->depth = bpf_get_task_stack(t, out->frames, sizeof(out->frames), 0);
	/* A task that left its wait meanwhile: the lock may be gone, and the stack another one's. */
	if (state_now(t) != out->state || t->nvcsw + t->nivcsw != out->switches)
		return 0;
	bpf_seq_write(ctx->meta->seq, out, sizeof(*out)); /* if it does not fit the kernel asks again for this task */
	return 0;
}
