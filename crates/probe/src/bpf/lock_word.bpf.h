/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which task holds a kernel lock, from the word in which the lock itself keeps that. */
#pragma once

#include "shared.bpf.h"

/* Contents of a lock's word. */
struct lock_word {
	struct task_struct *task; /* 0: no task, or this sort of lock does not note it */
	__u32 pid;
	__u32 reader_owned; /* the task is the last reader, perhaps gone */
};

/* enum lock_kind from the flags of contention_begin; -1: a spinlock. */
static __always_inline int lock_kind_of(__u32 flags)
{
	if (flags & LCB_F_PERCPU)
		return LOCK_PERCPU_RWSEM;
	if (flags & LCB_F_RT)
		return flags & (LCB_F_READ | LCB_F_WRITE) ? LOCK_RWSEM : LOCK_RTMUTEX;
	if (flags & LCB_F_MUTEX)
		return LOCK_MUTEX;
	if (flags & LCB_F_SPIN)
		return -1; /* spinlocks, and qrwlocks with READ or WRITE */
	return flags & (LCB_F_READ | LCB_F_WRITE) ? LOCK_RWSEM : LOCK_SEMAPHORE;
}

static __always_inline void read_rwsem(__u64 lock, struct lock_word *word)
{
	struct rw_semaphore *sem = (void *)lock;
	struct rwbase_rt *rt = (void *)lock;
	__u64 owner = 0;

	if (bpf_core_field_exists(sem->owner)) {
		owner = BPF_CORE_READ(sem, owner.counter);
		word->reader_owned = owner & RWSEM_READER_OWNED;
		owner &= ~(__u64)RWSEM_OWNER_FLAGS;
	} else if (bpf_core_field_exists(rt->rtmutex)) {
		owner = (__u64)BPF_CORE_READ(rt, rtmutex.owner) & ~(__u64)RT_MUTEX_HAS_WAITERS;
	}
	word->task = (void *)owner;
}

/* The owner's task and pid. The lock exists as long as a task waits for it. Its last reader or holder may be gone, and the memory in its
 * place then makes no sense: pids are below PID_MAX_LIMIT.
 */
static __always_inline void read_lock_word(__u64 lock, __u32 kind, struct lock_word *word)
{
	struct percpu_rw_semaphore *percpu = (void *)lock;
	struct rt_mutex_base *rt = (void *)lock;
	struct semaphore *sem = (void *)lock;
	struct mutex *mutex = (void *)lock;
	struct task_struct *task;
	__u64 owner = 0;

	word->task = 0;
	word->pid = 0;
	word->reader_owned = 0;
	if (kind == LOCK_RWSEM) {
		read_rwsem(lock, word);
	} else if (kind == LOCK_MUTEX && bpf_core_field_exists(mutex->owner)) {
		owner = BPF_CORE_READ(mutex, owner.counter) & ~(__u64)MUTEX_FLAGS;
		word->task = (void *)owner;
	} else if (kind == LOCK_RTMUTEX && bpf_core_field_exists(rt->owner)) {
		owner = (__u64)BPF_CORE_READ(rt, owner) & ~(__u64)RT_MUTEX_HAS_WAITERS;
		word->task = (void *)owner;
	} else if (kind == LOCK_PERCPU_RWSEM && bpf_core_field_exists(percpu->writer)) {
		word->task = BPF_CORE_READ(percpu, writer.task); /* only while it waits for readers */
	} else if (kind == LOCK_SEMAPHORE && bpf_core_field_exists(sem->last_holder)) {
		word->task = (void *)BPF_CORE_READ(sem, last_holder);
	}
	task = word->task;
	if (task)
		word->pid = BPF_CORE_READ(task, pid);
	if (word->pid > 1 << 22)
		word->pid = 0;
}

/* The lock that the kernel says a task waits for. */
struct blocked {
	__u64 lock;
	__u32 kind;
	__u32 write;
};

static __always_inline bool blocked_at(struct task_struct *t, struct blocked *b)
{
	struct task_struct___blocked_on_mutex *by_mutex = (void *)t;
	struct task_struct___with_blocker *by_any = (void *)t;
	__u64 blocker = 0, type;

	b->lock = 0;
	if (bpf_core_field_exists(by_any->blocker))
		blocker = BPF_CORE_READ(by_any, blocker);
	if (blocker) {
		type = blocker & BLOCKER_TYPE_MASK;
		b->lock = blocker & ~(__u64)BLOCKER_TYPE_MASK;
		b->kind = type == BLOCKER_TYPE_MUTEX ? LOCK_MUTEX : type == BLOCKER_TYPE_SEM ? LOCK_SEMAPHORE : LOCK_RWSEM;
		b->write = type == BLOCKER_TYPE_MUTEX || type == BLOCKER_TYPE_RWSEM_WRITER;
	} else if (bpf_core_type_matches(struct task_struct___blocked_on_mutex)) {
		b->lock = (__u64)BPF_CORE_READ(by_mutex, blocked_on);
		b->kind = LOCK_MUTEX;
		b->write = 1;
	}
	return b->lock;
}
