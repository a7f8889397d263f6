// SPDX-License-Identifier: GPL-2.0
/* Where did each task's time go: on a CPU, ready for one, waiting for I/O, blocked, asleep?
 *
 * One slot a task, indexed by pid: no hash, no allocation and no bpf_ktime in
 * sched_switch and sched_wakeup; time is the run queue's own clock. A stack is
 * taken only when a task's waits of one kind have grown by a threshold since
 * its last stack ("off-CPU sampling"), so its cost is bounded by the time
 * waited, and the time between two stacks is booked on the later one.
 */
#include "shared.bpf.h"

#define FRAMES 28
#define MSEC 1000000ULL
/* Stacks a CPU may take in 100 ms: at 15 us each, 0.75 % of a CPU. What is over is booked later, not lost. */
#define STACKS_PER_SLICE 50
#define SLICE (100 * MSEC)
/* Sleepers whose stack is taken at the end of the window: 13 us each. */
#define MAX_SLEEPERS 1000

/* What the kernel counted for a task that ended in the window. */
struct sched_exit {
	struct sched_slot slot;
	__u64 start_ns;
	__u64 exec_ns;
	__u64 run_delay_ns;
	__u64 switches_in;
	__u64 voluntary;
	__u64 involuntary;
	__u64 weight;
	__u64 cpu_cgroup;
	__u64 memory_cgroup;
	__u64 io_cgroup;
	__u64 unified_cgroup;
	__u32 pid;
	__u32 tgid;
	__u32 ppid;
	__u32 flags;
	__u32 policy;
	__u32 allowed_count;
	char comm[16];
};

/* A wait's stack, and the waiting it stands for. */
struct sched_stack {
	__u32 pid;
	__u32 tgid;
	__u32 state;
	__s32 depth;
	__u64 ns;
	__u64 worst_ns;
	char comm[16];
	__u64 frames[FRAMES];
};

/* Read from the closing walk: a task that lives on, and the stack of the wait it is in. */
struct sched_live {
	struct sched_slot slot;
	struct sched_stack stack;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} exits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} stacks SEC(".maps");

struct sched_rate {
	__u64 slice;
	__u64 taken;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_rate);
} rates SEC(".maps");

/* For the closing walk; and the skeleton knows the types of map values. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_live);
} live SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_exit);
} exit_type SEC(".maps");

/* Tasks, exits and stacks that we saw but could not note. */
__u64 lost;
/* ktime - run queue clock. Both count from boot; they differ by what NTP slewed. */
__s64 skew;
/* Stacks of sleepers taken by the closing walk. */
__u64 sleepers;
/* Our own process: it must not fill its own tables. */
__u32 own_tgid;

static __always_inline __u64 clock_of(struct task_struct *t)
{
	return t->se.cfs_rq->rq->clock;
}

static __always_inline __u32 kind_of_sleep(struct task_struct *t)
{
	__u32 state = task_state(t);

	if (!(state & TASK_UNINTERRUPTIBLE) || (state & TASK_NOLOAD))
		return ASLEEP;
	return BPF_CORE_READ_BITFIELD(t, in_iowait) ? IO : BLOCKED;
}

/* End the interval that runs in a slot, at `now`; its length. */
static __always_inline __u64 close_interval(struct sched_slot *s, __u32 state, __u64 now)
{
	__u64 ns = now > s->since ? now - s->since : 0;
	struct sched_sum *sum;

	if (s->state != state || state >= STATES) {
		/* We missed how this state came about: its time is nobody's. */
		s->unknown_ns += ns;
		return 0;
	}
	sum = &s->sum[state];
	sum->ns += ns;
	sum->count++;
	if (ns > sum->worst_ns)
		sum->worst_ns = ns;
	return ns;
}

/* A cycle is: ready, running and waiting for I/O, then one sleep. Whether the sleep gets shorter when the
 * waits before it get longer tells whether a timer or an open queue of work absorbs them.
 */
static __always_inline void end_cycle(struct sched_slot *s, __u64 rest_ns)
{
	__u64 wait = s->cycle_wait / 1000, rest = rest_ns / 1000;

	s->cycle_wait = 0;
	if (!s->whole) {
		s->whole = 1; /* it began before the window: half a cycle would bend the slope */
		return;
	}
	s->cycles++;
	s->wait_us += wait;
	s->rest_us += rest;
	s->wait_wait += wait * wait;
	s->wait_rest += wait * rest;
	s->rest_rest += rest * rest;
}

static __always_inline bool may_take_stack(__u64 now)
{
	__u32 zero = 0;
	struct sched_rate *rate = bpf_map_lookup_elem(&rates, &zero);

	if (!rate)
		return false;
	if (now - rate->slice > SLICE) {
		rate->slice = now;
		rate->taken = 0;
	}
	return rate->taken++ < STACKS_PER_SLICE;
}

static __always_inline void fill_stack(struct sched_stack *stack, struct task_struct *t, struct sched_slot *s,
				       __u32 state)
{
	stack->pid = t->pid;
	stack->tgid = t->tgid;
	stack->state = state;
	stack->ns = s->debt[state];
	stack->worst_ns = s->peak[state];
	bpf_probe_read_kernel(stack->comm, sizeof(stack->comm), t->comm);
	stack->depth = bpf_get_task_stack(t, stack->frames, sizeof(stack->frames), 0);
}

/* A task that slept is put on a CPU: its stack is still that of the sleep. */
static __always_inline void pay(struct task_struct *t, struct sched_slot *s, __u64 now)
{
	__u64 state = s->slept;
	struct sched_stack *stack;

	s->slept = NONE;
	if (state < IO || state > ASLEEP || (__u32)t->tgid == own_tgid)
		return;
	if (s->debt[state] < (state == ASLEEP ? 20 * MSEC : MSEC) || !may_take_stack(now))
		return;
	stack = bpf_ringbuf_reserve(&stacks, sizeof(*stack), 0);
	if (!stack) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	fill_stack(stack, t, s, state);
	bpf_ringbuf_submit(stack, BPF_RB_NO_WAKEUP);
	s->debt[state] = 0;
	s->peak[state] = 0;
}

/* A sleep of `ns` is over, or the window is. */
static __always_inline void owe(struct sched_slot *s, __u32 state, __u64 ns)
{
	if (state < IO || state > ASLEEP)
		return;
	s->debt[state] += ns;
	if (ns > s->peak[state])
		s->peak[state] = ns;
	s->slept = state;
}

static __always_inline void claim(struct task_struct *t, __u32 state, __u64 now, bool born)
{
	static const struct sched_slot none;
	struct sched_slot *s = slot_at(t->pid);

	if (!s)
		return;
	if (s->pid && s->pid != (__u32)t->pid) {
		__sync_fetch_and_add(&lost, 1); /* pid_max is above SLOTS, and two tasks share a slot */
		return;
	}
	if (s->pid && !born)
		return;
	*s = none;
	s->state = state;
	s->since = now;
	s->whole = born;
	s->pid = t->pid;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(born, struct task_struct *t)
{
	claim(t, READY, clock_of(t), true);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(woken, struct task_struct *t)
{
	struct sched_slot *s = slot_of(t);
	__u64 now, ns;
	__u32 state;

	if (!s || s->state == READY || s->state == RUNNING)
		return 0; /* woken before it slept */
	now = clock_of(t);
	state = s->state;
	ns = close_interval(s, state, now);
	if (state == ASLEEP)
		end_cycle(s, ns);
	else
		s->cycle_wait += ns;
	owe(s, state, ns);
	s->state = READY;
	s->since = now;
	return 0;
}

static __always_inline void ended(struct task_struct *t, struct sched_slot *s)
{
	struct sched_exit *e = bpf_ringbuf_reserve(&exits, sizeof(*e), 0);

	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		s->pid = 0;
		return;
	}
	e->slot = *s;
	s->pid = 0;
	e->start_ns = t->start_time;
	e->exec_ns = t->se.sum_exec_runtime;
	e->run_delay_ns = t->sched_info.run_delay;
	e->switches_in = t->sched_info.pcount;
	e->voluntary = t->nvcsw;
	e->involuntary = t->nivcsw;
	e->weight = t->se.load.weight;
	e->pid = t->pid;
	e->tgid = t->tgid;
	e->ppid = t->real_parent->tgid;
	e->flags = t->flags;
	e->policy = t->policy;
	e->allowed_count = t->nr_cpus_allowed;
	bpf_probe_read_kernel(e->comm, sizeof(e->comm), t->comm);
	e->cpu_cgroup = css_cgroup_key(task_css(t, cpu_cgrp_id));
	e->memory_cgroup = css_cgroup_key(task_css(t, memory_cgrp_id));
	e->io_cgroup = css_cgroup_key(task_css(t, io_cgrp_id));
	e->unified_cgroup = cgroup_key(BPF_CORE_READ(t, cgroups, dfl_cgrp));
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempted, struct task_struct *off, struct task_struct *on)
{
	struct sched_slot *s;
	__u64 now, ns;

	now = off->pid ? clock_of(off) : clock_of(on);
	if (!skew)
		skew = (__s64)(bpf_ktime_get_ns() - now);
	s = off->pid ? slot_of(off) : 0;
	if (s) {
		close_interval(s, RUNNING, now);
		s->state = wants_cpu(off, preempted) ? READY : kind_of_sleep(off);
		s->since = now;
		if (task_state(off) & TASK_DEAD)
			ended(off, s);
	}
	s = on->pid ? slot_of(on) : 0;
	if (!s)
		return 0;
	ns = close_interval(s, READY, now);
	s->cycle_wait += ns;
	s->state = RUNNING;
	s->since = now;
	pay(on, s, now);
	return 0;
}

/* At the start: every task that is already there gets its slot. */
SEC("iter/task")
int seed(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u64 now = bpf_ktime_get_ns() - skew;
	__u32 state;

	if (!t || !t->pid)
		return 0;
	if (task_state(t) == TASK_RUNNING)
		state = is_on_cpu(t) ? RUNNING : READY;
	else
		state = kind_of_sleep(t);
	claim(t, state, now, false);
	return 0;
}

/* At the end: what each task that lives on has come to, its open interval included. */
SEC("iter/task")
int finish(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u64 now = bpf_ktime_get_ns() - skew, ns;
	struct sched_live *out;
	struct sched_slot *s;
	__u32 zero = 0, state;

	if (!t)
		return 0;
	s = slot_of(t);
	out = bpf_map_lookup_elem(&live, &zero);
	if (!s || !out)
		return 0;
	out->slot = *s;
	s = &out->slot;
	state = s->state;
	ns = close_interval(s, state, now);
	owe(s, state, ns);
	out->stack.depth = 0;
	out->stack.ns = 0;
	if (state >= IO && state <= ASLEEP && s->debt[state] >= MSEC && (__u32)t->tgid != own_tgid &&
	    (state != ASLEEP || (!(t->flags & PF_KTHREAD) && sleepers++ < MAX_SLEEPERS)))
		fill_stack(&out->stack, t, s, state);
	bpf_seq_write(ctx->meta->seq, out, sizeof(*out)); /* if it does not fit the kernel asks again for this task */
	return 0;
}
