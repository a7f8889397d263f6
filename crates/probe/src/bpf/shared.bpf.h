/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Maps that several objects share, by pid: no hash, no allocation.
 *
 * The sched object makes them; user space has the others reuse them before it
 * loads them. Without the sched object each makes its own, and what it reads
 * there is zero: nobody is followed, nobody waits.
 */
#pragma once

#include "kernel.bpf.h"

#define SLOTS 65536

enum sched_state { NONE, RUNNING, READY, IO, BLOCKED, ASLEEP, STATES };

struct sched_sum {
	__u64 ns;
	__u64 worst_ns;
	__u64 count;
};

/* The compiler may know that a state is in range from a comparison that the verifier (of 6.1, of 6.12) does not follow: one
 * of the number less three. Of what comes out of here it knows nothing, and leaves the mask in.
 */
static __always_inline __u32 bounded(__u32 state)
{
	asm("" : "+r"(state));
	return state & 7;
}

/* Where a task's time went. Times are the run queue's clock. */
struct sched_slot {
	__u32 pid;
	__u32 state;
	__u64 since;      /* the state began */
	__u64 from;       /* the stretch began that no row tells yet */
	__u64 from_mono;  /* the same as CLOCK_MONOTONIC: the two drift apart */
	__u64 limit;      /* waits from here on are told one by one */
	__u64 at;         /* the last sleep began */
	__u64 delay;      /* the kernel's sum of time in run queues, when it began */
	__u32 slept;      /* what it was; NONE: it did not sleep since it had a CPU */
	__u32 told;       /* its waker was told in full */
	__u32 waker;      /* who woke it, or whom an interrupt that did interrupted */
	__u32 context;    /* enum wake_context */
	__u32 throttled;  /* it left the CPU because a quota had run out */
	__u32 cpu;
	__u64 unknown_ns;
	struct sched_sum sum[STATES];
	__u64 debt[STATES]; /* waited since the last stack */
	__u64 peak[STATES];
	__u64 owed[STATES]; /* the next stack is due at this debt */
	__u64 base[STATES]; /* sums at `from` */
	__u64 base_unknown;
	__u64 whole;
	__u64 cycle_wait;
	__u64 cycles;
	__u64 wait_us;
	__u64 rest_us;
	__u64 wait_wait;
	__u64 wait_rest;
	__u64 rest_rest;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct sched_slot);
} slots SEC(".maps");

/* The kernel lock that a task waits for now. Written by the locks object at the begin of the wait, zeroed at its end;
 * read by sched when a long wait is over or still lasts. Times are CLOCK_MONOTONIC.
 */
struct lock_wait {
	__u64 lock; /* 0: none */
	__u64 since;
	__u32 pid;
	__u32 kind; /* enum lock_kind */
	__u32 write;
	__u32 owner;       /* pid in the lock word at the begin; 0: none or not readable */
	__u32 owner_again; /* ... when last read again; 0: not read again */
	__u32 reader_owned;
};

/* As whyslow_model::timeline::LockKind. */
enum lock_kind { LOCK_UNKNOWN, LOCK_MUTEX, LOCK_RWSEM, LOCK_RTMUTEX, LOCK_PERCPU_RWSEM, LOCK_SEMAPHORE };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct lock_wait);
} lock_waits SEC(".maps");

/* Whom a trace follows in detail: set by user space before the window, inherited at fork (by sched). */
struct followed {
	__u32 pid; /* the slot's owner; another pid: nobody is followed here */
	__u32 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct followed);
} followed SEC(".maps");

static __always_inline struct sched_slot *slot_at(__u32 pid)
{
	__u32 at = pid & (SLOTS - 1);

	return bpf_map_lookup_elem(&slots, &at);
}

static __always_inline struct sched_slot *slot_of(struct task_struct *t)
{
	struct sched_slot *s = slot_at(t->pid);

	return s && s->pid == (__u32)t->pid ? s : 0;
}

static __always_inline struct lock_wait *lock_wait_at(__u32 pid)
{
	__u32 at = pid & (SLOTS - 1);

	return bpf_map_lookup_elem(&lock_waits, &at);
}

static __always_inline bool is_followed(__u32 pid)
{
	__u32 at = pid & (SLOTS - 1);
	struct followed *f = bpf_map_lookup_elem(&followed, &at);

	return f && f->pid == pid;
}

/* The block device of the last I/O that a task queued, or that a throttle let go while it waited: major << 20 | minor.
 * Written by the blkio object; never zeroed: it tells of a wait only if that wait is for I/O.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} last_device SEC(".maps");
