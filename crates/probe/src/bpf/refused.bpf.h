/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Who is refused a lock on a file, sleeps and tries again waits for who has it: a database in a file, a package manager.
 *
 * fs/locks.c tells of each attempt with its outcome, when it has let go of its own lock. Who tries without a sleep is refused
 * often: for each task the list of holders is read once in REFUSED_AGAIN.
 */
#pragma once

#include "user_lock.bpf.h"

/* Between the refusal and the sleep a task does little: it counts what it has tried, it says that it waits. */
#define REFUSED_PAUSE 10000000ULL
#define REFUSED_AGAIN 100000ULL
/* Nobody was refused since: no task need be looked up. */
#define REFUSED_LONG_AGO 10000000000ULL
/* Locks on one file that are looked at: a database locks many ranges. */
#define REFUSED_HOLDERS 16

/* include/uapi/asm-generic/fcntl.h */
#define F_WRLCK 1

/* Times are CLOCK_MONOTONIC. */
struct refusal {
	__u64 at;
	__u64 delay; /* the kernel's sum of its time in run queues then */
	__u64 ino;
	__u32 dev;
	__u32 mode;
	__u32 holder; /* the process; 0: not known */
	__u32 unused;
	char file[32];
};

/* By thread. Whose last refusal is the oldest makes room: his sleeps are his own then. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct refusal);
} refusals SEC(".maps");

__u64 last_refusal;

/* A lock that somebody has, or asks for. */
struct claim {
	__u64 owner;
	__u64 file;
	__s64 start;
	__s64 end;
	__u32 pid;
	__u32 writes;
};

static __always_inline void read_claim(struct claim *c, __u64 lock)
{
	if (bpf_core_type_exists(struct file_lock_core)) {
		struct file_lock *new = (void *)lock;

		c->owner = (__u64)BPF_CORE_READ(new, c.flc_owner);
		c->file = (__u64)BPF_CORE_READ(new, c.flc_file);
		c->start = BPF_CORE_READ(new, fl_start);
		c->end = BPF_CORE_READ(new, fl_end);
		c->pid = BPF_CORE_READ(new, c.flc_pid);
		c->writes = BPF_CORE_READ(new, c.flc_type) == F_WRLCK;
	} else {
		struct file_lock___before_6_9 *old = (void *)lock;

		c->owner = (__u64)BPF_CORE_READ(old, fl_owner);
		c->file = (__u64)BPF_CORE_READ(old, fl_file);
		c->start = BPF_CORE_READ(old, fl_start);
		c->end = BPF_CORE_READ(old, fl_end);
		c->pid = BPF_CORE_READ(old, fl_pid);
		c->writes = BPF_CORE_READ(old, fl_type) == F_WRLCK;
	}
}

/* fs/locks.c, posix_locks_conflict(), flock_locks_conflict(). */
static __always_inline bool conflicts(struct claim *wanted, struct claim *held, bool is_flock)
{
	if (!wanted->writes && !held->writes)
		return false;
	if (is_flock)
		return wanted->file != held->file;
	return wanted->owner != held->owner && wanted->end >= held->start && held->end >= wanted->start;
}

/* The process whose lock is in the way of `wanted`; 0: not known. That of a lock of an open file (OFD) is -1 there. No lock of
 * the kernel is taken: what changes under us makes no sense, or ends.
 */
static __noinline __u32 refuser(__u64 inode, struct claim *wanted, bool is_flock)
{
	struct file_lock_context *context = BPF_CORE_READ((struct inode *)inode, i_flctx);
	struct file_lock_at at;
	__u64 head, next;
	int i;

	if (!context || !wanted)
		return 0;
	file_lock_layout(&at);
	head = (__u64)context + (is_flock ? bpf_core_field_offset(context->flc_flock)
					  : bpf_core_field_offset(context->flc_posix));
	next = next_of(head);
	for (i = 0; i < REFUSED_HOLDERS && next && next != head; i++) {
		struct claim held = {};

		read_claim(&held, next - at.list);
		if (conflicts(wanted, &held, is_flock))
			return held.pid == ~0U ? 0 : held.pid;
		next = next_of(next);
	}
	return 0;
}

static __noinline int note_refused(struct inode *inode, __u64 request, bool is_flock)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	__u32 pid = (__u32)bpf_get_current_pid_tgid();
	struct refusal *known = bpf_map_lookup_elem(&refusals, &pid), new = {};
	struct claim wanted = {};
	struct file *file;

	new.at = bpf_ktime_get_ns();
	new.delay = BPF_CORE_READ(t, sched_info.run_delay);
	new.ino = BPF_CORE_READ(inode, i_ino);
	new.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	last_refusal = new.at;
	if (known && known->ino == new.ino && known->dev == new.dev && elapsed(known->at, new.at) < REFUSED_AGAIN) {
		known->at = new.at;
		known->delay = new.delay;
		return 0;
	}
	read_claim(&wanted, request);
	file = (void *)wanted.file;
	new.mode = BPF_CORE_READ(inode, i_mode);
	new.holder = refuser((__u64)inode, &wanted, is_flock);
	bpf_probe_read_kernel_str(new.file, sizeof(new.file), BPF_CORE_READ(file, f_path.dentry, d_name.name));
	bpf_map_update_elem(&refusals, &pid, &new, BPF_ANY);
	return 0;
}

static __noinline bool is_refusal_recent(__u32 pid, __u64 delay, __u64 now)
{
	struct refusal *r = bpf_map_lookup_elem(&refusals, &pid);

	return r && elapsed(r->at + elapsed(r->delay, delay), now) < REFUSED_PAUSE;
}

/* It goes to sleep at `now`: it has just been refused. What it waited for a CPU meanwhile is no pause of its own. */
static __always_inline bool is_refused(struct task_struct *t, __u64 now)
{
	if (!last_refusal || elapsed(last_refusal, now) > REFUSED_LONG_AGO)
		return false;
	return is_refusal_recent(t->pid, t->sched_info.run_delay, now);
}
