// SPDX-License-Identifier: GPL-2.0
/* Which tasks wait for which kernel lock, for how long, and which task holds it?
 *
 * Every wait for a mutex, rwsem, rtmutex, percpu rwsem or semaphore that sleeps (or, a mutex, spins) is summed by lock and, above 20 us, by
 * call site. The owner is read from the lock word when the wait begins, and again by a timer while it lasts. Spinlocks fire the same
 * tracepoints, also under the run queue's lock: for them we return at once, without a lock, a clock or a map that could be locked.
 *
 * Not seen: the optimistic spinning of rwsems, which fires nothing, and holders of locks that no task waits for.
 */
#include "lock_holds.bpf.h"

#define FRAMES 20
#define USEC 1000ULL
#define MAX_ROWS 16384
#define MAX_STACKS 8192
/* Of shorter waits one in ONE_IN has a call site, the others are summed without one: a stack costs 1 to 3 us. */
#define STACK_FROM (20 * USEC)
#define ONE_IN 32
/* Waits that the timer reads again, by hash of the pid. */
#define LISTED 512
/* The timer of any CPU may do the walk, but not more often than this. */
#define WALK_EVERY (4 * MSEC)

struct locks_key {
	__u64 lock;
	__s32 stack; /* -1: not taken */
	__u16 kind;
	__u16 write;
};

struct locks_row {
	__u64 count;
	__u64 total_ns;
	__u64 worst_ns;
};

/* Besides lock_waits, by pid: values that only this object needs. */
struct locks_begun {
	struct task_struct *owner;
	__u32 listed; /* place in `listed`, + 1 */
	__u32 reader; /* the owner held it for reading */
};

/* The window, CLOCK_MONOTONIC; 0: it has not begun, or ended. Set by user space. */
__u64 counts_from;
__u64 counts_to;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct locks_key);
	__type(value, struct locks_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, MAX_STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, FRAMES * sizeof(__u64));
} sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS + SPARES);
	__type(key, __u32);
	__type(value, struct locks_begun);
} begun SEC(".maps");

/* Pids of waits, by hash; two a word, for the timer. */
__u64 listed[LISTED / 2];
__u64 last_walk;
static __always_inline struct locks_begun *begun_at(__u32 place)
{
	return bpf_map_lookup_elem(&begun, &place);
}

static __always_inline __u32 *listed_at(__u32 at)
{
	return &((__u32 *)listed)[at & (LISTED - 1)];
}

/* List a waiter for the timer. It may have either of two places; if both are taken, the timer does not read it again. */
static __always_inline void list_wait(__u32 pid, struct locks_begun *b)
{
	__u32 at = pid * 2654435761U >> 23;

	b->listed = 0;
	if (*listed_at(at)) {
		at ^= 1;
		if (*listed_at(at))
			return;
	}
	*listed_at(at) = pid;
	b->listed = (at & (LISTED - 1)) + 1;
}

static __always_inline void unlist_wait(__u32 pid, struct locks_begun *b)
{
	__u32 at = b->listed - 1;

	if (b->listed && *listed_at(at) == pid)
		*listed_at(at) = 0;
	b->listed = 0;
}

static __always_inline void open_wait(struct lock_wait *w, __u32 place, __u32 pid, __u64 lock, __u32 kind, __u32 write,
				      __u64 now, struct lock_word *word)
{
	struct locks_begun *b = begun_at(place);

	if (!b)
		return;
	w->since = now;
	w->pid = pid;
	w->kind = kind;
	w->write = write;
	w->owner = word->pid;
	w->owner_again = 0;
	w->reader_owned = word->reader_owned;
	w->lock = lock;
	b->owner = word->task;
	b->reader = word->reader_owned;
	list_wait(pid, b);
}

/* A mutex's wait begins with spinning and goes on asleep: two begins follow each other, but it is one wait. */
static __always_inline void begun_again(struct lock_wait *w, __u64 lock, struct lock_word *word)
{
	if (word->pid && word->pid != w->pid) {
		w->owner_again = word->pid;
		w->reader_owned = word->reader_owned;
	}
}

SEC("tp_btf/contention_begin")
int BPF_PROG(begins, void *lock_pointer, __u32 flags)
{
	int kind = lock_kind_of(flags);
	__u64 lock = (__u64)lock_pointer, now;
	struct lock_word word;
	struct locks_hot *h;
	struct lock_wait *w;
	__u32 pid, place;

	if (kind < 0)
		return 0;
	pid = bpf_get_current_pid_tgid();
	if (!pid)
		return 0;
	place = place_by_pid(pid);
	w = lock_wait_at(place);
	if (!w || (w->lock && w->pid != pid)) {
		__sync_fetch_and_add(&lost, 1); /* another task has the place */
		return 0;
	}
	read_lock_word(lock, kind, &word);
	if (w->lock) {
		if (w->lock == lock) {
			begun_again(w, lock, &word);
			return 0;
		}
		__sync_fetch_and_add(&lost, 1);
		/* On older kernels a writer of a percpu rwsem waits for RCU, and its mutexes, within the wait: the outer wait counts. Other
		 * waits are not nested: if another one is open, its end was missed.
		 */
		if (w->kind == LOCK_PERCPU_RWSEM)
			return 0;
	}
	now = bpf_ktime_get_ns();
	open_wait(w, place, pid, lock, kind, kind == LOCK_MUTEX || kind == LOCK_RTMUTEX || (flags & LCB_F_WRITE), now, &word);
	h = heat(lock, now, false);
	if (h)
		note_word(h, lock, &word, now);
	return 0;
}

/* The part of a wait that lies in the window: objects are attached before it begins, and detached after it has ended. */
static __always_inline __u64 in_window(__u64 since, __u64 now)
{
	__u64 from = since > counts_from ? since : counts_from;
	__u64 to = counts_to && counts_to < now ? counts_to : now;

	return counts_from && to > from ? to - from : 0;
}

/* Sum a wait. When the table is full: with the lock's waits that have no call site, or with those of all locks that have no row (lock 0;
 * user space has made these rows before). So no time is lost, only its lock or call site.
 */
static __always_inline void sum(struct locks_key *key, __u64 ns)
{
	static const struct locks_row none;
	struct locks_row *row = bpf_map_lookup_elem(&rows, key);

	if (!row) {
		bpf_map_update_elem(&rows, key, &none, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&rows, key);
	}
	if (!row && key->stack != -1) {
		key->stack = -1;
		row = bpf_map_lookup_elem(&rows, key);
	}
	if (!row) {
		__sync_fetch_and_add(&lost, 1);
		key->lock = 0;
		row = bpf_map_lookup_elem(&rows, key);
		if (!row)
			return;
	}
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->total_ns, ns);
	worsen(&row->worst_ns, ns);
}

/* A wait is over: report which task held the lock when it began, and which task has it now. */
static __always_inline void tell_holders(struct lock_wait *w, struct locks_begun *b, __u64 now, bool got_it)
{
	bool waited = elapsed(w->since, now) >= HOT_FROM;
	struct locks_hot *h = heat(w->lock, now, waited);

	if (!h)
		return;
	if (waited)
		tell_hold(w->lock, w->since, now, b->owner, w->owner, false, b->reader);
	if (!got_it || (!waited && elapsed(h->reported_at, now) < TELL_EVERY))
		return;
	h->owner = w->pid;
	h->reported_at = now;
	tell_hold(w->lock, now, now, (void *)bpf_get_current_task(), w->pid, true,
		  !w->write && (w->kind == LOCK_RWSEM || w->kind == LOCK_PERCPU_RWSEM));
}

/* Whether this short wait is the one in ONE_IN; the first of a CPU is. */
static __always_inline bool drawn(void)
{
	__u32 zero = 0;
	struct locks_rate *rate = bpf_map_lookup_elem(&rates, &zero);

	return rate && !(rate->shorts++ % ONE_IN);
}

SEC("tp_btf/contention_end")
int BPF_PROG(ends, void *lock_pointer, int ret)
{
	__u32 pid = bpf_get_current_pid_tgid(), place = place_by_pid(pid);
	struct lock_wait *w = lock_wait_at(place);
	struct locks_key key = {};
	struct locks_begun *b;
	__u64 now, ns;

	if (!w || w->lock != (__u64)lock_pointer || w->pid != pid || !w->lock)
		return 0; /* a spinlock, as a rule */
	b = begun_at(place);
	if (!b)
		return 0;
	now = bpf_ktime_get_ns();
	ns = elapsed(w->since, now);
	unlist_wait(pid, b);
	key.lock = w->lock;
	key.kind = w->kind;
	key.write = w->write;
	key.stack = -1;
	if ((ns >= STACK_FROM || drawn()) && may(now, false))
		key.stack = bpf_get_stackid(ctx, &sites, 0);
	if (key.stack < 0)
		key.stack = -1; /* two stacks with one hash: the first has the place */
	tell_holders(w, b, now, !ret);
	ns = in_window(w->since, now);
	w->lock = 0;
	if (ns)
		sum(&key, ns);
	return 0;
}

/* Read the owner again of a wait that lasts. */
static __always_inline void look_again(__u32 pid, __u64 now)
{
	struct lock_wait *w = lock_wait_at(place_by_pid(pid));
	__u64 lock, since;
	struct lock_word word;
	struct locks_hot *h;

	if (!w || w->pid != pid)
		return;
	lock = w->lock;
	since = w->since;
	if (!lock || now < since + 2 * HOT_FROM)
		return;
	read_lock_word(lock, w->kind, &word);
	if (w->lock != lock || w->since != since)
		return; /* it ended while we read */
	if (word.pid && word.pid != pid) {
		w->owner_again = word.pid;
		w->reader_owned = word.reader_owned;
	}
	h = heat(lock, now, true);
	if (h)
		note_word(h, lock, &word, now);
}

static long look_at_two(__u32 at, __u64 *now)
{
	__u64 two = listed[at & (LISTED / 2 - 1)];

	if ((__u32)two)
		look_again(two, *now);
	if (two >> 32)
		look_again(two >> 32, *now);
	return 0;
}

SEC("perf_event")
int again(void *ctx)
{
	__u64 now = bpf_ktime_get_ns(), last = last_walk;

	if (elapsed(last, now) < WALK_EVERY || __sync_val_compare_and_swap(&last_walk, last, now) != last)
		return 0;
	bpf_loop(LISTED / 2, look_at_two, &now, 0);
	return 0;
}

#include "lock_walk.bpf.h"
