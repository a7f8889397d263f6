/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A service that is away: whose connections are refused, how long they sleep before they try again, and who listened there.
 *
 * A refusal comes in a softirq, mostly on top of the client itself. What the client does until it asks for the same port again is known
 * from its own counters: if it slept once, that sleep was for the service. Who asks elsewhere meanwhile has another address to go to.
 */
#pragma once

#include "kernel.bpf.h"

#define ECONNREFUSED 111
#define PF_EXITING 0x4 /* include/linux/sched.h */
/* Who sleeps longer before it tries again can do without. */
#define LONGEST_NAP 2000000000ULL
/* An event loop is woken by the refusal itself, and sleeps once more until its timer. */
#define MOST_NAPS 2
#define MAX_REFUSED 4096
#define MAX_DOORS 1024

struct connect_key {
	__u8 addr[16]; /* IPv4 mapped into IPv6 */
	__u32 pid;
	__u32 tgid;
	__u32 netns;
	__u32 port;
};

/* What a thread had done when its last connection was refused. */
struct refused_at {
	struct connect_key key;
	__u64 ns;
	__u64 switches;
	__u64 ran;
	__u64 delay;
};

/* By thread. Whose refusal is the oldest makes room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_REFUSED);
	__type(key, __u32);
	__type(value, struct refused_at);
} refused SEC(".maps");

struct door_key {
	__u8 addr[16];
	__u32 netns;
	__u32 port;
};

/* Where somebody began, or ceased, to listen in the window. */
struct connect_door {
	__u64 opened_ns; /* the first thing that was seen: somebody began to listen; 0: somebody ceased to */
	__u64 closed_ns; /* 0: somebody listens */
	__u64 absent_ns;
	__u32 closed; /* times */
	__u32 ended;  /* of them: because the process ended */
	__u32 status; /* its status, as of wait(2) */
	__u32 tgid;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_DOORS);
	__type(key, struct door_key);
	__type(value, struct connect_door);
} doors SEC(".maps");

static __always_inline void read_counters(struct refused_at *r, struct task_struct *t)
{
	r->ns = bpf_ktime_get_ns();
	r->switches = BPF_CORE_READ(t, nvcsw);
	r->ran = BPF_CORE_READ(t, se.sum_exec_runtime);
	r->delay = BPF_CORE_READ(t, sched_info.run_delay);
}

/* `task` is only compared, and read with checks: it may be gone. */
static __noinline int note_refusal(const struct connect_key *key, __u64 task)
{
	struct task_struct *t = (void *)task;
	struct refused_at r = {};

	if (!key || !t || BPF_CORE_READ(t, pid) != key->pid)
		return 0;
	__builtin_memcpy(&r.key, key, sizeof(r.key));
	read_counters(&r, t);
	bpf_map_update_elem(&refused, &r.key.pid, &r, BPF_ANY);
	return 0;
}

/* The current thread asks for `key`: how long had it slept since it was refused at that port? `before`: where. */
static __always_inline __u64 slept_since_refusal(const struct connect_key *key, struct connect_key *before)
{
	__u32 pid = key->pid;
	struct refused_at *r = bpf_map_lookup_elem(&refused, &pid), now = {};
	__u64 gap, switches, busy;

	if (!r)
		return 0;
	read_counters(&now, current_task());
	*before = r->key;
	gap = elapsed(r->ns, now.ns);
	switches = now.switches - r->switches;
	busy = elapsed(r->ran, now.ran) + elapsed(r->delay, now.delay);
	if (r->key.port != key->port || r->key.netns != key->netns || gap > LONGEST_NAP || !switches ||
	    switches > MOST_NAPS)
		gap = 0;
	bpf_map_delete_elem(&refused, &pid);
	return elapsed(busy, gap);
}

/* A socket begins to listen, or ceases to, in the context of its process. */
static __noinline int note_door(const struct door_key *key, __u32 opens)
{
	struct task_struct *t = current_task();
	struct connect_door none = {}, *d;
	__u64 now = bpf_ktime_get_ns();

	if (!key)
		return 0;
	d = bpf_map_lookup_elem(&doors, key);
	if (!d) {
		none.opened_ns = opens ? now : 0;
		bpf_map_update_elem(&doors, key, &none, BPF_NOEXIST);
		d = bpf_map_lookup_elem(&doors, key);
	}
	if (!d)
		return 0;
	d->tgid = of_current(t, tgid);
	bpf_get_current_comm(d->comm, sizeof(d->comm));
	if (opens) {
		if (d->closed_ns)
			d->absent_ns += elapsed(d->closed_ns, now);
		d->closed_ns = 0;
		return 0;
	}
	d->closed_ns = now;
	d->closed++;
	if (BPF_CORE_READ(t, flags) & PF_EXITING) {
		/* Of a signal only the group's code tells, and of a thread that ends by itself only its own. */
		__u32 status = BPF_CORE_READ(t, signal, group_exit_code);

		d->ended++;
		d->status = status ? status : BPF_CORE_READ(t, exit_code);
	}
	return 0;
}
