/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Does a running thread make progress? (oncpu)
 *
 * For each sample in user mode: whether the registers are those of the thread's last sample, and what a system call that has just returned
 * has returned. And once for every 64 bytes of code in which a thread was sampled: the code.
 */
#pragma once

#include "kernel.bpf.h"

/* Threads whose registers are remembered, and blocks of code that are kept: those not sampled for longest make room. */
#define SPIN_THREADS 4096
#define SPIN_BLOCKS 4096
/* Code is kept by blocks of so many bytes, with the bytes before and after: a loop is found from any place within it. */
#define SPIN_BLOCK 64
#define SPIN_BEFORE 96
#define SPIN_CODE 256

struct spin_signs {
	__u64 same;  /* all general registers were as in the thread's last sample in user mode */
	__u64 zero;  /* rax was 0 */
	__u64 again; /* rax was -EAGAIN */
};

struct spin_thread {
	__u32 tgid;
	__u32 pad;
	__u64 registers;
};

struct spin_place {
	__u32 tgid;
	__u32 pad;
	__u64 block; /* address of the block */
};

struct spin_code {
	__u64 start; /* address of the first byte */
	__u64 length;
	__u8 bytes[SPIN_CODE];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SPIN_THREADS);
	__type(key, __u32);
	__type(value, struct spin_thread);
} spin_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SPIN_BLOCKS);
	__type(key, struct spin_place);
	__type(value, struct spin_code);
} spin_codes SEC(".maps");

/* Too large for the stack, and all zero bytes: never written. */
static const struct spin_code no_code;

static __always_inline bool is_user_mode(struct bpf_perf_event_data *ctx)
{
	return (ctx->regs.cs & 3) == 3;
}

static __always_inline __u64 mixed(__u64 sum, __u64 word)
{
	sum ^= word;
	sum *= 0x9e3779b97f4a7c15ULL;
	return sum ^ sum >> 29;
}

static __always_inline __u64 registers_sum(struct bpf_perf_event_data *ctx)
{
	__u64 sum = 1;

	sum = mixed(sum, ctx->regs.ax);
	sum = mixed(sum, ctx->regs.bx);
	sum = mixed(sum, ctx->regs.cx);
	sum = mixed(sum, ctx->regs.dx);
	sum = mixed(sum, ctx->regs.si);
	sum = mixed(sum, ctx->regs.di);
	sum = mixed(sum, ctx->regs.bp);
	sum = mixed(sum, ctx->regs.sp);
	sum = mixed(sum, ctx->regs.r8);
	sum = mixed(sum, ctx->regs.r9);
	sum = mixed(sum, ctx->regs.r10);
	sum = mixed(sum, ctx->regs.r11);
	sum = mixed(sum, ctx->regs.r12);
	sum = mixed(sum, ctx->regs.r13);
	sum = mixed(sum, ctx->regs.r14);
	return mixed(sum, ctx->regs.r15);
}

static __always_inline void note_signs(struct bpf_perf_event_data *ctx, __u64 id, struct spin_signs *signs)
{
	struct spin_thread fresh = { .tgid = id >> 32, .registers = registers_sum(ctx) }, *known;
	__u32 pid = id;

	signs->zero = ctx->regs.ax == 0;
	signs->again = ctx->regs.ax == -EAGAIN;
	known = bpf_map_lookup_elem(&spin_threads, &pid);
	if (!known) {
		bpf_map_update_elem(&spin_threads, &pid, &fresh, BPF_ANY);
		return;
	}
	/* A thread is on one CPU at a time: no other CPU writes its entry. */
	signs->same = known->registers == fresh.registers && known->tgid == fresh.tgid;
	*known = fresh;
}

static __always_inline void add_signs(struct spin_signs *sum, struct spin_signs *one)
{
	if (one->same)
		__sync_fetch_and_add(&sum->same, 1);
	if (one->zero)
		__sync_fetch_and_add(&sum->zero, 1);
	if (one->again)
		__sync_fetch_and_add(&sum->again, 1);
}

/* Where a thread is in user mode. */
struct user_at {
	__u64 pc, sp, bp;
};

/* As registers_of, also for a current task that BTF does not know. */
static __always_inline struct pt_regs *own_registers(void)
{
	struct task_struct *t = (void *)bpf_get_current_task();

	if (has_helper(get_current_task_btf))
		return registers_of((void *)bpf_get_current_task_btf());
	return BPF_CORE_READ(t, stack) + (4 << 12) - bpf_core_type_size(struct pt_regs);
}

/* Where the current task, sampled in the kernel, will go on in user mode, and its system call. */
static __always_inline void user_side(struct user_at *at, __s32 *call)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	struct pt_regs *regs;

	if (BPF_CORE_READ(t, flags) & PF_KTHREAD)
		return;
	regs = own_registers();
	at->pc = BPF_CORE_READ(regs, ip);
	at->sp = BPF_CORE_READ(regs, sp);
	at->bp = BPF_CORE_READ(regs, bp);
	*call = BPF_CORE_READ(regs, orig_ax); /* interrupts and faults: negative */
	if (*call < 0)
		*call = -1;
}

/* Keep the code around an address, if it is not kept yet. Nothing is faulted in: running code is in memory, its neighbours may not be. */
static __always_inline void keep_code(__u32 tgid, __u64 ip)
{
	struct spin_place place = { .tgid = tgid, .block = ip & ~(__u64)(SPIN_BLOCK - 1) };
	struct spin_code *code;

	if (bpf_map_lookup_elem(&spin_codes, &place) ||
	    bpf_map_update_elem(&spin_codes, &place, &no_code, BPF_NOEXIST))
		return;
	code = bpf_map_lookup_elem(&spin_codes, &place);
	if (!code)
		return;
	code->start = place.block - SPIN_BEFORE;
	code->length = SPIN_CODE;
	if (!bpf_probe_read_user(code->bytes, SPIN_CODE, (void *)code->start))
		return;
	code->start = place.block;
	code->length = SPIN_BLOCK;
	if (bpf_probe_read_user(code->bytes, SPIN_BLOCK, (void *)code->start))
		code->length = 0;
}
