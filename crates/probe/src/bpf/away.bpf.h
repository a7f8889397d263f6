/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A service that is away: which clients' connections are refused, how long these clients sleep before they try again, and which process
 * listened there.
 *
 * A refusal comes in a softirq, mostly on top of the client itself. The client's own counters say what it does until it asks for the same
 * address again: if it slept once, that may have been for the service. User space determines what sort of sleep the thread's are, and how
 * long the thread rests where it was not refused. A client that goes on to another address of the same port without a sleep is in one round
 * of attempts.
 */
#pragma once

#include "kernel.bpf.h"

#define ECONNREFUSED 111
#define PF_EXITING 0x4 /* include/linux/sched.h */
/* A client that sleeps longer before it tries again can do without the service. */
#define LONGEST_NAP 2000000000ULL
/* The refusal itself wakes an event loop, which sleeps once more until its timer. */
#define MOST_NAPS 2
#define MAX_REFUSED 8192
#define MAX_DOORS 4096
#define MAX_LISTENING 8192

struct connect_key {
	__u8 addr[16]; /* IPv4 mapped into IPv6 */
	__u32 pid;
	__u32 tgid;
	__u32 netns;
	__u32 port;
};

/* What a thread had done when its last connection was refused, or made. */
struct last_attempt {
	struct connect_key key; /* the first one of its round that was refused */
	__u64 ns;
	__u64 switches;
	__u64 ran;
	__u64 delay;
	__u32 refused;
	__u32 unused;
};

/* By thread. The oldest attempt makes room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_REFUSED);
	__type(key, __u32);
	__type(value, struct last_attempt);
} attempts SEC(".maps");

struct door_key {
	__u8 addr[16];
	__u32 netns;
	__u32 port;
};

/* An address at which a socket listens, or listened in the window. */
struct connect_door {
	__u64 opened_ns; /* the first socket began to listen after we attached; 0: was there before */
	__u64 closed_ns; /* 0: a socket listens */
	__u64 absent_ns;
	__u32 open;   /* sockets */
	__u32 closed; /* times that no socket was left */
	__u32 ended;  /* of them: because the process ended */
	__u32 status; /* its status, as of wait(2) */
	__u32 tgid;   /* the process that began to listen last */
	__u32 v6only;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_DOORS);
	__type(key, struct door_key);
	__type(value, struct connect_door);
} doors SEC(".maps");

/* By address of a listening socket: its door. When the socket is closed it may no longer have its port (net/ipv4/inet_hashtables.c,
 * __inet_put_port).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LISTENING);
	__type(key, __u64);
	__type(value, struct door_key);
} listening SEC(".maps");

/* Set when the window begins: earlier attempts do not count. */
__u64 began;
/* Listening sockets for which there was no room. */
__u64 doors_lost;

static __always_inline void read_counters(struct last_attempt *a, struct task_struct *t)
{
	a->ns = bpf_ktime_get_ns();
	a->switches = BPF_CORE_READ(t, nvcsw);
	a->ran = BPF_CORE_READ(t, se.sum_exec_runtime);
	a->delay = BPF_CORE_READ(t, sched_info.run_delay);
}

/* An attempt of the thread has ended. `task` is only compared, and read with checks: it may be gone. */
static __noinline int note_attempt(const struct connect_key *key, __u64 task, __u32 is_refused)
{
	struct task_struct *t = (void *)task;
	struct last_attempt a = {}, *before;

	if (!key || !t || BPF_CORE_READ(t, pid) != key->pid)
		return 0;
	__builtin_memcpy(&a.key, key, sizeof(a.key));
	read_counters(&a, t);
	a.refused = is_refused;
	before = bpf_map_lookup_elem(&attempts, &a.key.pid);
	if (before && before->refused && is_refused && before->switches == a.switches && before->key.port == a.key.port)
		__builtin_memcpy(&a.key, &before->key, sizeof(a.key));
	bpf_map_update_elem(&attempts, &a.key.pid, &a, BPF_ANY);
	return 0;
}

static __always_inline bool is_same_place(const struct connect_key *a, const struct connect_key *b)
{
	return a->port == b->port && a->netns == b->netns && !__builtin_memcmp(a->addr, b->addr, sizeof(a->addr));
}

/* The current thread asks for `key` again: how long has it slept since its last attempt? 0: it did not sleep once or twice, or it did
 * something else.
 */
static __always_inline __u64 slept_since(const struct connect_key *key, struct last_attempt *a)
{
	struct last_attempt now = {};
	__u64 gap, switches;

	read_counters(&now, current_task());
	switches = now.switches - a->switches;
	gap = elapsed(a->ns > began ? a->ns : began, now.ns);
	if (!began || !switches || switches > MOST_NAPS || gap > LONGEST_NAP || !is_same_place(key, &a->key))
		return 0;
	return elapsed(elapsed(a->ran, now.ran) + elapsed(a->delay, now.delay), gap);
}

static __always_inline struct connect_door *door_at(const struct door_key *key, bool is_new)
{
	struct connect_door none = {}, *d = bpf_map_lookup_elem(&doors, key);

	if (d)
		return d;
	none.opened_ns = is_new ? bpf_ktime_get_ns() : 0;
	bpf_map_update_elem(&doors, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&doors, key);
}

/* A socket of process `tgid` listens. Each walk meets known sockets again. */
static __noinline int note_listening(__u64 sk, const struct door_key *key, struct task_struct *t, __u32 is_new)
{
	struct connect_door *d;
	__u64 now = bpf_ktime_get_ns();

	if (!key || !t)
		return 0;
	if (bpf_map_update_elem(&listening, &sk, key, BPF_NOEXIST)) {
		if (!bpf_map_lookup_elem(&listening, &sk))
			__sync_fetch_and_add(&doors_lost, 1);
		return 0;
	}
	d = door_at(key, is_new);
	if (!d) {
		__sync_fetch_and_add(&doors_lost, 1);
		return 0;
	}
	if (d->closed_ns && began)
		d->absent_ns += elapsed(d->closed_ns > began ? d->closed_ns : began, now);
	d->closed_ns = 0;
	__sync_fetch_and_add(&d->open, 1);
	d->tgid = BPF_CORE_READ(t, tgid);
	bpf_probe_read_kernel(d->comm, sizeof(d->comm), t->comm);
	return 0;
}

/* A listening socket is closed, mostly in the context of the last process that had it open. */
static __noinline int note_closed(__u64 sk)
{
	struct door_key *at = bpf_map_lookup_elem(&listening, &sk), key;
	struct task_struct *t = current_task();
	struct connect_door *d;

	if (!at)
		return 0;
	key = *at;
	bpf_map_delete_elem(&listening, &sk);
	d = bpf_map_lookup_elem(&doors, &key);
	if (!d || !d->open)
		return 0;
	__sync_fetch_and_add(&d->open, -1);
	if (d->open)
		return 0;
	d->closed_ns = bpf_ktime_get_ns();
	if (!began)
		return 0;
	d->closed++;
	if (BPF_CORE_READ(t, flags) & PF_EXITING) {
		/* A thread that a signal ended has its status only in the group's code, and a thread that ends by itself only in its own. */
		__u32 status = BPF_CORE_READ(t, signal, group_exit_code);

		d->ended++;
		d->status = status ? status : BPF_CORE_READ(t, exit_code);
	}
	return 0;
}
