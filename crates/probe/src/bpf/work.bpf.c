// SPDX-License-Identifier: GPL-2.0
/* How long do work items wait in their queue, and how long do they run?
 *
 * Queueing happens under the pool's lock, often in interrupts: the time goes into a table of fixed places, without lock or allocation. A
 * worker runs one item at a time, so a running item has a place by the worker's pid. Items that began before we attached, or do not end,
 * are found at the workers themselves. Plain raw tracepoints: typed pointers could not be hashed.
 *
 * An item whose workqueue runs as many as it may (max_active) is held back: workqueue_activate_work comes when an earlier one has ended,
 * and for all others at once. From then on it waits for a worker.
 */
#include "kernel.bpf.h"

#define SLOTS 65536
/* Queued items that we can distinguish: places by hash of the item, in pairs. 256 KiB. */
#define QUEUED 16384
#define MAX_FUNCTIONS 1024
/* Times below 2^i microseconds (of 1024 ns), and not below half of that; the last: longer, too. */
#define TIMES 32
#define NAME 24
/* An item that is not held back is activated in the call that queues it, about a microsecond later. */
#define HELD_BACK_US 100
#define NOT_SEEN (~0ULL)
/* An item that was queued so long ago has been cancelled, unless all is worse than this probe can tell. */
#define GIVEN_UP 10000000000ULL

/* As in shared.bpf.h: fewer where memory is limited. */
const volatile __u32 homes = SLOTS;

/* When an item was queued. */
struct work_queued {
	__u64 work;
	__u64 at;
	__u64 active; /* 0: held back, or its activation was not seen */
};

/* The item that a worker runs. */
struct work_running {
	__u64 function; /* 0: nothing */
	__u64 since;
	__u64 queued_ns; /* or NOT_SEEN */
	__u32 pid;
	__u32 held_us; /* of queued_ns, held back by its workqueue */
};

struct work_open {
	struct work_running item;
	char workqueue[NAME];
};

/* Makes the type known to user space. */
struct work_open work_open_type;

struct work_row {
	__u64 count;
	__u64 queued_ns;
	__u64 queued_count;
	__u64 queued_worst_ns;
	__u64 held_us;
	__u64 held_worst_us;
	__u64 ran_ns;
	__u64 ran_worst_ns;
	__u32 queued_times[TIMES];
	__u32 ran_times[TIMES];
	char workqueue[NAME];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUED);
	__type(key, __u32);
	__type(value, struct work_queued);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct work_running);
} running SEC(".maps");

/* By function. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FUNCTIONS);
	__type(key, __u64);
	__type(value, struct work_row);
} rows SEC(".maps");

/* Items whose queueing or end we saw but could not note. */
__u64 lost;
/* When the window begins: time before it is not counted. */
__u64 began;
/* When the hooks were attached last: what is noted from before may have ended unseen. */
__u64 attached;

/* Items that were started on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} started SEC(".maps");

static __always_inline __u64 within(__u64 at)
{
	return at > began ? at : began;
}

static __always_inline struct work_queued *place(__u64 work, __u32 which)
{
	/* Items are words apart: multiply, and take high bits (Knuth). */
	__u32 at = (((__u32)(work >> 3) * 2654435761U >> 18) ^ which) & (QUEUED - 1);

	return bpf_map_lookup_elem(&queue, &at);
}

static __always_inline struct work_running *running_at(__u32 pid)
{
	__u32 at = pid & (homes - 1);

	return bpf_map_lookup_elem(&running, &at);
}

SEC("raw_tp/workqueue_queue_work")
int BPF_PROG(queued, int cpu, void *pwq, struct work_struct *item)
{
	struct work_queued *q = place((__u64)item, 0), *other = place((__u64)item, 1);
	__u64 work = (__u64)item, now;

	if (!q || !other)
		return 0;
	/* The place of a cancelled item stays taken: the older one of two is given up. */
	if (q->work != work && (other->work == work || (q->work && (!other->work || other->at < q->at))))
		q = other;
	now = bpf_ktime_get_ns();
	if (q->work && q->work != work && q->at >= attached && elapsed(q->at, now) < GIVEN_UP)
		__sync_fetch_and_add(&lost, 1);
	q->at = now;
	q->active = 0;
	q->work = work;
	return 0;
}

SEC("raw_tp/workqueue_activate_work")
int BPF_PROG(activated, struct work_struct *item)
{
	struct work_queued *q = place((__u64)item, 0);

	if (q && q->work != (__u64)item)
		q = place((__u64)item, 1);
	if (q && q->work == (__u64)item)
		q->active = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tp/workqueue_execute_start")
int BPF_PROG(starts, struct work_struct *item)
{
	struct work_queued *q = place((__u64)item, 0);
	__u32 pid = bpf_get_current_pid_tgid();
	struct work_running *r = running_at(pid);
	__u64 now = bpf_ktime_get_ns(), *count;
	__u32 zero = 0;

	count = bpf_map_lookup_elem(&started, &zero);
	if (count)
		*count += 1;
	if (q && q->work != (__u64)item)
		q = place((__u64)item, 1);
	if (!q || !r)
		return 0;
	if (r->function && r->pid != pid && r->since >= attached) {
		__sync_fetch_and_add(&lost, 1); /* a worker whose pid is a multiple of `homes` away has the place */
		return 0;
	}
	r->queued_ns = NOT_SEEN;
	r->held_us = 0;
	if (q->work == (__u64)item && q->at >= attached) {
		r->queued_ns = elapsed(within(q->at), now);
		r->held_us = q->active ? elapsed(within(q->at), q->active) / 1000 : 0;
		if (r->held_us < HELD_BACK_US)
			r->held_us = 0;
	}
	if (q->work == (__u64)item)
		q->work = 0;
	r->pid = pid;
	r->since = now;
	r->function = (__u64)BPF_CORE_READ(item, func);
	return 0;
}

/* Of a task that runs an item. */
static __always_inline void name_workqueue(char *name, struct task_struct *t)
{
	struct task_struct___before_5_17 *old = (void *)t;
	struct workqueue_struct *wq;
	struct kthread *thread;
	struct worker *worker;

	thread = bpf_core_field_exists(t->worker_private) ? BPF_CORE_READ(t, worker_private) :
							    (void *)BPF_CORE_READ(old, set_child_tid);
	worker = BPF_CORE_READ(thread, data);
	wq = BPF_CORE_READ(worker, current_pwq, wq);
	bpf_probe_read_kernel_str(name, NAME, wq->name);
}

static __always_inline struct work_row *row_of(__u64 function)
{
	static const struct work_row none;
	struct work_row *row = bpf_map_lookup_elem(&rows, &function);

	if (row)
		return row;
	bpf_map_update_elem(&rows, &function, &none, BPF_NOEXIST);
	row = bpf_map_lookup_elem(&rows, &function);
	if (row)
		name_workqueue(row->workqueue, (struct task_struct *)bpf_get_current_task());
	else
		__sync_fetch_and_add(&lost, 1);
	return row;
}

static __always_inline void note(__u32 *times, __u64 ns)
{
	__u64 rest = ns >> 10;
	__u32 i = 0;

	while (rest && i < TIMES - 1) {
		rest >>= 1;
		i++;
	}
	__sync_fetch_and_add(&times[i & (TIMES - 1)], 1);
}

static __always_inline void sum(struct work_running *r, __u64 now)
{
	__u64 ns = elapsed(within(r->since), now);
	struct work_row *row = row_of(r->function);

	if (!row)
		return;
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->ran_ns, ns);
	worsen(&row->ran_worst_ns, ns);
	note(row->ran_times, ns);
	if (r->queued_ns == NOT_SEEN || r->since < began)
		return;
	__sync_fetch_and_add(&row->queued_count, 1);
	__sync_fetch_and_add(&row->queued_ns, r->queued_ns);
	worsen(&row->queued_worst_ns, r->queued_ns);
	note(row->queued_times, r->queued_ns);
	if (r->held_us) {
		__sync_fetch_and_add(&row->held_us, r->held_us);
		worsen(&row->held_worst_us, r->held_us);
	}
}

/* The item may be freed by now: only its address is reported, and we do not need it. */
SEC("raw_tp/workqueue_execute_end")
int BPF_PROG(ends, void *item)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct work_running *r = running_at(pid);

	if (!r || r->pid != pid || !r->function)
		return 0; /* it began before we attached, and the walk has missed it */
	if (r->since >= attached)
		sum(r, bpf_ktime_get_ns());
	r->function = 0;
	return 0;
}

/* After the tracepoints are attached: the items that workers already run. */
SEC("iter/task")
int seed(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct work_running *r;
	__u64 function, now;

	if (!t)
		return 0;
	function = work_of(t);
	r = running_at(t->pid);
	if (!function || !r || (r->function && r->since >= attached))
		return 0;
	now = bpf_ktime_get_ns();
	r->queued_ns = NOT_SEEN;
	r->held_us = 0;
	r->pid = t->pid;
	r->since = now;
	r->function = function;
	if (work_of(t) != function && r->since == now)
		r->function = 0; /* it ended while we looked */
	return 0;
}

/* At the end: the items that they still run. */
SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct work_open open = {};
	struct work_running *r;
	__u64 function;

	if (!t)
		return 0;
	function = work_of(t);
	r = running_at(t->pid);
	if (!function || !r)
		return 0;
	open.item = *r;
	if (open.item.pid != (__u32)t->pid || open.item.function != function || open.item.since < attached)
		return 0;
	name_workqueue(open.workqueue, t);
	bpf_seq_write(ctx->meta->seq, &open, sizeof(open));
	return 0;
}
