/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which locks are hot, and which tasks are reported to have held them. */
#pragma once

#include "lock_word.bpf.h"

#define MSEC 1000000ULL
/* A lock that a task has waited for this long is hot: its holders are reported. */
#define HOT_FROM (1 * MSEC)
/* It cools down when no task has waited that long for a second. */
#define COOLS_AFTER (1000 * MSEC)
/* Per CPU and SLICE: 2,000 stacks and as many holders a second are 0.5 % of a CPU each. */
#define SLICE (100 * MSEC)
#define PER_SLICE 200
#define HOT 1024
/* A holder that keeps the lock is reported again after this. */
#define TELL_AGAIN (50 * MSEC)
/* For a lock that changes hands more often, a holder is reported this often. */
#define TELL_EVERY (MSEC / 2)

/* A task held a lock. */
struct locks_hold {
	__u64 at;
	__u64 lock;
	__u32 pid;
	__u32 tgid;
	__u32 acquired; /* else: seen in the lock word */
	__u32 reader;
	char comm[16];
};

/* The last long wait for a lock, and the holder that was reported. */
struct locks_hot {
	__u64 lock;
	__u64 waited_at;
	__u64 reported_at;
	__u64 owner;
};

struct locks_rate {
	__u64 slice;
	__u64 stacks;
	__u64 holds;
	__u64 shorts;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOT);
	__type(key, __u32);
	__type(value, struct locks_hot);
} hot SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct locks_rate);
} rates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} holds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct locks_hold);
} hold_type SEC(".maps");

/* Waits and holders for which there was no room. */
__u64 lost;
/* Holders that were not reported, to stay cheap. */
__u64 shed;

static __always_inline bool may(__u64 now, bool hold)
{
	__u32 zero = 0;
	struct locks_rate *rate = bpf_map_lookup_elem(&rates, &zero);

	if (!rate)
		return false;
	if (elapsed(rate->slice, now) > SLICE) {
		rate->slice = now;
		rate->stacks = 0;
		rate->holds = 0;
	}
	return (hold ? rate->holds++ : rate->stacks++) < PER_SLICE;
}

static __always_inline struct locks_hot *hot_at(__u64 lock)
{
	/* Locks are words apart: multiply, and take high bits (Knuth). */
	__u32 at = ((__u32)(lock >> 3) * 2654435761U >> 20) & (HOT - 1);

	return bpf_map_lookup_elem(&hot, &at);
}

/* Report that a task held a lock, by its pid; the rest is reported if the pointer still leads to that task. */
static __always_inline void tell_hold(__u64 lock, __u64 at, __u64 now, struct task_struct *task, __u32 pid, bool acquired,
				      __u32 reader)
{
	struct locks_hold *hold;

	if (!pid)
		return;
	if (!may(now, true)) {
		__sync_fetch_and_add(&shed, 1);
		return;
	}
	hold = bpf_ringbuf_reserve(&holds, sizeof(*hold), 0);
	if (!hold) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	hold->at = at;
	hold->lock = lock;
	hold->pid = pid;
	hold->tgid = 0;
	hold->acquired = acquired;
	hold->reader = reader;
	__builtin_memset(hold->comm, 0, sizeof(hold->comm));
	if ((__u32)BPF_CORE_READ(task, pid) == pid) {
		hold->tgid = BPF_CORE_READ(task, tgid);
		bpf_probe_read_kernel(hold->comm, sizeof(hold->comm), &task->comm);
	}
	bpf_ringbuf_submit(hold, BPF_RB_NO_WAKEUP);
}

/* The holder in the word of a hot lock: reported when it changes, and now and then if it stays. */
static __always_inline void note_word(struct locks_hot *h, __u64 lock, struct lock_word *word, __u64 now)
{
	if (elapsed(h->reported_at, now) < (h->owner == word->pid ? TELL_AGAIN : TELL_EVERY))
		return;
	h->owner = word->pid;
	h->reported_at = now;
	tell_hold(lock, now, now, word->task, word->pid, false, word->reader_owned);
}

/* The place of a lock among the hot ones, made hot if a task has waited long for the lock; 0: it is not hot. */
static __always_inline struct locks_hot *heat(__u64 lock, __u64 now, bool waited)
{
	struct locks_hot *h = hot_at(lock);

	if (!h)
		return 0;
	if (h->lock == lock) {
		if (waited)
			h->waited_at = now;
		return elapsed(h->waited_at, now) < COOLS_AFTER ? h : 0;
	}
	if (!waited)
		return 0;
	h->lock = lock;
	h->owner = 0;
	h->reported_at = 0;
	h->waited_at = now;
	return h;
}
