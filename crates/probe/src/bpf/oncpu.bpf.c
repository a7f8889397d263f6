// SPDX-License-Identifier: GPL-2.0
/* What runs on the CPUs?
 *
 * A cpu-clock timer on each CPU takes the stack it interrupts. With interrupts off the timer is late and its sample falls on the
 * instruction that enables them: a gap between two samples is evidence of its own, and is noted.
 *
 * A busy thread's code and registers show whether it works or only waits: spin.bpf.h keeps both.
 */
#include "kernel.bpf.h"
#include "python.bpf.h"
#include "stat_reads.bpf.h"

#define MAX_STACKS 16384
#define MAX_DEPTH 64
/* In the place of a stack's number: no errno. */
#define NO_ROOM (-4096)

struct oncpu_key {
	__u32 pid;
	__u32 tgid;
	__s32 kernel;
	__u32 kernel_mode;
	__u64 user; /* the number of its frames; 0: none */
	char comm[16];
	__u64 ip;   /* user address: where the thread is, or in the kernel where it will return to; 0: none */
	__s32 call; /* in a system call: its number; else -1 */
	__u32 pad;
};

struct oncpu_count {
	__u64 samples;
	struct spin_signs signs;
};

struct oncpu_cpu {
	__u64 last_ns;
	__u64 samples;
	__u64 gaps;
	__u64 worst_gap_ns;
};

/* Two sets: one is filled while user space empties the other, so that the stacks that were seen first fill neither. */
struct oncpu_stacks {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, MAX_STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(__u64));
};

struct oncpu_counts {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_STACKS);
	__type(key, struct oncpu_key);
	__type(value, struct oncpu_count);
};

struct oncpu_users {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_STACKS);
	__type(key, __u64);
	__type(value, struct user_stack);
};

struct oncpu_stacks stacks SEC(".maps"), stacks_2 SEC(".maps");
struct oncpu_users users SEC(".maps"), users_2 SEC(".maps");
struct oncpu_counts counts SEC(".maps"), counts_2 SEC(".maps");
/* If a set is full before user space empties it: samples by thread, without stacks. */
struct oncpu_counts bare SEC(".maps"), bare_2 SEC(".maps");

/* Which set is filled: user space chooses it. */
__u32 second;
/* Rows in the set that is filled now. */
__u64 noted;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct oncpu_cpu);
} cpus SEC(".maps");

/* Time between two samples of a CPU. Set by oncpu.rs. */
const volatile __u64 period_ns = 10101010;
/* Samples that we could not note, and those whose frames of user code had no room. */
__u64 lost, users_refused;

static __always_inline void note_gap(__u64 now)
{
	__u64 gap;
	__u32 zero = 0;
	struct oncpu_cpu *cpu = bpf_map_lookup_elem(&cpus, &zero);

	if (!cpu)
		return;
	gap = cpu->last_ns ? elapsed(cpu->last_ns, now) : 0;
	if (gap > 3 * period_ns)
		cpu->gaps++;
	if (gap > cpu->worst_gap_ns)
		cpu->worst_gap_ns = gap;
	cpu->last_ns = now;
	cpu->samples++;
}

static __always_inline int add_to(void *map, struct oncpu_key *key, struct oncpu_count *first)
{
	struct oncpu_count *count = bpf_map_lookup_elem(map, key);

	if (!count) {
		if (!bpf_map_update_elem(map, key, first, BPF_NOEXIST)) {
			__sync_fetch_and_add(&noted, 1);
			return 0;
		}
		count = bpf_map_lookup_elem(map, key); /* another CPU was faster, or it is full */
	}
	if (!count)
		return -1;
	__sync_fetch_and_add(&count->samples, first->samples);
	add_signs(&count->signs, &first->signs);
	return 0;
}

static __always_inline int note(void *ctx, struct oncpu_key *key, struct oncpu_count *first, void *stacks_map,
				void *users_map, void *counts_map)
{
	struct user_walk *w = key->ip ? my_walk() : 0;

	key->kernel = bpf_get_stackid(ctx, stacks_map, 0);
	if (w) {
		key->user = w->hash;
		if (!bpf_map_lookup_elem(users_map, &key->user) &&
		    bpf_map_update_elem(users_map, &key->user, &w->stack, BPF_ANY))
			__sync_fetch_and_add(&users_refused, 1);
	}
	return add_to(counts_map, key, first);
}

SEC("perf_event")
int sampled(struct bpf_perf_event_data *ctx)
{
	struct oncpu_count first = { .samples = 1 };
	__u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	struct oncpu_key key = {};
	struct user_at at = {};
	__u32 set;
	int failed;

	note_gap(now);
	if (!(__u32)id)
		return 0; /* idle */
	key.pid = id;
	key.tgid = id >> 32;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	key.call = -1;
	key.kernel_mode = !is_user_mode(ctx);
	if (key.kernel_mode) {
		user_side(&at, &key.call);
		if (is_read_call(key.call))
			note_stat_read(now, period_ns, timer_late(ctx, now));
	} else {
		at.pc = ctx->regs.ip;
		at.sp = ctx->regs.sp;
		at.bp = ctx->regs.bp;
		note_signs(ctx, id, &first.signs);
	}
	key.ip = at.pc;
	if (at.pc) {
		keep_code(key.tgid, at.pc);
		walk_user(&at);
	}
	set = *(volatile __u32 *)&second;
	if (set)
		failed = note(ctx, &key, &first, &stacks_2, &users_2, &counts_2);
	else
		failed = note(ctx, &key, &first, &stacks, &users, &counts);
	if (!failed)
		return 0;
	key.kernel = NO_ROOM;
	key.user = 0;
	key.ip = 0;
	key.call = -1;
	if (set ? add_to(&bare_2, &key, &first) : add_to(&bare, &key, &first))
		__sync_fetch_and_add(&lost, 1);
	return 0;
}
