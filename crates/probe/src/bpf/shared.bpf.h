/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Maps that several objects share, by pid: no hash, no allocation.
 *
 * The sched object makes them; user space makes the other objects reuse them before it loads these. Without the sched object each makes its
 * own, and reads zeros there: no task is followed, no task waits.
 */
#pragma once

#include "kernel.bpf.h"

/* A task's home is at its pid modulo `homes`: pids above them (pid_max is 4,194,304 where systemd sets it) share homes. A task that finds
 * its home taken gets one of the spare places that follow, and `displaced` says which; the home notes that there is such a task. So only
 * tasks whose home has a displaced task pay for a search.
 */
#define SLOTS 65536
/* ... of which user space may make 2, 4, 8 or 16 times fewer, where its memory is limited. Maps by pid are then as small. */
const volatile __u32 homes = SLOTS;
/* Spare places, unless user space sets another number. */
#define SPARES 4096
#define NOWHERE (~0U)

enum sched_state { NONE, RUNNING, READY, IO, BLOCKED, ASLEEP, STATES };

struct sched_sum {
	__u64 ns;
	__u64 worst_ns;
	__u64 count;
};

/* The compiler may know that a state is in range from a comparison that the verifier (of 6.1, of 6.12) does not follow: one of the number
 * less three. It knows nothing about the result of this function, and leaves the mask in.
 */
static __always_inline __u32 bounded(__u32 state)
{
	asm("" : "+r"(state));
	return state & 7;
}

/* How much of the waker is reported: nothing yet; nothing, though the wait was long enough, for want of room; all. */
enum wake_told { WAKE_SHORT, WAKE_SEEN, WAKE_REPORTED };

/* Where a task's time went. Times are the run queue's clock. */
struct sched_slot {
	__u64 task;       /* address, only compared; 0: free. A pid may be another task's before its last task has left its CPU */
	__u32 pid;
	__u32 state;
	__u64 since;      /* the state began */
	__u64 limit;      /* waits from here on are reported one by one */
	__u64 wake_from;  /* the waker of a sleep that lasts so long is reported; ~0: of none */
	__u32 waker;      /* the task that woke it, or the task that the waking interrupt interrupted */
	__u8 context;     /* enum wake_context */
	__u8 reported;    /* enum wake_told */
	__u8 slept;       /* state before it was woken; NONE: it did not sleep since it had a CPU */
	__u8 connected;   /* `asked_by` has connected, and sent nothing */
	__u32 asked_by;   /* the process that woke it last by sending or connecting; 0: none since it sent something to a client (peers.bpf.h) */
	__u32 asked_tick; /* jiffies then */
	/* A waker, often on another CPU, reads and writes only the fields above: a cache line, or two. */
	__u64 at;         /* the last sleep began */
	__u64 delay;      /* the kernel's sum of time in run queues, when it began */
	__u64 from;       /* begin of the stretch that no row reports yet */
	__u64 from_mono;  /* the same as CLOCK_MONOTONIC: the two drift apart */
	__u32 throttled;  /* it left the CPU because a quota had run out */
	__u32 cpu;
	__u32 creator;    /* the thread that made it, if that was seen; the kernel's parent of a thread is its process's */
	__u32 key;        /* the number by which its place is found: its pid, unless an exec gave it the pid of another task */
	__u64 start;      /* when the kernel says that it began */
	__u64 titled;     /* when the words of its process were last looked for (titles.bpf.h) */
	__u64 exec_base;  /* CPU time that it had used when it took this pid over; see taken_over */
	__u64 delay_base; /* ... and time that it had waited in run queues */
	__u32 taken_over; /* a thread that executed got its process's pid: its time before is reported by its old pid */
	__u32 holder;     /* holder of the user space lock that it sleeps for (user_lock.bpf.h), or whatever is in that place */
	__u32 sampled;    /* stacks of its sleeps, as far as that is counted (sched.bpf.c, reset) */
	__u32 lock_retry; /* a lock on a file: enum lock_retry_state (lock_retry.bpf.h) */
	__u32 asks;       /* so many more sleeps are checked for a request to a service (peers.bpf.h, lies_unread) */
	__u32 asked;
	__u32 answers;    /* value of `asked_by` before it last sent something to a client */
	__u32 answers_tick;
	__u64 came_at;    /* the TCP connection whose data ended a long wait last, and its ports: checked in so many more sleeps */
	__u32 ports;
	__u16 looks;
	__u16 held;       /* as it went to sleep data that it had written there were held back (peers.bpf.h, is_held_back) */
	__u32 segments;   /* ... and so many segments with data had been sent */
	__u32 unused;
	__u64 unknown_ns;
	struct sched_sum sum[STATES];
	__u64 unsampled[STATES]; /* waited since the last stack */
	__u64 peak[STATES];
	__u64 sample_at[STATES]; /* the next stack is due then */
	__u64 base[STATES]; /* sums at `from` */
	__u64 base_unknown;
	__u64 whole;
	__u64 cycle_since; /* its last sleep ended, or it was born */
	__u64 cycles;      /* sums over them, in 1024 ns */
	__u64 awake;
	__u64 rest;
	__u64 awake_awake;
	__u64 awake_rest;
	__u64 rest_rest;
	/* Fields of the place, not of its task: they stay when the task changes (TENANT). */
	__u32 displaced;  /* this is the home of tasks that are elsewhere */
	__u32 claims;     /* the task that has this home, and tasks that have just found it taken */
};

/* Bytes of a slot that belong to the task in it. */
#define TENANT __builtin_offsetof(struct sched_slot, displaced)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS + SPARES);
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
	__uint(max_entries, SLOTS + SPARES);
	__type(key, __u32);
	__type(value, struct lock_wait);
} lock_waits SEC(".maps");

/* Tasks that a trace follows in detail: set by user space before the window, inherited at fork (by sched). It does not depend on slots: no
 * followed task is lost for want of a place.
 */
struct followed {
	__u32 pid; /* 0, or another pid: the task is not followed here */
	__u32 more; /* ... but `followed_more` has followed tasks of this place */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct followed);
} followed SEC(".maps");

/* Followed tasks whose place above is another's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SPARES);
	__type(key, __u32);
	__type(value, __u32);
} followed_more SEC(".maps");

/* The spare place of each task that has one, by pid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SPARES);
	__type(key, __u32);
	__type(value, __u32);
} displaced SEC(".maps");

static __noinline __u32 spare_place(__u32 pid)
{
	__u32 *at = bpf_map_lookup_elem(&displaced, &pid);

	return at ? *at : NOWHERE;
}

static __always_inline struct sched_slot *slot_at(__u32 place)
{
	return bpf_map_lookup_elem(&slots, &place);
}

static __always_inline struct sched_slot *home_of(__u32 pid)
{
	return slot_at(pid & (homes - 1));
}

static __always_inline struct sched_slot *slot_of(struct task_struct *t)
{
	struct sched_slot *s = home_of(t->pid);

	if (!s || s->task == (__u64)t)
		return s;
	if (!s->displaced)
		return 0;
	s = slot_at(spare_place(t->pid));
	return s && s->task == (__u64)t ? s : 0;
}

/* The place of a task's notes in maps by pid; NOWHERE if another task has the home, and this one no other. Before the window, and without
 * the sched object, each task is at its home.
 */
static __always_inline __u32 place_by_pid(__u32 pid)
{
	struct sched_slot *s = home_of(pid);
	__u32 at = NOWHERE;

	if (!s || (s->pid && s->key == pid))
		return pid & (homes - 1);
	if (s->displaced)
		at = spare_place(pid);
	return at == NOWHERE && !s->pid ? pid & (homes - 1) : at;
}

static __always_inline struct lock_wait *lock_wait_at(__u32 place)
{
	return bpf_map_lookup_elem(&lock_waits, &place);
}

static __noinline bool is_followed_too(__u32 pid)
{
	return bpf_map_lookup_elem(&followed_more, &pid) != 0;
}

static __always_inline bool is_followed(__u32 pid)
{
	__u32 at = pid & (homes - 1);
	struct followed *f = bpf_map_lookup_elem(&followed, &at);

	if (!f || !pid)
		return false;
	return f->pid == pid || (f->more && is_followed_too(pid));
}

struct last_io {
	__u32 dev;      /* major << 20 | minor */
	__u16 file;     /* id of the file that it was about (block_files.bpf.h); 0: not known */
	__u16 switches; /* lower half of the number of times that the task had gone to sleep by then */
};

/* The I/O that a task queued last, or the device at which a throttle released it while it waited. Written by the blkio object; never
 * zeroed: it applies to a wait only if that wait is for I/O, and the file only if the task has not slept in between: after a sleep it may
 * wait for I/O of other tasks.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS + SPARES);
	__type(key, __u32);
	__type(value, struct last_io);
} last_device SEC(".maps");
