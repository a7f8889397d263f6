/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The rows of timelines: one long wait, and the sums of the time before it.
 *
 * Nothing here runs for a short wait. Rows and stacks have a budget per CPU; beyond it a wait stays in the sums of the stretch: resolution
 * is dropped, no time is lost.
 */
#pragma once

#include "shared.bpf.h"
#include "peers.bpf.h"
#include "polls.bpf.h"
#include "user_lock.bpf.h"
#include "lock_retry.bpf.h"

#define FRAMES 28
#define WAKER_FRAMES 18 /* the first six are ours and try_to_wake_up's */
#define MSEC 1000000ULL
#define SLICE (100 * MSEC)
/* A stretch without a long wait is reported when it is this long. */
#define STRETCH (10 * MSEC)
/* A run without a break is reported from here on. */
#define LONG_RUN (MSEC / 2)

enum row_kind { ROW_SPAN, ROW_WAKE, ROW_RUN };
enum wake_context { WAKE_UNKNOWN, WAKE_TASK, WAKE_SOFTIRQ, WAKE_HARDIRQ, WAKE_NMI };

/* Times are CLOCK_MONOTONIC. */
struct sched_span {
	__u32 kind;
	__u32 pid;
	__u32 tgid;
	__u32 state;
	__u64 from;
	__u64 at;
	__u64 woken; /* 0: not yet */
	__u64 to;
	__u64 key; /* of the sched_wake that ended the wait */
	__u64 mixed[8]; /* by state */
	__u64 unknown;
	__u32 cpu;
	__u32 throttled;
	__u32 ended;
	__s32 syscall; /* -1: none */
	__u64 args[4];
	__u64 lock;
	__u64 lock_since;
	__u32 lock_kind;
	__u32 lock_write;
	__u32 owner;
	__u32 owner_again;
	__u32 reader_owned;
	__u32 device;
	__u64 work; /* function of the work item, if it is a worker */
	__u64 ino;
	__u32 dev;
	__u32 mode; /* 0: no file */
	__u32 family;
	__u32 port;
	__u8 address[16];
	struct sched_ends polled; /* for a wait at several sockets that nothing has ended */
	__u32 connecting;
	__u32 other_end; /* for an open row: number in `other_ends`; 0: none */
	__u64 waits_at; /* the socket: compared, and never reported */
	__u64 lock_file; /* the open file through which the lock on `file` was taken: compared, and never reported */
	__u64 open_ns; /* time of the closing walk */
	__u64 unsampled;
	__u64 peak;
	__s32 depth; /* bytes; 0: no stack was taken */
	__u32 holder; /* holder of the user space lock that it waited for; 0: not known */
	__u16 refused; /* the lock is one on `file`, for which the task tried before it went to sleep, and which is still held */
	__u16 asked; /* as the task went to sleep, a service had not read yet what the task had sent through a unix socket */
	__u32 held; /* as the task went to sleep, data that it had written to the connection whose data woke it were held back */
	__u32 io_file; /* id of the file that it had queued I/O about last, just before */
	char comm[16];
	char file[32];
};

struct sched_span_stack {
	struct sched_span span;
	__u64 frames[FRAMES];
};

struct sched_wake {
	__u32 kind;
	__u32 pid; /* the task that is woken */
	__u64 key; /* when the sleep began, by the run queue's clock */
	__u32 waker;
	__u32 waker_tgid;
	__u32 context;
	__s32 depth;
	__u64 work;
	char comm[16];
	struct sched_ends ready; /* socket where data came, for a task that a softirq woke */
	struct sched_ends sends; /* socket of the system call that the current task is in */
	__s32 call; /* that call; -1: none */
	__u32 sent_ticks; /* ticks, and one, since its own end sent something; unix socket: since that woke the answering service; 0: not known */
	__u32 unix_role;
	__u32 by_data; /* data that came at a socket wake its waiters */
	__u64 frames[WAKER_FRAMES];
};

struct sched_run {
	__u32 kind;
	__u32 pid;
	__u32 cpu;
	__u32 unused;
	__u64 from;
	__u64 to;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} rows SEC(".maps");

struct sched_rate {
	__u64 slice;
	__u64 rows;
	__u64 stacks;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_rate);
} rates SEC(".maps");

/* The skeleton knows the types of map values only. */
struct sched_types {
	struct sched_span_stack span;
	struct sched_wake wake;
	struct sched_run run;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_types);
} row_types SEC(".maps");

/* Rows and stacks a CPU may take in a slice of 100 ms; at 1 us and 15 us each. User space sets them. */
const volatile __u64 max_rows = 1000;
const volatile __u64 max_stacks = 50;
/* Offset from the run queue to the CPU's preempt count; 0: this kernel does not say where that is. */
const volatile __s64 preempt_count_at = 0;
/* System calls whose first argument is a file descriptor. */
const volatile __u64 takes_fd[8] = {};
/* Packets show the socket where they came (sk_data_ready): the polled sockets need not be read. */
const volatile bool tells_ready = false;

/* Exits and rows that we saw but could not note. */
__u64 lost;
/* Tasks without a slot, or followed tasks that could not be noted as such: user space knows which. */
__u64 without_place;
/* Waits over the budget: their time stays in the sums. */
__u64 shed;
/* ktime - run queue clock. Both count from boot; they differ by what NTP slewed. */
__s64 skew;

static __always_inline struct sched_rate *rate_at(__u64 now)
{
	__u32 zero = 0;
	struct sched_rate *rate = bpf_map_lookup_elem(&rates, &zero);

	if (rate && elapsed(rate->slice, now) > SLICE) {
		rate->slice = now;
		rate->rows = 0;
		rate->stacks = 0;
	}
	return rate;
}

/* The context that the CPU of this run queue is in. include/linux/preempt.h: bits 8-15 softirq (bit 8: serving one, else only disabled),
 * 16-19 hardirq, 20-23 nmi.
 */
static __always_inline __u32 context_on(struct rq *rq)
{
	__u32 count;

	if (!preempt_count_at || !rq)
		return WAKE_UNKNOWN;
	if (bpf_ksym_exists(bpf_rdonly_cast))
		count = as(struct load_weight, (void *)rq + preempt_count_at)->weight; /* as good as any that begins with a number */
	else if (bpf_probe_read_kernel(&count, sizeof(count), (void *)rq + preempt_count_at))
		return WAKE_UNKNOWN;
	if (count & 0xf00000)
		return WAKE_NMI;
	if (count & 0xf0000)
		return WAKE_HARDIRQ;
	return count & 0x100 ? WAKE_SOFTIRQ : WAKE_TASK;
}

/* The same for a waker with a count of its own: with PREEMPT_RT softirqs run in threads (ktimers, ksoftirqd), as tasks by the CPU's count;
 * whether a task serves one is in the same bit of the task's own count (kernel/softirq.c, local_bh_disable).
 */
static __always_inline __u32 context_of(struct rq *rq, int serves)
{
	__u32 context = context_on(rq);

	return context == WAKE_TASK && serves & 0x100 ? WAKE_SOFTIRQ : context;
}

/* How many stacks of a CPU's budget may be used before the one of a wait in this state. For sleeping tasks the limit is lower, to keep a
 * part for the other waits: more tasks wait for a task that waits uninterruptibly, and it wakes less often. Sleeping kernel threads nearly
 * always have nothing to do, and their stack says just that; with PREEMPT_RT each CPU has several that each tick wakes (ktimers, ksoftirqd,
 * rcuc), which alone would use more than the whole budget. The limits are zones, not shares: unused stacks go to the other waits.
 */
static __always_inline __u64 stacks_for(struct task_struct *t, __u32 state)
{
	if (state != ASLEEP)
		return max_stacks;
	return t->flags & PF_KTHREAD ? max_stacks / 2 : max_stacks * 4 / 5;
}

/* The two are the ends of one connection within this host. */
static __always_inline bool are_ends(const struct sched_ends *one, const struct sched_ends *other)
{
	return one->family && one->netns == other->netns && one->local_port == other->peer_port &&
	       one->peer_port == other->local_port && one->protocol == other->protocol;
}

/* A softirq wakes: notes the sockets that sent and received. True: the current task has sent the data, and its stack would say no more. */
static __always_inline bool note_delivery(struct sched_wake *wake, struct sched_slot *s, struct task_struct *t)
{
	__u32 zero = 0;
	struct data_ready *ready = bpf_map_lookup_elem(&ready_socket, &zero);

	if (ready && ready->sk) {
		note_ends(&wake->ready, (struct sock *)ready->sk);
		wake->sent_ticks = ticks_since_sent((struct sock *)ready->sk);
		wake->by_data = wakes_by_data((struct sock *)ready->sk);
		if (s->held && (s->came_at != ready->sk || !wake->by_data || !was_let_go(ready->sk, s->segments)))
			s->held = 0;
		if (wake->by_data && wake->ready.protocol == IPPROTO_TCP) {
			s->came_at = ready->sk;
			s->ports = ports_of((struct sock *)ready->sk);
			s->looks = HELD_LOOKS;
		}
	}
	wake->call = note_sender(&wake->sends, t, takes_fd);
	return wake->by_data && are_ends(&wake->sends, &wake->ready);
}

/* Ticks, and one, since a process woke the service `t` with its request, if the service sends something to a client for the first time
 * since; 0: it does not.
 */
static __always_inline __u32 ticks_since_asked(__u32 tgid, struct task_struct *t)
{
	struct sched_slot *service = slot_of(t);

	return service && service->answers == tgid ? (__u32)bpf_jiffies64() - service->answers_tick + 1 : 0;
}

/* Report the waker of a task of process `tgid` at once, in the waker's own context, with a stack if no more than `most` were taken. 0:
 * there was no room. Not inlined: it is the rare path.
 */
static __noinline int tell_wake(struct sched_slot *s, __u32 tgid, __u64 now, bool long_one, __u64 most)
{
	__u64 current = bpf_get_current_pid_tgid();
	struct sched_rate *rate = rate_at(now);
	struct sched_wake *wake;
	bool is_told = false;

	if (!rate || rate->rows >= max_rows)
		return 0;
	if (!long_one && rate->stacks >= most)
		return 0;
	rate->rows++;
	wake = bpf_ringbuf_reserve(&rows, sizeof(*wake), 0);
	if (!wake) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	wake->kind = ROW_WAKE;
	wake->pid = s->pid;
	wake->key = s->since;
	wake->waker = current;
	wake->waker_tgid = current >> 32;
	wake->context = s->context;
	wake->work = 0;
	wake->call = -1;
	wake->sent_ticks = wake->unix_role = wake->by_data = 0;
	__builtin_memset(&wake->ready, 0, sizeof(wake->ready));
	__builtin_memset(&wake->sends, 0, sizeof(wake->sends));
	bpf_get_current_comm(wake->comm, sizeof(wake->comm));
	wake->depth = 0;
	if (has_helper(get_current_task_btf)) { /* without it, only the waker's pid */
		struct task_struct *t = bpf_get_current_task_btf();

		if (wake->context == WAKE_TASK) {
			wake->work = work_of(t);
			bool unread = false;

			wake->unix_role = unix_role(t, takes_fd, &unread);
			if (wake->unix_role == UNIX_ANSWERS || wake->unix_role == UNIX_TAKES) {
				s->asks = LOOKED_AT;
				if (unread) /* a service that has not read what was sent sends news: unread data only show that the last ones have come */
					s->asked = 0;
				else if (tells_ready && wake->unix_role == UNIX_ANSWERS)
					wake->sent_ticks = ticks_since_asked(tgid, t);
			}
		} else if (wake->context == WAKE_SOFTIRQ) {
			is_told = note_delivery(wake, s, t);
		}
		if (rate->stacks < most && !is_told) {
			rate->stacks++;
			wake->depth = bpf_get_task_stack(t, wake->frames, sizeof(wake->frames), 0);
		}
	}
	bpf_ringbuf_submit(wake, BPF_RB_NO_WAKEUP);
	return 1;
}

/* The same afterwards, from the task that is on the CPU now: only the values in the slot. */
static __noinline int tell_waker(struct sched_slot *s)
{
	struct sched_wake *wake = bpf_ringbuf_reserve(&rows, sizeof(*wake), 0);

	if (!wake) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	__builtin_memset(wake, 0, sizeof(*wake));
	wake->kind = ROW_WAKE;
	wake->pid = s->pid;
	wake->key = s->at;
	wake->waker = s->waker;
	wake->context = s->context;
	bpf_ringbuf_submit(wake, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The other end of a socket. */
static __always_inline void note_peer(struct sched_span *span, struct sock *sk)
{
	span->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	span->port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	if (span->family == AF_INET)
		bpf_probe_read_kernel(span->address, 4, &sk->__sk_common.skc_daddr);
	else if (span->family == AF_INET6)
		bpf_probe_read_kernel(span->address, 16, &sk->__sk_common.skc_v6_daddr);
}

/* The task that took a lock on a file. If the lock belongs to an open file (flock, OFD), each process that has that file open holds it, and
 * the taker may be gone.
 */
static __always_inline void note_holder(struct sched_span *span, __u64 lock, bool refused)
{
	struct claim held = {};

	if (!lock)
		return;
	read_claim(&held, lock);
	/* For an OFD lock that refuses, it is not known whether the taker still has it. */
	span->holder = refused && held.of_open_file == FL_OFDLCK ? 0 : held.pid;
	if (held.of_open_file)
		span->lock_file = held.file;
}

/* The system call that the task is in, and its file. A task that is not current is not in user mode: its registers of the last entry into
 * the kernel are on its stack. Page faults and interrupts have orig_ax -1.
 */
static __always_inline void note_call(struct sched_span *span, struct task_struct *t, struct pt_regs *regs)
{
	struct file *file;
	struct inode *inode;
	struct socket *socket;
	struct dentry *dentry;
	__u64 nr;

	if (BPF_CORE_READ(t, flags) & PF_KTHREAD)
		return;
	nr = BPF_CORE_READ(regs, orig_ax);
	if (nr >= 512)
		return;
	span->syscall = nr;
	span->args[0] = BPF_CORE_READ(regs, di);
	span->args[1] = BPF_CORE_READ(regs, si);
	span->args[2] = BPF_CORE_READ(regs, dx);
	span->args[3] = BPF_CORE_READ(regs, r10);
	if (!(takes_fd[nr / 64 & 7] >> (nr & 63) & 1))
		return;
	file = file_of_task(t, span->args[0]);
	inode = file ? BPF_CORE_READ(file, f_inode) : 0;
	if (!inode)
		return;
	if (nr == NR_FLOCK || (nr == NR_FCNTL && (span->args[1] == F_SETLKW || span->args[1] == F_OFD_SETLKW)))
		note_holder(span, file_lock_in_the_way((__u64)inode, nr == NR_FLOCK, span->tgid), false);
	span->mode = BPF_CORE_READ(inode, i_mode);
	span->ino = BPF_CORE_READ(inode, i_ino);
	span->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	dentry = BPF_CORE_READ(file, f_path.dentry);
	bpf_probe_read_kernel_str(span->file, sizeof(span->file), BPF_CORE_READ(dentry, d_name.name));
	if ((span->mode & 0170000) != 0140000)
		return;
	socket = BPF_CORE_READ(file, private_data);
	span->waits_at = (__u64)BPF_CORE_READ(socket, sk);
	note_peer(span, (void *)span->waits_at);
}

/* Note the one socket that the task polls. */
static __always_inline void note_polled(struct sched_span *span, struct task_struct *t)
{
	__u64 call = span->syscall;
	__u32 which = !span->woken;
	struct poll_stack *s = bpf_map_lookup_elem(&poll_stacks, &which);
	struct sock *sk;

	if (!s || !(is_poll(call) || is_epoll(call)))
		return;
	s->task = (__u64)t;
	s->set = is_epoll(call) ? file_of_task(t, span->args[0]) : 0;
	if (is_epoll(call) && !s->set)
		return;
	sk = (void *)polled_socket(which);
	if (!sk)
		return;
	span->waits_at = (__u64)sk;
	note_ends(&span->polled, sk);
	span->connecting = BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_SYN_SENT;
}

static __always_inline void note_lock(struct sched_span *span, __u32 pid)
{
	struct lock_wait *wait = lock_wait_at(place_by_pid(pid));

	if (!wait || !wait->lock || wait->pid != pid)
		return;
	span->lock = wait->lock;
	span->lock_since = wait->since;
	span->lock_kind = wait->kind;
	span->lock_write = wait->write;
	span->owner = wait->owner;
	span->owner_again = wait->owner_again;
	span->reader_owned = wait->reader_owned;
}

/* `t` sleeps, or has slept: this sleep counts. */
static __always_inline void note_device(struct sched_span *span, struct task_struct *t, __u32 pid)
{
	__u32 at = place_by_pid(pid);
	struct last_io *last = bpf_map_lookup_elem(&last_device, &at);

	if (!last)
		return;
	span->device = last->dev;
	if ((__u16)(last->switches + 1) == (__u16)t->nvcsw)
		span->io_file = last->file;
}

/* The task sleeps until it tries again, and another process still holds the lock. */
static __noinline int note_refusal(struct sched_span *span, __u32 pid)
{
	struct refusal *r = bpf_map_lookup_elem(&refusals, &pid);
	__u64 lock;

	if (!r || !span)
		return 0;
	lock = lock_that_refuses(pid);
	if (!lock)
		return 0;
	span->refused = 1;
	note_holder(span, lock, true);
	span->ino = r->ino;
	span->dev = r->dev;
	span->mode = r->mode;
	__builtin_memcpy(span->file, r->file, sizeof(span->file));
	return 0;
}

/* A pointer as a number, which the verifier does not follow: global functions take numbers. */
static __always_inline __u64 as_number(void *pointer)
{
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &pointer);
	return number;
}

enum { ASK_RETRY = 1, ASK_POLLED = 2 };

/* What a task waits for, by its registers and the notes of other hooks. Global: the verifier checks it once, and not on each path to it,
 * which took 0.1 s of the start.
 */
__noinline int note_wait(struct sched_span *span, __u64 task, __u64 regs, __u32 asked)
{
	struct task_struct *t = (void *)task;

	if (!span)
		return 0;
	note_call(span, t, (void *)regs);
	if (asked & ASK_RETRY && is_nap(span->syscall))
		note_refusal(span, span->pid);
	if (asked & ASK_POLLED)
		note_polled(span, t);
	note_lock(span, span->pid);
	return 0;
}

/* All of a row but its stack. `woken` and `to` are 0 if the wait still lasts. */
static __always_inline void fill_span(struct sched_span *span, struct task_struct *t, struct sched_slot *s, __u32 state,
				      __u64 at, __u64 woken, __u64 to, __s64 shift)
{
	__builtin_memset(span, 0, sizeof(*span));
	span->kind = ROW_SPAN;
	span->pid = s->pid; /* for a leader whose pid one of its threads has taken over: the pid that it had */
	span->tgid = t->tgid;
	span->state = state;
	span->from = s->from_mono;
	span->at = at + shift;
	span->woken = woken ? woken + shift : 0;
	span->key = at;
	span->to = to ? to + shift : 0;
	span->cpu = s->cpu;
	span->syscall = -1;
	bpf_probe_read_kernel(span->comm, sizeof(span->comm), t->comm);
	for (int i = RUNNING; i < STATES; i++)
		span->mixed[i] = elapsed(s->base[i], s->sum[i].ns);
	span->unknown = elapsed(s->base_unknown, s->unknown_ns);
	if (state == NONE)
		return;
	span->throttled = s->throttled;
	if (state == READY)
		return;
	span->work = work_of(t);
	if (state == IO || state == BLOCKED)
		note_device(span, t, s->pid);
	span->holder = s->holder;
	span->asked = s->asked;
	span->held = s->held;
	note_wait(span, s->task, as_number(registers_of(t)),
		  (s->lock_retry == REFUSED_NAPS && state == ASLEEP ? ASK_RETRY : 0) |
		  (!woken || s->context == WAKE_HARDIRQ || (s->context == WAKE_SOFTIRQ && !tells_ready) ? ASK_POLLED : 0));
}

/* The stretch that ends at `now` is reported. */
static __always_inline void begin_stretch(struct sched_slot *s, __u64 now, __u64 mono)
{
	s->from = now;
	s->from_mono = mono;
	for (int i = RUNNING; i < STATES; i++)
		s->base[i] = s->sum[i].ns;
	s->base_unknown = s->unknown_ns;
}

/* The sums contain the row's own wait, too. */
static __always_inline void take_out(struct sched_span *span, __u64 waited, __u64 ready)
{
	__u32 state = span->state & 7;

	if (state >= IO && state <= ASLEEP)
		span->mixed[state] -= span->mixed[state] < waited ? span->mixed[state] : waited;
	span->mixed[READY] -= span->mixed[READY] < ready ? span->mixed[READY] : ready;
}

/* The task leaves the CPU because its group's quota has run out. */
static __always_inline bool is_throttled(struct task_struct *t)
{
	struct task_struct___throttled *new = (void *)t;
	struct cfs_rq___before_6_18 *old = (void *)t->se.cfs_rq;

	if (bpf_core_field_exists(new->throttled))
		return new->throttled;
	return bpf_core_field_exists(old->throttle_count) && old->throttle_count > 0;
}
