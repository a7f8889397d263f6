/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Rows: which thread waited for which CPU, and what that CPU ran. Shared by the objects that see it (late, ipi). */
#pragma once

#include "kernel.bpf.h"

/* User space sets it to the number of CPUs. */
#define MAX_CPUS 64
#define MAX_ROWS 4096
#define MAX_VICTIMS 4096

/* The state of a CPU that runs. Idle states are numbered from 0; the kernel has at most ten. */
#define RUNS 15
#define STATES 16
#define DELAYS 10

/* What was late. */
enum irqlat_kind { LATE_CALL, LATE_TIMER };

/* A thread that waited for a CPU in this state, and what for. */
struct irqlat_key {
	__u64 function;
	__u32 pid; /* 0: no thread */
	__u32 cpu;
	__u32 state;
	__u32 kind;
};

struct irqlat_row {
	__u64 count;
	__u64 total_ns;
	__u64 paid_ns; /* part of it, when the thread did not wait for another CPU anyway */
	__u64 worst_ns;
	__u64 site;
	__u32 tgid;
	__u32 unused;
	char comm[16];
};

/* What each CPU does now. On a cache line of its own: other CPUs read it. */
struct irqlat_cpu {
	__u32 state;
	__u32 last;      /* the last idle state */
	__u64 reported;      /* the last reported gap ended here */
	__u64 woke;      /* from the last idle state */
	__u64 counted;   /* timers that showed how late the CPU woke */
	__u64 steal_from; /* where the hypervisor writes the time that it took from this CPU */
	__u64 stolen;     /* its value when it was last read */
	__u64 stolen_at;  /* when that was */
	__u64 stolen_from; /* when it was read before */
	__u64 gap_ns; /* how long the last reported gap was */
	__s64 gap_stolen; /* of it the hypervisor took so much; -1: not reported */
	__u64 timer;  /* when the last timer came */
};

/* How late a CPU was, by its state. Mostly written by the CPU itself: no atomics. */
struct irqlat_wakes {
	__u64 count;
	__u64 late;
	__u64 late_ns;
	__u64 by_delay[DELAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, struct irqlat_cpu);
} irqlat_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct irqlat_key);
	__type(value, struct irqlat_row);
} irqlat_rows SEC(".maps");

/* Until when a thread is known to have waited: it waits for all CPUs of a call at once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VICTIMS);
	__type(key, __u32);
	__type(value, __u64);
} irqlat_victims SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS * STATES);
	__type(key, __u32);
	__type(value, struct irqlat_wakes);
} irqlat_wakes SEC(".maps");

/* A delay from here on counts as late. Set by late.rs. */
const volatile __u64 late_ns = 500000;
/* Rows and gaps for which there was no room. */
__u64 lost;

static __always_inline struct irqlat_cpu *irqlat_cpu_at(__u32 cpu)
{
	return bpf_map_lookup_elem(&irqlat_cpus, &cpu);
}

/* Powers of two of 128 us: the last class holds all from 32 ms on. */
static __always_inline __u32 delay_class(__u64 ns)
{
	__u64 limit = 128000;
	__u32 class = 0;
	int i;

	for (i = 0; i < DELAYS - 1; i++) {
		class += ns >= limit;
		limit <<= 1;
	}
	return class;
}

static __always_inline void note_wake(__u32 cpu, __u32 state, __u64 ns)
{
	__u32 at = cpu * STATES + (state & (STATES - 1)), class = delay_class(ns);
	struct irqlat_wakes *w = bpf_map_lookup_elem(&irqlat_wakes, &at);

	if (!w || class >= DELAYS)
		return;
	w->count++;
	w->by_delay[class]++;
	if (ns >= late_ns) {
		w->late++;
		w->late_ns += ns;
	}
}

/* The part of the ns that end now in which the thread was not waiting for other CPUs anyway. */
static __always_inline __u64 paid(__u32 pid, __u64 now, __u64 ns)
{
	__u64 *until = bpf_map_lookup_elem(&irqlat_victims, &pid), since = now - ns, own = ns;

	if (until && *until > since)
		own = now > *until ? now - *until : 0;
	if (until)
		*until = now > *until ? now : *until;
	else
		bpf_map_update_elem(&irqlat_victims, &pid, &now, BPF_NOEXIST);
	return own;
}

static __always_inline void note_row(const struct irqlat_key *key, struct task_struct *t, __u64 site, __u64 now, __u64 ns)
{
	struct irqlat_row *row = bpf_map_lookup_elem(&irqlat_rows, key);

	if (!row) {
		struct irqlat_row fresh = { .site = site };

		if (t) {
			fresh.tgid = BPF_CORE_READ(t, tgid);
			bpf_probe_read_kernel_str(fresh.comm, sizeof(fresh.comm), &t->comm);
		}
		bpf_map_update_elem(&irqlat_rows, key, &fresh, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&irqlat_rows, key);
	}
	if (!row) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->total_ns, ns);
	__sync_fetch_and_add(&row->paid_ns, key->pid ? paid(key->pid, now, ns) : 0);
	worsen(&row->worst_ns, ns);
}
