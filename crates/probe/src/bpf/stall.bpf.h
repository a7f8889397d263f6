/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A stall of packets: what ran on the CPU meanwhile, and how it is told. */
#pragma once

#include "irq_latency.bpf.h"
#include "call_args.bpf.h"
#include "stall_turn.bpf.h"

/* Stacks of one stall: the last ones. A power of two. */
#define SEEN 16
/* From so many on, the ticks of one task in one system call are one row. */
#define APART 8
/* A stall is looked at so often. */
#define LOOKED_AT_EVERY 500000ULL
/* A softirq that was raised on a CPU that then went offline ran elsewhere. */
#define LATEST 10000000000ULL
#define STALL_BYTES (1 << 20)
#define MAX_STACKS 2048
#define MAX_DEPTH 64

enum stall_kind { STALL_IRQS_OFF, STALL_DEFERRED, STALL_POLL, STALL_QUEUED };

/* What ran there. */
struct stall_seen {
	__u64 at; /* the last time */
	__u32 count; /* ticks */
	__u32 pid;
	__u32 tgid;
	__s32 stack;
	__s32 call; /* -1: none */
	__u32 softirq; /* it was stopped by a softirq, which the tick has stopped */
	char comm[16];
	char file[32];
	char folder[32];
};

struct stall {
	__u32 rows; /* all rows of `seen` so far: the last ones are there */
	__u32 kind;
	__u64 at; /* its end */
	__u64 since; /* its begin */
	__u64 ns;
	__u64 worst; /* STALL_QUEUED: the longest wait; `ns` is their sum */
	__u64 looked;
	__u32 cpu;
	__u32 waits; /* STALL_QUEUED */
	struct stall_seen seen[SEEN];
	struct stall_seen end;
};

struct stall_cpu {
	__u64 raised; /* the receive softirq is raised since then, and not entered */
	__u64 ticks;  /* of the kernel, then */
	__u64 polls; /* the poll that runs began then */
	__u64 gap; /* the end of the last gap that was looked at */
	__u32 by_irq; /* an interrupt raised it */
	__u32 pending; /* `stall` is told if the run handles a packet */
	struct stall stall;
	struct stall_watch watch;
	struct stall queue; /* its waits, of a second at most */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stall_cpu);
} stall_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, STALL_BYTES);
} stalls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, MAX_STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(__u64));
} stall_stacks SEC(".maps");

/* A shorter delay is no stall. Set by stall.rs. */
const volatile __u64 stall_ns;
/* A tick is shorter than that. Set by stall.rs. */
const volatile __u32 longer_than_a_tick;
/* Offset from the run queue to the CPU's preempt count; 0: not known. */
const volatile __s64 preempt_count_at;
/* The window has begun. */
__u32 counting;
/* Polls are hooked. */
__u32 polls_seen = 1;

static __always_inline struct stall_cpu *stall_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&stall_cpus, &zero);
}

/* The system call that the current task is in; -1: none. Interrupts and faults have no number of a call (orig_ax -1), and 32-bit tasks
 * have other numbers.
 */
static __always_inline __s32 call_of(struct task_struct *t)
{
	__u64 nr = BPF_CORE_READ(registers_of(t), orig_ax);

	if (BPF_CORE_READ(t, flags) & PF_KTHREAD || nr >= CALLS || of_current(t, thread_info.status) & TS_COMPAT)
		return -1;
	return nr;
}

/* The file of that call. */
static __always_inline void note_file(struct stall_seen *seen, struct task_struct *t)
{
	struct dentry *dentry;
	struct file *file;

	seen->call = call_of(t);
	seen->file[0] = seen->folder[0] = 0;
	if (seen->call < 0 || (call_file(seen->call) & KIND) != FD)
		return;
	file = file_of_task(t, BPF_CORE_READ(registers_of(t), di));
	if (!file)
		return;
	dentry = BPF_CORE_READ(file, f_path.dentry);
	bpf_probe_read_kernel_str(seen->file, sizeof(seen->file), BPF_CORE_READ(dentry, d_name.name));
	/* Sockets and the like are in no folder: they are their own parents. */
	if (BPF_CORE_READ(dentry, d_parent) != dentry)
		bpf_probe_read_kernel_str(seen->folder, sizeof(seen->folder), BPF_CORE_READ(dentry, d_parent, d_name.name));
}

/* include/linux/preempt.h: bit 8 is set while a softirq is served, be it stopped by an interrupt; bits 16-19 count hard interrupts. */
#define SERVES_SOFTIRQ 0x100
#define IN_IRQ 0xf0000

/* The CPU's count; with PREEMPT_RT softirqs are in the task's own (kernel/softirq.c, local_bh_disable). */
static __always_inline __u32 preempt_count(void)
{
	struct task_struct *t = current_task();
	__u32 count = 0;

	if (!preempt_count_at ||
	    bpf_probe_read_kernel(&count, sizeof(count), (void *)BPF_CORE_READ(t, se.cfs_rq, rq) + preempt_count_at))
		return 0;
	if (bpf_core_field_exists(t->softirq_disable_cnt))
		count |= BPF_CORE_READ(t, softirq_disable_cnt) & SERVES_SOFTIRQ;
	return count;
}

/* With PREEMPT_RT or threadirqs the handlers of interrupts are threads, "irq/NUMBER-NAME" (kernel/irq/manage.c). */
static __always_inline bool is_irq_thread(void)
{
	char comm[16];

	bpf_get_current_comm(comm, sizeof(comm));
	return comm[0] == 'i' && comm[1] == 'r' && comm[2] == 'q' && comm[3] == '/' && BPF_CORE_READ(current_task(), flags) & PF_KTHREAD;
}

static __always_inline bool serves_softirq(void)
{
	return preempt_count() & SERVES_SOFTIRQ;
}

static __always_inline void note_seen(void *ctx, struct stall_seen *seen, __u64 now)
{
	__u64 id = bpf_get_current_pid_tgid();

	seen->at = now;
	seen->count = 1;
	seen->pid = id;
	seen->tgid = id >> 32;
	bpf_get_current_comm(seen->comm, sizeof(seen->comm));
	seen->softirq = serves_softirq();
	seen->stack = (__s32)bpf_get_stackid(ctx, &stall_stacks, 0);
	note_file(seen, current_task());
}

/* A tick within a stall. */
static __always_inline void look(void *ctx, struct stall *s, __u64 now)
{
	__u32 rows = s->rows;
	struct stall_seen *last = &s->seen[(rows - 1) & (SEEN - 1)];

	if (elapsed(s->looked, now) < LOOKED_AT_EVERY)
		return;
	s->looked = now;
	if (rows >= APART && last->pid == (__u32)bpf_get_current_pid_tgid() && last->call == call_of(current_task()) &&
	    last->softirq == serves_softirq()) {
		last->count++;
		last->at = now;
		return;
	}
	note_seen(ctx, &s->seen[rows & (SEEN - 1)], now);
	s->rows = rows + 1;
}

static __always_inline void note(void *ctx, struct stall_cpu *c, __u32 kind, __u64 since, __u64 now)
{
	c->stall.at = now;
	c->stall.since = since;
	c->stall.ns = elapsed(since, now);
	c->stall.cpu = bpf_get_smp_processor_id();
	c->stall.kind = kind;
	note_seen(ctx, &c->stall.end, now);
}

static __always_inline void send(struct stall *s)
{
	if (s->ns >= LATEST || bpf_ringbuf_output(&stalls, s, sizeof(*s), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
	s->rows = 0;
}

static __always_inline void tell(struct stall_cpu *c, __u64 now)
{
	watch_stalled(&c->watch, now, c->stall.ns);
	send(&c->stall);
	c->pending = 0;
}
