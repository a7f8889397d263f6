/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which task holds a lock that the kernel does not count as one: a mutex of the C library, a lock on a file.
 *
 * The kernel knows a futex's word only. glibc's pthread_mutex_t has the owner's thread id in the second word behind it
 * (sysdeps/nptl/bits/struct_mutex.h), which only its own task can read: as it leaves its CPU. For locks on files the inode has a list of
 * holders, each with the tasks that it keeps waiting (fs/locks.c).
 */
#pragma once

#include "kernel.bpf.h"

/* x86-64 */
#define NR_FCNTL 72
#define NR_FLOCK 73
#define NR_FUTEX 202

/* include/uapi/linux/futex.h, fcntl.h */
#define FUTEX_OP 0x7f
#define FUTEX_WAIT_BITSET 9
#define F_SETLKW 7
#define F_OFD_SETLKW 38

/* "Locked, with a waiter", in glibc's mutexes, the only ones with an owner next to the word. */
#define CONTENDED 2
/* Offset from a mutex's word to its owner. */
#define TO_OWNER 8

/* Holders of locks on one file, and waiters of each, that are read. */
#define MOST_HOLDERS 4
#define MOST_WAITERS 4

/* Offset from the lowest address of a task's stack to its registers there; 0: not found out yet. With FRED (v6.9) 16 bytes stay free above
 * them.
 */
__u64 registers_at;

/* Before v6.17 the verifier refuses a difference of pointers: they are read as numbers. */
static __always_inline void find_registers(struct task_struct *t)
{
	__u64 stack = 0, registers = 0;
	void *pointer;

	if (registers_at || !has_helper(task_pt_regs))
		return;
	pointer = (void *)bpf_task_pt_regs(t);
	bpf_probe_read_kernel(&registers, sizeof(registers), &pointer);
	bpf_probe_read_kernel(&stack, sizeof(stack), &t->stack);
	if (stack && registers > stack && registers - stack < 1 << 17)
		registers_at = registers - stack;
}

/* The number of the system call that the current task is in; ~0: none. Calling a helper takes longer than all else here. */
static __always_inline __u64 call_of(struct task_struct *t)
{
	if (t->flags & PF_KTHREAD)
		return ~0ULL;
	if (bpf_ksym_exists(bpf_rdonly_cast) && registers_at)
		return as(struct pt_regs, (void *)t->stack + registers_at)->orig_ax;
	return BPF_CORE_READ(registers_of(t), orig_ax);
}

/* The current task goes to sleep: if it does so for a mutex, returns the owner from its word, as the program's own pid namespace numbers
 * it. If the word is not a mutex's: whatever lies there.
 */
static __always_inline __u32 mutex_owner(struct task_struct *t)
{
	__u64 op, word;
	__u32 owner = 0;

	if (t->flags & PF_KTHREAD)
		return 0;
	if (bpf_ksym_exists(bpf_rdonly_cast) && registers_at) { /* calling a helper takes longer than all that follows */
		struct pt_regs *regs = as(struct pt_regs, (void *)t->stack + registers_at);

		if (regs->orig_ax != NR_FUTEX || (__u32)regs->dx != CONTENDED)
			return 0;
		op = regs->si & FUTEX_OP;
		word = regs->di;
	} else if (has_helper(task_pt_regs)) {
		struct pt_regs *regs = registers_of(t);

		if (regs->orig_ax != NR_FUTEX || (__u32)regs->dx != CONTENDED)
			return 0;
		op = regs->si & FUTEX_OP;
		word = regs->di;
	} else {
		struct pt_regs *regs = registers_of(t);

		if (BPF_CORE_READ(regs, orig_ax) != NR_FUTEX || (__u32)BPF_CORE_READ(regs, dx) != CONTENDED)
			return 0;
		op = BPF_CORE_READ(regs, si) & FUTEX_OP;
		word = BPF_CORE_READ(regs, di);
	}
	if (op && op != FUTEX_WAIT_BITSET)
		return 0;
	if (bpf_probe_read_user(&owner, sizeof(owner), (void *)(word + TO_OWNER)))
		return 0;
	return owner;
}

struct file_lock_at {
	__u32 list; /* in the inode's list of holders */
	__u32 waiters;
	__u32 member; /* in the holder's list of waiters */
	__u32 pid;
};

static __always_inline void file_lock_layout(struct file_lock_at *at)
{
	if (bpf_core_type_exists(struct file_lock_core)) {
		at->list = bpf_core_field_offset(struct file_lock_core, flc_list);
		at->waiters = bpf_core_field_offset(struct file_lock_core, flc_blocked_requests);
		at->member = bpf_core_field_offset(struct file_lock_core, flc_blocked_member);
		at->pid = bpf_core_field_offset(struct file_lock_core, flc_pid);
	} else {
		at->list = bpf_core_field_offset(struct file_lock___before_6_9, fl_list);
		at->waiters = bpf_core_field_offset(struct file_lock___before_6_9, fl_blocked_requests);
		at->member = bpf_core_field_offset(struct file_lock___before_6_9, fl_blocked_member);
		at->pid = bpf_core_field_offset(struct file_lock___before_6_9, fl_pid);
	}
}

static __always_inline __u64 next_of(__u64 list)
{
	__u64 next = 0;

	bpf_probe_read_kernel(&next, sizeof(next), (void *)list);
	return next;
}

static __always_inline __u32 pid_of(__u64 lock, struct file_lock_at *at)
{
	__u32 pid = 0;

	bpf_probe_read_kernel(&pid, sizeof(pid), (void *)(lock + at->pid));
	return pid;
}

/* Whether this process waits for this lock. */
static __always_inline bool keeps_waiting(__u64 lock, struct file_lock_at *at, __u32 tgid)
{
	__u64 head = lock + at->waiters, next = next_of(head);
	int i;

	for (i = 0; i < MOST_WAITERS && next && next != head; i++) {
		if (pid_of(next - at->member, at) == tgid)
			return true;
		next = next_of(next);
	}
	return false;
}

/* The lock on a file that process `tgid` waits for, its address; 0: it does not wait any more, or it is not known which. Later waiters
 * queue behind earlier ones, so that for a single holder it is enough that some process waits. No lock of the kernel is taken: values that
 * change under us make no sense, or the search ends.
 */
__noinline __u64 file_lock_in_the_way(__u64 inode, __u32 is_flock, __u32 tgid)
{
	struct file_lock_context *context = BPF_CORE_READ((struct inode *)inode, i_flctx);
	struct file_lock_at at;
	__u64 head, next, waited_for = 0;
	__u32 holder = 0, count = 0;
	int i;

	if (!context)
		return 0;
	file_lock_layout(&at);
	head = (__u64)context + (is_flock ? bpf_core_field_offset(context->flc_flock)
					  : bpf_core_field_offset(context->flc_posix));
	next = next_of(head);
	for (i = 0; i < MOST_HOLDERS && next && next != head; i++) {
		__u64 lock = next - at.list, waiters = lock + at.waiters;
		__u32 pid = pid_of(lock, &at);

		if (keeps_waiting(lock, &at, tgid))
			return lock;
		if (next_of(waiters) != waiters) {
			count += !count || pid != holder;
			holder = pid;
			waited_for = lock;
		}
		next = next_of(next);
	}
	/* In a longer list another lock may keep it waiting: a database locks many ranges of one file. */
	return next == head && count == 1 ? waited_for : 0;
}
