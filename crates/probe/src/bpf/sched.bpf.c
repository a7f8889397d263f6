// SPDX-License-Identifier: GPL-2.0
/* Where did each task's time go, and which task ended its waits?
 *
 * One slot a task, indexed by pid: no hash, no allocation in sched_switch and sched_waking; time is the run queue's own clock. Short waits
 * are summed. A long wait becomes a row of the task's timeline, with its stack, its system call, its lock and its waker. Stacks are taken
 * when a task's waits of one kind have grown by a threshold since its last stack ("off-CPU sampling"), so their cost is bounded by the time
 * waited.
 */
#include "rows.bpf.h"
#include "other_ends.bpf.h"
#include "titles.bpf.h"
#include "life_marks.bpf.h"

/* Sleepers whose stack is taken at the end of the window: 13 us each. */
#define MAX_SLEEPERS 1000
#define CYCLE_BITS 26 /* longer ones (67 s) are left out: their squares would fill a sum */
/* A stack of a sleeping task is taken each time its sleeps have grown by so much, and for each single sleep of that length. */
#define ASLEEP_STACK (5 * MSEC)
/* After so many stacks of one task they become fewer. */
#define MANY_STACKS 16
/* ... by half each time, and so many times. */
#define HALVINGS 4

/* The kernel's counters of a task that ended in the window. */
struct sched_exit {
	struct sched_slot slot;
	__u64 start_ns;
	__u64 exec_ns;
	__u64 run_delay_ns;
	__u64 switches_in;
	__u64 voluntary;
	__u64 involuntary;
	__u64 written;
	__u64 weight;
	__u64 cpu_cgroup;
	__u64 memory_cgroup;
	__u64 io_cgroup;
	__u64 unified_cgroup;
	__u64 autogroup;
	__u64 autogroup_shares;
	__u32 pid;
	__u32 tgid;
	__u32 ppid;
	__u32 flags;
	__u32 policy;
	__u32 allowed_count;
	__u32 session;
	__u32 tracer;
	char comm[16];
	char parent[16];
	__u64 executed[STATES]; /* as in struct life_marks */
	__u64 ending[STATES];
};

/* Read from the closing walk: a task that still lives, and the end of its timeline. */
struct sched_live {
	struct sched_slot slot;
	struct sched_span_stack row;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} exits SEC(".maps");

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

/* The measurement of `skew`. */
__s64 skew_least;
__u64 skew_tries;
__u64 skew_due;
/* Stacks of sleepers taken by the closing walk. */
__u64 sleepers;
/* Our own process: it must not fill its own tables. */
__u32 own_tgid;

static __always_inline __u32 kind_of_sleep(struct task_struct *t)
{
	__u32 state = task_state(t);

	if (!(state & TASK_UNINTERRUPTIBLE) || (state & TASK_NOLOAD))
		return ASLEEP;
	return BPF_CORE_READ_BITFIELD(t, in_iowait) ? IO : BLOCKED;
}

/* The length of the interval that runs in a slot, at `now`. */
static __always_inline __u64 interval(struct sched_slot *s, __u64 now)
{
	return elapsed(s->since, now);
}

static __always_inline void add(struct sched_slot *s, __u32 state, __u64 ns)
{
	struct sched_sum *sum = &s->sum[state];

	sum->ns += ns;
	sum->count++;
	if (ns > sum->worst_ns)
		sum->worst_ns = ns;
}

/* End the interval that runs in a slot, at `now`; returns its length. */
static __always_inline __u64 close_interval(struct sched_slot *s, __u32 state, __u64 now)
{
	__u64 ns = interval(s, now);

	if (s->state != state) {
		/* We missed how this state began: its time is unknown. */
		s->unknown_ns += ns;
		return 0;
	}
	add(s, state, ns);
	return ns;
}

/* A cycle is: ready, running and waiting for I/O, then one sleep, which ends at `woken`. Whether the sleep gets shorter when the task was
 * awake for longer before it shows whether a timer or an open queue of work absorbs the waits. All of that time counts, not its waits
 * alone: a wait that ends at a set moment (the next period of a quota) is as much shorter as the work before it was longer, and says
 * nothing.
 */
static __always_inline void end_cycle(struct sched_slot *s, __u64 woken)
{
	__u64 awake = elapsed(s->cycle_since, s->since) >> 10, rest = elapsed(s->since, woken) >> 10;

	s->cycle_since = woken;
	if (!s->whole) {
		s->whole = 1; /* the cycle began before the window: half a cycle would bend the slope */
		return;
	}
	if ((awake | rest) >> CYCLE_BITS)
		return;
	s->cycles++;
	s->awake += awake;
	s->rest += rest;
	s->awake_awake += awake * awake;
	s->awake_rest += awake * rest;
	s->rest_rest += rest * rest;
}

static __always_inline bool is_sleep(__u32 state)
{
	return state >= IO && state <= ASLEEP;
}

/* A sleep of `ns` is over, or the window is. */
static __always_inline void accumulate(struct sched_slot *s, __u32 state, __u64 ns)
{
	if (!is_sleep(state))
		return;
	s->unsampled[state] += ns;
	if (ns > s->peak[state])
		s->peak[state] = ns;
}

/* A random part of the threshold: fixed steps would fall in step with waits that alternate. A task that sleeps all the time, as most do,
 * has many stacks soon, and further ones say little more: its threshold grows, up to sixteenfold. Long sleeps, which all have a stack, do
 * not count.
 */
static __always_inline __u64 step(struct sched_slot *s, __u32 state)
{
	__u64 most = s->limit < MSEC ? s->limit : state == ASLEEP ? ASLEEP_STACK << (s->sampled / MANY_STACKS) : MSEC;

	return most / 4 + (((__u64)bpf_get_prandom_u32() * (most - most / 4)) >> 32);
}

/* A stack was taken: set when the next one is due. */
static __always_inline void reset(struct sched_slot *s, __u32 state)
{
	if (state == ASLEEP && s->peak[state] < ASLEEP_STACK && s->sampled < HALVINGS * MANY_STACKS)
		s->sampled++;
	s->unsampled[state] = 0;
	s->peak[state] = 0;
	s->sample_at[state] = step(s, state);
}

/* There was no room for the stack: the next wake-ups do not try again until there is. */
static __always_inline void postpone(struct sched_slot *s, __u32 state)
{
	state = bounded(state);
	s->sample_at[state] = s->unsampled[state] + step(s, state);
}

static __always_inline bool is_due(struct sched_slot *s, __u32 state)
{
	state = bounded(state);
	return is_sleep(state) && (s->unsampled[state] >= s->sample_at[state] || s->peak[state] >= ASLEEP_STACK);
}

/* Whether a stack will be due when the sleep of `ns` is over. */
static __always_inline bool will_be_due(struct sched_slot *s, __u64 ns)
{
	__u32 state = bounded(s->state);

	return s->unsampled[state] + ns >= s->sample_at[state] || ns >= ASLEEP_STACK;
}

/* The task sleeps from now on: set the time from which on its waker is reported in full. */
static __always_inline void fall_asleep(struct sched_slot *s)
{
	__u32 state = bounded(s->state);
	__u64 due = elapsed(s->unsampled[state], s->sample_at[state]);

	s->wake_from = s->limit == ~0ULL || s->limit < due ? s->limit : due;
}

/* Spare places that no task has. Filled by sched.rs. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, SPARES);
	__uint(value_size, sizeof(__u32));
} spare_places SEC(".maps");

/* Another task has `home`. Notes that this task may have made there before its place was known move along. */
static __noinline struct sched_slot *displace(struct sched_slot *home, __u32 pid)
{
	__u32 at, from = pid & (homes - 1);
	struct lock_wait *old, *new;

	if (bpf_map_pop_elem(&spare_places, &at))
		return 0;
	if (bpf_map_update_elem(&displaced, &pid, &at, BPF_ANY)) {
		bpf_map_push_elem(&spare_places, &at, 0);
		return 0;
	}
	home->displaced = 1;
	old = lock_wait_at(from);
	new = lock_wait_at(at);
	if (old && new) {
		__builtin_memset(new, 0, sizeof(*new));
		if (old->pid == pid) {
			*new = *old;
			old->lock = 0;
		}
	}
	return slot_at(at);
}

/* Of two CPUs that want a free home at once at most one gets it. Compare-and-exchange came with v5.12 (5ffa25502b5a), and an older verifier
 * refuses the program for it; an addition that returns nothing is as old as BPF. A CPU that reads 1 after its own addition was alone:
 * another CPU's earlier addition would have made it 2, and a CPU that comes later reads 2 itself.
 */
static __always_inline bool has_won(struct sched_slot *home)
{
	volatile __u32 *claims = &home->claims;

	if (*claims)
		return false;
	__sync_fetch_and_add(&home->claims, 1);
	if (*claims == 1)
		return true;
	__sync_fetch_and_add(&home->claims, -1);
	return false;
}

/* A free slot for a task; one that is followed takes it from one that is not. */
static __always_inline struct sched_slot *free_slot(struct task_struct *t)
{
	struct sched_slot *home = home_of(t->pid), *s;

	if (!home)
		return 0;
	if (home->pid && home->key == (__u32)t->pid) /* the end of an earlier task of this pid was missed */
		return home;
	if (has_won(home))
		return home;
	s = displace(home, t->pid);
	if (s)
		return s;
	__sync_fetch_and_add(&without_place, 1);
	return is_followed(t->pid) && !is_followed(home->pid) ? home : 0;
}

/* `s` is this task's from now on. */
static __always_inline void move_in(struct sched_slot *s, struct task_struct *t, __u32 state, __u64 now, bool born)
{
	s->task = 0; /* until the slot is complete no lookup takes it for this task's */
	__builtin_memset(s, 0, TENANT);
	s->state = state;
	s->since = now;
	s->from = now;
	s->from_mono = now + skew;
	s->at = now;
	s->cycle_since = now;
	s->whole = born;
	s->start = t->start_time;
	s->delay = t->sched_info.run_delay;
	s->limit = (__u32)t->tgid == own_tgid ? ~0ULL : is_followed(t->pid) ? MSEC / 10 : MSEC;
	for (__u32 i = IO; i <= ASLEEP; i++)
		reset(s, i);
	if (is_sleep(state))
		fall_asleep(s);
	s->asks = LOOKED_AT;
	if (born) /* a new task does not run before its maker has made it ready */
		s->creator = (__u32)bpf_get_current_pid_tgid();
	s->pid = t->pid;
	s->key = t->pid;
	s->task = (__u64)t;
}

static __always_inline void claim(struct task_struct *t, __u32 state, __u64 now, bool born)
{
	struct sched_slot *s;

	if (slot_of(t))
		return;
	s = free_slot(t);
	if (s)
		move_in(s, t, state, now, born);
}

/* The task's slot is free again. */
static __always_inline void vacate(struct sched_slot *s)
{
	__u32 key = s->key, at;

	s->task = 0;
	s->pid = 0;
	s->key = 0;
	if (s == home_of(key)) {
		__sync_fetch_and_add(&s->claims, -1);
		return;
	}
	at = spare_place(key);
	if (at == NOWHERE || slot_at(at) != s)
		return;
	bpf_map_delete_elem(&displaced, &key);
	bpf_map_push_elem(&spare_places, &at, 0);
}

static __noinline int follow(__u32 pid)
{
	__u32 at = pid & (homes - 1), one = 1;
	struct followed *f = bpf_map_lookup_elem(&followed, &at);

	if (!f || f->pid == pid)
		return 0;
	if (!f->pid) {
		f->pid = pid;
		return 0;
	}
	if (bpf_map_update_elem(&followed_more, &pid, &one, BPF_ANY))
		__sync_fetch_and_add(&without_place, 1);
	f->more = 1;
	return 0;
}

static __always_inline void unfollow(__u32 pid)
{
	__u32 at = pid & (homes - 1);
	struct followed *f = bpf_map_lookup_elem(&followed, &at);

	if (!f)
		return;
	if (f->pid == pid)
		f->pid = 0;
	else if (f->more)
		bpf_map_delete_elem(&followed_more, &pid);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(born, struct task_struct *t)
{
	if (is_followed(bpf_get_current_pid_tgid())) /* children of followed tasks are followed */
		follow(t->pid);
	else if (is_followed(t->pid)) /* the task that had the number before ended unseen: this is another task */
		unfollow(t->pid);
	claim(t, READY, clock_of(t), true);
	return 0;
}

/* The current task wakes one of process `tgid`: with something that it sends? Data that threads of one process send each other are no
 * requests.
 */
static __always_inline void note_asker(struct sched_slot *s, __u32 tgid)
{
	__u32 by = bpf_get_current_pid_tgid() >> 32;
	__u64 call;

	if (by == tgid || !has_helper(get_current_task_btf))
		return;
	call = call_of(bpf_get_current_task_btf());
	if (!is_send(call) && call != CALL_CONNECT)
		return;
	s->connected = call == CALL_CONNECT;
	s->asked_by = by;
	s->asked_tick = bpf_jiffies64();
}

/* Notes the waker only, and for long waits more: the kernel's own account says since when the task was ready, when it gets a CPU. The run
 * queue's clock of a waker that is a task may be a tick old: then a wait of a few ms passes for a short one, and its waker is reported
 * without name and stack. The clock of an idle CPU stands still.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *t)
{
	struct sched_slot *s = slot_of(t);
	__u64 now, ns, clock, most;
	bool with_stack;
	int serves = 0;
	struct rq *rq;

	if (!s || !is_sleep(s->state) || s->wake_from == ~0ULL)
		return 0;
	if (has_helper(get_current_task_btf)) {
		struct task_struct *current = bpf_get_current_task_btf();

		rq = plain(current)->se.cfs_rq->rq;
		clock = rq->clock;
		s->waker = current->pid;
		if (bpf_core_field_exists(current->softirq_disable_cnt))
			serves = plain(current)->softirq_disable_cnt;
	} else {
		struct task_struct *current = (void *)bpf_get_current_task();

		rq = BPF_CORE_READ(current, se.cfs_rq, rq);
		clock = BPF_CORE_READ(rq, clock);
		s->waker = BPF_CORE_READ(current, pid);
		if (bpf_core_field_exists(current->softirq_disable_cnt))
			serves = BPF_CORE_READ(current, softirq_disable_cnt);
	}
	s->context = context_of(rq, serves);
	if (tells_ready && s->context == WAKE_TASK)
		note_asker(s, t->tgid);
	now = s->limit < MSEC || !s->waker ? bpf_ktime_get_ns() - skew : clock;
	ns = elapsed(s->since, now);
	if (ns < s->wake_from)
		return 0;
	/* Only the stack of an interrupt shows what the interrupt is about. */
	with_stack = will_be_due(s, ns) || (ns >= s->limit && s->context != WAKE_TASK);
	most = with_stack ? stacks_for(t, s->state) : 0;
	s->reported = tell_wake(s, t->tgid, now, ns >= s->limit, most) ? WAKE_REPORTED : WAKE_SEEN;
	return 0;
}

/* The current task answers a client of a unix socket: data came there while it was current, since no softirq brings them. */
static __noinline int note_answer(void)
{
	struct sched_slot *s;

	if (!has_helper(get_current_task_btf))
		return 0;
	s = slot_of(bpf_get_current_task_btf());
	if (!s)
		return 0;
	s->answers = s->asked_by;
	s->answers_tick = s->asked_tick;
	s->asked_by = 0;
	return 0;
}

/* v6.3, 40e0b0908142 ("net/sock: Introduce trace_sk_data_ready()"). Where the kernel has no such event, a wait on one socket is still
 * reported by the other end of that socket.
 */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(data_came, const struct sock *sk)
{
	__u32 zero = 0;
	struct data_ready *ready = bpf_map_lookup_elem(&ready_socket, &zero);

	if (ready)
		ready->sk = (__u64)sk;
	if (sk->__sk_common.skc_family == AF_UNIX && is_unix_client((const struct unix_sock *)sk))
		note_answer();
	return 0;
}

/* The arguments as numbers, which global functions take: (inode, lock, error). */
static __always_inline int note_try(void *ctx, bool is_flock)
{
	__u64 args[3] = {};

	if (bpf_probe_read_kernel(args, sizeof(args), ctx) || !args[0] || !args[1])
		return 0;
	if (!(int)args[2])
		return note_got(args[0], args[1], is_flock);
	return (int)args[2] == -EAGAIN ? note_refused(args[0], args[1], is_flock) : 0;
}

SEC("tp_btf/posix_lock_inode")
int range_tried(void *ctx)
{
	return note_try(ctx, false);
}

SEC("tp_btf/flock_lock_inode")
int file_tried(void *ctx)
{
	return note_try(ctx, true);
}

static __always_inline int tell_with_stack(struct task_struct *t, struct sched_slot *s, __u64 ready, __u64 now,
					   __s64 shift)
{
	struct sched_span_stack *row = bpf_ringbuf_reserve(&rows, sizeof(*row), 0);
	__u32 state = s->slept & 7;

	if (!row)
		return -1;
	fill_span(&row->span, t, s, state, s->at, ready, now, shift);
	row->span.unsampled = s->unsampled[state];
	row->span.peak = s->peak[state];
	row->span.depth = bpf_get_task_stack(t, row->frames, sizeof(row->frames), 0);
	take_out(&row->span, elapsed(s->at, ready), elapsed(ready, now));
	bpf_ringbuf_submit(row, BPF_RB_NO_WAKEUP);
	reset(s, state);
	return 0;
}

static __always_inline int tell_bare(struct task_struct *t, struct sched_slot *s, __u64 at, __u64 ready, __u64 now,
				     __s64 shift)
{
	struct sched_span *span = bpf_ringbuf_reserve(&rows, sizeof(*span), 0);

	if (!span)
		return -1;
	if (elapsed(at, now) >= s->limit) {
		fill_span(span, t, s, s->slept ? s->slept : READY, at, ready, now, shift);
		take_out(span, elapsed(at, ready), elapsed(ready, now));
	} else {
		fill_span(span, t, s, NONE, now, now, now, shift);
	}
	bpf_ringbuf_submit(span, BPF_RB_NO_WAKEUP);
	return 0;
}

/* A stretch of a task's timeline is reported if it ends in a long wait, or in one whose stack is due, or is long itself. Time that cannot
 * be reported now stays in the stretch, for the next row.
 */
static __noinline int tell_span(struct task_struct *t, struct sched_slot *s, __u64 ready, __u64 now)
{
	struct sched_rate *rate = rate_at(now);
	__u64 at = s->slept ? s->at : ready;
	__s64 shift = skew;
	bool with_stack;
	int failed;

	if (!rate)
		return 0;
	with_stack = is_due(s, s->slept);
	if (with_stack && rate->stacks >= stacks_for(t, s->slept)) {
		with_stack = false;
		postpone(s, s->slept);
	}
	if (!with_stack && elapsed(at, now) < s->limit && elapsed(s->from, now) < STRETCH)
		return 0;
	if (rate->rows >= max_rows) {
		__sync_fetch_and_add(&shed, 1);
		return 0;
	}
	rate->rows++;
	if (s->slept && s->reported != WAKE_REPORTED && s->context && elapsed(at, now) >= s->limit)
		tell_waker(s);
	if (with_stack) {
		rate->stacks++;
		failed = tell_with_stack(t, s, ready, now, shift);
	} else {
		failed = tell_bare(t, s, at, ready, now, shift);
	}
	if (failed)
		__sync_fetch_and_add(&lost, 1);
	else
		begin_stretch(s, now, now + shift);
	return 0;
}

/* A long wait whose end was not seen: the task's present stack and system call say nothing about it, its waker does. */
static __noinline int tell_late(struct task_struct *t, struct sched_slot *s, __u64 ready, __u64 now)
{
	__u64 at = s->slept ? s->at : ready;
	struct sched_span *span;
	__s64 shift = skew;

	if (elapsed(at, now) < s->limit)
		return 0;
	span = bpf_ringbuf_reserve(&rows, sizeof(*span), 0);
	if (!span) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	fill_span(span, t, s, NONE, at, ready, now, shift);
	span->state = s->slept ? s->slept : READY;
	take_out(span, elapsed(at, ready), elapsed(ready, now));
	bpf_ringbuf_submit(span, BPF_RB_NO_WAKEUP);
	begin_stretch(s, now, now + shift);
	return 0;
}

static __always_inline void tell_run(struct task_struct *t, __u64 from, __u64 to)
{
	struct sched_run *run = bpf_ringbuf_reserve(&rows, sizeof(*run), 0);

	if (!run) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	run->kind = ROW_RUN;
	run->pid = t->pid;
	run->cpu = bpf_get_smp_processor_id();
	run->from = from + skew;
	run->to = to + skew;
	bpf_ringbuf_submit(run, BPF_RB_NO_WAKEUP);
}

/* The last row of a task. Tasks that lived for less than a millisecond have only their sums reported. */
static __always_inline void tell_end(struct task_struct *t, struct sched_slot *s, __u64 now)
{
	struct sched_span *span;

	if (s->limit >= MSEC && elapsed(s->from, now) < MSEC)
		return;
	span = bpf_ringbuf_reserve(&rows, sizeof(*span), 0);
	if (!span) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	fill_span(span, t, s, NONE, now, now, now, skew);
	span->ended = 1;
	bpf_ringbuf_submit(span, BPF_RB_NO_WAKEUP);
}

static __always_inline void take_marks(struct sched_exit *e, struct task_struct *t)
{
	__u32 pid = e->pid;
	struct life_marks *m = pid == e->tgid ? bpf_map_lookup_elem(&life_marks, &pid) : 0;

	if (!m || m->task != (__u64)t) {
		__builtin_memset(e->executed, 0, sizeof(e->executed));
		__builtin_memset(e->ending, 0, sizeof(e->ending));
		return;
	}
	__builtin_memcpy(e->executed, m->executed, sizeof(e->executed));
	__builtin_memcpy(e->ending, m->ending, sizeof(e->ending));
	bpf_map_delete_elem(&life_marks, &pid);
}

/* `s` is 0 for a task that had no slot: everything but its waits is reported.
 *
 * Pointers are read by helper: for each pointer that is followed the verifier checks by name whether its type is trusted, and searches all
 * types of the kernel for that (btf_nested_type_is_trusted, v6.3, 6fcd486b3a0a), on each path through here.
 */
static __noinline int tell_exit(struct task_struct *t, struct sched_slot *s, __u64 now)
{
	struct sched_exit *e = bpf_ringbuf_reserve(&exits, sizeof(*e), 0);
	struct task_struct *parent = BPF_CORE_READ(t, real_parent);

	if (s)
		tell_end(t, s, now);
	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	if (s) {
		e->slot = *s;
		e->pid = s->pid;
		e->start_ns = s->start;
	} else {
		__builtin_memset(&e->slot, 0, sizeof(e->slot));
		e->slot.creator = BPF_CORE_READ(parent, pid); /* a zero would mean that it is older than the window */
		e->pid = BPF_CORE_READ(t, pid);
		e->start_ns = BPF_CORE_READ(t, start_time);
	}
	e->exec_ns = t->se.sum_exec_runtime;
	e->run_delay_ns = t->sched_info.run_delay;
	e->switches_in = t->sched_info.pcount;
	e->voluntary = t->nvcsw;
	e->involuntary = t->nivcsw;
	e->written = bytes_written(t);
	e->weight = t->se.load.weight;
	e->tgid = t->tgid;
	e->ppid = BPF_CORE_READ(parent, tgid);
	e->flags = t->flags;
	e->session = session_of(t);
	e->tracer = tracer_of(t);
	e->policy = t->policy;
	e->allowed_count = t->nr_cpus_allowed;
	bpf_probe_read_kernel(e->comm, sizeof(e->comm), t->comm);
	BPF_CORE_READ_INTO(&e->parent, parent, group_leader, comm);
	e->cpu_cgroup = css_cgroup_key(task_css(t, cpu_cgrp_id));
	e->memory_cgroup = css_cgroup_key(task_css(t, memory_cgrp_id));
	e->io_cgroup = css_cgroup_key(task_css(t, io_cgrp_id));
	e->unified_cgroup = cgroup_key(BPF_CORE_READ(t, cgroups, dfl_cgrp));
	e->autogroup = autogroup_of(t, &e->autogroup_shares);
	take_marks(e, t);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

static __noinline int ended(struct task_struct *t, struct sched_slot *s, __u64 now)
{
	tell_exit(t, s, now);
	if (s)
		vacate(s);
	return 0;
}

/* Since when the task has been ready: by the kernel's own account, which is right for tasks that were moved from one run queue to another,
 * too. It gets a CPU at `now`.
 */
static __always_inline __u64 ready_since(struct task_struct *t, struct sched_slot *s, __u64 now)
{
	__u64 queued = t->sched_info.last_queued, elsewhere = t->sched_info.run_delay - s->delay;

	if (!queued || queued > now)
		queued = now;
	return queued < s->since + elsewhere ? s->since : queued - elsewhere;
}

/* The task's sleep has been over since `woken`, which ready_since() returned: never before the sleep began. */
static __always_inline void awake(struct sched_slot *s, __u64 woken)
{
	__u32 state = bounded(s->state);
	__u64 ns = woken - s->since;

	add(s, state, ns);
	if (state == ASLEEP)
		end_cycle(s, woken);
	accumulate(s, state, ns);
	s->slept = state;
	s->at = s->since;
	s->state = READY;
	s->since = woken;
	s->throttled = 0;
}

/* The task has a CPU that we did not see it get: some hosts hide a few tasks from tracing, and with them the switches away from these. The
 * kernel noted when the task got the CPU, by the same clock.
 */
static __always_inline void arrived_unseen(struct task_struct *t, struct sched_slot *s, __u64 now)
{
	__u64 arrival = t->sched_info.last_arrival, ready;

	if (arrival < s->since || arrival > now)
		return;
	if (is_sleep(s->state))
		awake(s, ready_since(t, s, arrival));
	if (s->state != READY)
		return;
	ready = s->since;
	close_interval(s, READY, arrival);
	s->state = RUNNING;
	s->since = arrival;
	tell_late(t, s, ready, arrival);
}

/* A thread that executed has got this leader's pid, and the leader the thread's: its slot is where it was. */
static __noinline struct sched_slot *left_behind(struct task_struct *t)
{
	struct task_struct *leader = BPF_CORE_READ(t, group_leader);
	__u32 pid = BPF_CORE_READ(leader, pid);
	struct sched_slot *s = home_of(pid);

	if (leader == t)
		return 0;
	if (s && s->displaced && s->task != (__u64)t)
		s = slot_at(spare_place(pid));
	return s && s->task == (__u64)t ? s : 0;
}

static __noinline int leave_for_good(struct task_struct *t, struct sched_slot *s, __u64 now)
{
	if (!s) {
		s = left_behind(t);
		if (s)
			close_interval(s, RUNNING, now);
	}
	unfollow(t->pid);
	return ended(t, s, now);
}

static __always_inline void leave(struct task_struct *t, bool preempted, __u64 now)
{
	struct sched_slot *s = slot_of(t);

	if (!s) {
		if (task_state(t) & TASK_DEAD)
			leave_for_good(t, 0, now);
		return;
	}
	if (s->state != RUNNING)
		arrived_unseen(t, s, now);
	if (close_interval(s, RUNNING, now) >= LONG_RUN)
		tell_run(t, s->since, now);
	if (elapsed(s->titled, now) > TITLE_AGE) {
		s->titled = now;
		take_title(t, now, false);
	}
	if (wants_cpu(t, preempted)) {
		s->state = READY;
		s->slept = NONE;
		s->reported = 0;
		s->throttled = is_throttled(t);
	} else {
		s->state = kind_of_sleep(t);
		s->delay = t->sched_info.run_delay;
		s->reported = 0;
		s->context = WAKE_UNKNOWN;
		s->holder = s->state == ASLEEP ? mutex_owner(t) : 0;
		refused_sleeps(s, t, s->state == ASLEEP, now + skew);
		s->asked = 0;
		if (s->asks) {
			s->asks--;
			s->asked = s->state == ASLEEP && lies_unread(t);
		}
		s->held = 0;
		if (s->looks) {
			s->looks--;
			s->held = s->state == ASLEEP && is_held_back(s->came_at, s->ports);
			if (s->held)
				s->segments = segments_of(s->came_at);
		}
		fall_asleep(s);
	}
	s->since = now;
	if (task_state(t) & TASK_DEAD)
		leave_for_good(t, s, now);
}

/* The slot of the task that had the pid before `t`. */
static __always_inline struct sched_slot *slot_before(struct task_struct *t)
{
	struct sched_slot *s = home_of(t->pid);

	if (s && s->key != (__u32)t->pid && s->displaced)
		s = slot_at(spare_place(t->pid));
	return s && s->pid && s->key == (__u32)t->pid && s->task != (__u64)t ? s : 0;
}

/* The thread `old` ends here, and its process's pid is another task from now on. The leader may not have left its CPU for the last time:
 * then its notes move to where it will look for them, since it has the thread's pid now. The two change places, and no place is free in
 * between that another task could take.
 */
static __noinline int take_over(struct task_struct *t, __u32 old)
{
	__u64 now = bpf_ktime_get_ns() - skew;
	struct sched_slot *mine = slot_at(place_by_pid(old)), *theirs = slot_before(t), *s;

	if (is_followed(old))
		follow(t->pid);
	unfollow(old);
	if (mine && mine->task == (__u64)t) {
		if (t->sched_info.last_arrival > mine->since) /* off the CPU with the new pid: not noted */
			mine->state = NONE;
		close_interval(mine, RUNNING, now);
		tell_exit(t, mine, now);
		if (theirs) {
			__builtin_memcpy(mine, theirs, TENANT);
			mine->key = old;
		} else {
			vacate(mine);
		}
	}
	if (theirs)
		move_in(theirs, t, RUNNING, now, false);
	else
		claim(t, RUNNING, now, false);
	s = slot_of(t);
	if (!s)
		return 0;
	s->cpu = bpf_get_smp_processor_id();
	s->taken_over = 1;
	s->creator = BPF_CORE_READ(t, real_parent, pid);
	s->exec_base = t->se.sum_exec_runtime;
	s->delay_base = t->sched_info.run_delay;
	return 0;
}

static __noinline int note_phase(struct task_struct *t, bool ends)
{
	struct sched_slot *s = slot_of(t);
	struct life_marks *m = s ? marks_of(t) : 0;
	__u64 now = bpf_ktime_get_ns() - skew;

	if (!m)
		return 0;
	if (s->state != RUNNING)
		arrived_unseen(t, s, now);
	mark(ends ? m->ending : m->executed, s, now, skew);
	return 0;
}

/* A thread that is not its process's first gets the first thread's pid when it executes (fs/exec.c, de_thread). */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed, struct task_struct *t, int old_pid)
{
	if (old_pid != t->pid)
		take_over(t, old_pid);
	title_executed(t);
	note_phase(t, false);
	return 0;
}

/* The first thread of a process counts. From v6.16 on this comes before the memory is freed, earlier behind it (kernel/exit.c, do_exit). */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(ending, struct task_struct *t)
{
	if (t->pid == t->tgid)
		note_phase(t, true);
	return 0;
}

/* The run queue's clock was read some time before ours: the least difference of many is the true one. */
static __noinline int measure_skew(__u64 now)
{
	__s64 difference = (__s64)(bpf_ktime_get_ns() - now);

	if (!skew_tries || difference < skew_least)
		skew_least = difference;
	if (++skew_tries < 16)
		return 0;
	skew = skew_least;
	skew_tries = 0;
	skew_due = now + 20 * MSEC;
	return 0;
}

/* Switches of each CPU: user space detaches sched_waking where they are so many that the cost of both hooks would matter. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} switches SEC(".maps");

static __always_inline void count_switch(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&switches, &zero);

	if (count)
		++*count;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempted, struct task_struct *off, struct task_struct *on)
{
	struct sched_slot *s;
	__u64 now, ready;

	count_switch();
	now = off->pid ? clock_of(off) : clock_of(on);
	if (!skew)
		skew = (__s64)(bpf_ktime_get_ns() - now);
	if (now > skew_due)
		measure_skew(now);
	if (off->pid)
		leave(off, preempted, now);
	s = on->pid ? slot_of(on) : 0;
	if (!s)
		return 0;
	if (is_sleep(s->state))
		awake(s, ready_since(on, s, now));
	ready = s->since;
	close_interval(s, READY, now);
	s->state = RUNNING;
	s->since = now;
	s->cpu = bpf_get_smp_processor_id();
	if (s->reported || elapsed(s->slept ? s->at : ready, now) >= s->limit || elapsed(s->from, now) >= STRETCH)
		tell_span(on, s, ready, now);
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
	if (!(t->flags & PF_KTHREAD))
		find_registers(t);
	if (task_state(t) == TASK_RUNNING)
		state = is_on_cpu(t) ? RUNNING : READY;
	else
		state = kind_of_sleep(t);
	claim(t, state, now, false);
	return 0;
}

/* At the end: the sums of each task that still lives, its open interval included. */
SEC("iter/task")
int finish(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u64 now = bpf_ktime_get_ns() - skew, ns;
	struct sched_live *out;
	struct sched_slot *s;
	__u32 zero = 0, state;

	if (!ended_at)
		ended_at = bpf_jiffies64();
	if (!t)
		return 0;
	s = slot_of(t);
	out = bpf_map_lookup_elem(&live, &zero);
	if (!s || !out)
		return 0;
	out->slot = *s;
	s = &out->slot;
	s->asked_tick = (__u32)ended_at - s->asked_tick + 1; /* as for `sent_ticks` */
	if (is_sleep(s->state) && task_state(t) == TASK_RUNNING && t->sched_info.last_queued)
		awake(s, ready_since(t, s, now)); /* it has been woken, and waits for a CPU */
	state = bounded(s->state);
	ns = interval(s, now);
	add(s, state, ns);
	accumulate(s, state, ns);
	if (is_sleep(state)) {
		fill_span(&out->row.span, t, s, state, s->since, 0, 0, skew);
		take_out(&out->row.span, ns, 0);
		want(&out->row.span, t, ns, is_followed(t->pid));
	} else if (state == READY) {
		__u64 at = s->slept ? s->at : s->since;

		fill_span(&out->row.span, t, s, s->slept ? s->slept : READY, at, s->since, 0, skew);
		take_out(&out->row.span, elapsed(at, s->since), ns);
	} else {
		fill_span(&out->row.span, t, s, NONE, now, now, now, skew);
	}
	out->row.span.depth = 0;
	out->row.span.open_ns = now + skew;
	if (state == RUNNING) /* since when */
		out->row.span.key = now + skew - ns;
	if (is_sleep(state) && s->unsampled[state & 7] >= MSEC && (__u32)t->tgid != own_tgid &&
	    (state != ASLEEP || (!(t->flags & PF_KTHREAD) && sleepers++ < MAX_SLEEPERS))) {
		out->row.span.unsampled = s->unsampled[state & 7];
		out->row.span.peak = s->peak[state & 7];
		out->row.span.depth = bpf_get_task_stack(t, out->row.frames, sizeof(out->row.frames), 0);
	}
	bpf_seq_write(ctx->meta->seq, out, sizeof(*out)); /* if it does not fit the kernel asks again for this task */
	return 0;
}
