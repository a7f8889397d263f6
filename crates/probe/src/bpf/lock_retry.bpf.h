/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A task that is refused a lock on a file, sleeps and tries again waits for the lock holder: a database in a file, a package manager.
 *
 * fs/locks.c reports each attempt with its outcome. The lock holder is looked up when the sleep is over: a process that holds the lock then
 * has held it all the time, as far as one can tell. If the lock was released meanwhile, its holder is not known, and the sleep is the
 * task's own.
 */
#pragma once

#include "shared.bpf.h"
#include "polls.bpf.h"
#include "user_lock.bpf.h"

/* Between the refusal and the sleep a task does little: it counts its attempts, it reports that it waits. */
#define REFUSED_PAUSE 10000000ULL
/* A task that is refused once may do without the lock; a task that tries again wants it. */
#define REFUSED_TRIES 2
/* Locks on one file that are checked: a database locks many ranges. */
#define MAX_FILE_LOCKS 16

/* include/uapi/asm-generic/fcntl.h */
#define F_WRLCK 1
#define F_UNLCK 2
/* include/linux/filelock.h (fs.h before v6.3): locks of an open file, shared by all processes that have it open. */
#define FL_FLOCK 2
#define FL_OFDLCK 1024

/* x86-64 */
#define NR_NANOSLEEP 35
#define NR_CLOCK_NANOSLEEP 230

/* `lock_retry` of a slot: never; since it last ran; asleep since that refusal; once. */
enum lock_retry_state { REFUSED_NEVER, REFUSED_FRESH, REFUSED_NAPS, REFUSED_ONCE };

/* A lock that a task holds, or requests. */
struct claim {
	__u64 owner;
	__u64 file;
	__s64 start;
	__s64 end;
	__u32 pid;
	__u32 type;
	__u32 of_open_file; /* FL_FLOCK, FL_OFDLCK or neither */
	__u32 unused;
};

/* Times are CLOCK_MONOTONIC. */
struct refusal {
	__u64 at;
	__u64 delay; /* the kernel's sum of its time in run queues then */
	__u64 inode; /* compared and read, and never reported */
	__u64 ino;
	__u32 dev;
	__u32 mode;
	__u32 tries;
	__u32 is_flock;
	struct claim wanted;
	char file[32];
};

/* By thread; user space makes it larger where there are many CPUs, each of which keeps a share of its free places. The thread with the
 * oldest last refusal makes room: its sleeps are then its own.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct refusal);
} refusals SEC(".maps");

static __always_inline void read_claim(struct claim *c, __u64 lock)
{
	if (bpf_core_type_exists(struct file_lock_core)) {
		struct file_lock *new = (void *)lock;

		c->owner = (__u64)BPF_CORE_READ(new, c.flc_owner);
		c->file = (__u64)BPF_CORE_READ(new, c.flc_file);
		c->start = BPF_CORE_READ(new, fl_start);
		c->end = BPF_CORE_READ(new, fl_end);
		c->pid = BPF_CORE_READ(new, c.flc_pid);
		c->type = BPF_CORE_READ(new, c.flc_type);
		c->of_open_file = BPF_CORE_READ(new, c.flc_flags) & (FL_FLOCK | FL_OFDLCK);
	} else {
		struct file_lock___before_6_9 *old = (void *)lock;

		c->owner = (__u64)BPF_CORE_READ(old, fl_owner);
		c->file = (__u64)BPF_CORE_READ(old, fl_file);
		c->start = BPF_CORE_READ(old, fl_start);
		c->end = BPF_CORE_READ(old, fl_end);
		c->pid = BPF_CORE_READ(old, fl_pid);
		c->type = BPF_CORE_READ(old, fl_type);
		c->of_open_file = BPF_CORE_READ(old, fl_flags) & (FL_FLOCK | FL_OFDLCK);
	}
}

/* The open file through which the lock is held, whichever process took it; 0: a process holds it. */
static __always_inline __u64 open_file_of(__u64 lock)
{
	const __u32 of_file = FL_FLOCK | FL_OFDLCK;

	if (bpf_core_type_exists(struct file_lock_core)) {
		struct file_lock *new = (void *)lock;

		return BPF_CORE_READ(new, c.flc_flags) & of_file ? (__u64)BPF_CORE_READ(new, c.flc_file) : 0;
	} else {
		struct file_lock___before_6_9 *old = (void *)lock;

		return BPF_CORE_READ(old, fl_flags) & of_file ? (__u64)BPF_CORE_READ(old, fl_file) : 0;
	}
}

/* fs/locks.c, posix_locks_conflict(), flock_locks_conflict(). */
static __always_inline bool conflicts(struct claim *wanted, struct claim *held, bool is_flock)
{
	if (wanted->type != F_WRLCK && held->type != F_WRLCK)
		return false;
	if (is_flock)
		return wanted->file != held->file;
	return wanted->owner != held->owner && wanted->end >= held->start && held->end >= wanted->start;
}

/* The address of the lock that is in the way now; 0: none is, or not known. No lock of the kernel is taken: values that change under us
 * make no sense, or the search ends. A global function: the verifier checks it once.
 */
__noinline __u64 lock_that_refuses(__u32 pid)
{
	struct refusal *r = bpf_map_lookup_elem(&refusals, &pid);
	struct inode *inode = (void *)(r ? r->inode : 0);
	struct file_lock_context *context;
	struct file_lock_at at;
	__u64 head, next;
	int i;

	if (!r || BPF_CORE_READ(inode, i_ino) != r->ino || BPF_CORE_READ(inode, i_sb, s_dev) != r->dev)
		return 0;
	context = BPF_CORE_READ(inode, i_flctx);
	if (!context)
		return 0;
	file_lock_layout(&at);
	head = (__u64)context + (r->is_flock ? bpf_core_field_offset(context->flc_flock)
					     : bpf_core_field_offset(context->flc_posix));
	next = next_of(head);
	for (i = 0; i < MAX_FILE_LOCKS && next && next != head; i++) {
		struct claim held = {};

		read_claim(&held, next - at.list);
		if (conflicts(&r->wanted, &held, r->is_flock))
			return next - at.list;
		next = next_of(next);
	}
	return 0;
}

static __always_inline bool is_same(struct refusal *r, __u64 inode, struct claim *claim, __u32 is_flock)
{
	return r->inode == inode && r->is_flock == is_flock && r->wanted.start == claim->start &&
	       r->wanted.end == claim->end;
}

/* The task got a lock: is it the one that it wanted? */
__noinline int note_got(__u64 inode, __u64 request, __u32 is_flock)
{
	__u32 pid = (__u32)bpf_get_current_pid_tgid();
	struct sched_slot *s = slot_at(place_by_pid(pid));
	struct claim got = {};
	struct refusal *r;

	if (!s || s->lock_retry == REFUSED_NEVER)
		return 0;
	r = bpf_map_lookup_elem(&refusals, &pid);
	read_claim(&got, request);
	if (r && (got.type == F_UNLCK || !is_same(r, inode, &got, is_flock)))
		return 0;
	if (r)
		r->tries = 0;
	s->lock_retry = REFUSED_NEVER;
	return 0;
}

/* Since v6.11 (and in stable kernels) fs/locks.c reports a range while it holds the inode's lock: nothing is searched here. */
__noinline int note_refused(__u64 at, __u64 request, __u32 is_flock)
{
	struct inode *inode = (void *)at;
	static const struct refusal none;
	struct task_struct *t = (void *)bpf_get_current_task();
	__u32 pid = (__u32)bpf_get_current_pid_tgid();
	struct sched_slot *s = slot_at(place_by_pid(pid));
	struct refusal *r = bpf_map_lookup_elem(&refusals, &pid);
	struct claim wanted = {};
	struct file *file;

	if (!s)
		return 0;
	if (!r) {
		bpf_map_update_elem(&refusals, &pid, &none, BPF_ANY);
		r = bpf_map_lookup_elem(&refusals, &pid);
		if (!r)
			return 0;
	}
	read_claim(&wanted, request);
	/* Another task had this number before: the slot belongs to the task, not to the number. */
	if (s->lock_retry == REFUSED_NEVER || !is_same(r, at, &wanted, is_flock)) {
		file = (void *)wanted.file;
		r->tries = 0;
		r->inode = at;
		r->is_flock = is_flock;
		r->ino = BPF_CORE_READ(inode, i_ino);
		r->dev = BPF_CORE_READ(inode, i_sb, s_dev);
		r->mode = BPF_CORE_READ(inode, i_mode);
		bpf_probe_read_kernel_str(r->file, sizeof(r->file), BPF_CORE_READ(file, f_path.dentry, d_name.name));
	}
	/* Without a sleep since the last refusal it is the same attempt. */
	if (s->lock_retry != REFUSED_FRESH || !r->tries)
		r->tries++;
	r->wanted = wanted;
	r->at = bpf_ktime_get_ns();
	r->delay = BPF_CORE_READ(t, sched_info.run_delay);
	s->lock_retry = REFUSED_FRESH;
	return 0;
}

static __noinline bool is_retry(__u32 pid, __u64 delay, __u64 now)
{
	struct refusal *r = bpf_map_lookup_elem(&refusals, &pid);

	return r && r->tries >= REFUSED_TRIES && elapsed(r->at + elapsed(r->delay, delay), now) < REFUSED_PAUSE;
}

/* The task goes to sleep at `now`. One refusal belongs to one sleep; time that it waited for a CPU meanwhile is not a pause. */
static __always_inline void refused_sleeps(struct sched_slot *s, struct task_struct *t, bool is_asleep, __u64 now)
{
	if (s->lock_retry == REFUSED_NEVER)
		return;
	if (s->lock_retry == REFUSED_FRESH && is_asleep && is_retry(t->pid, t->sched_info.run_delay, now))
		s->lock_retry = REFUSED_NAPS;
	else
		s->lock_retry = REFUSED_ONCE;
}

/* It may be a sleep of its own: the call's arguments show whether it polls something. */
static __always_inline bool is_nap(__s32 call)
{
	return call == NR_NANOSLEEP || call == NR_CLOCK_NANOSLEEP || is_poll(call);
}
