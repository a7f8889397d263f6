/* SPDX-License-Identifier: GPL-2.0 */
/* How long a thread slept between two calls that failed alike: in one call that only sleeps, the first one that it waited in. */
#pragma once

#define MAX_RETRIES 1024 /* 256 a CPU, where there are more than four: failed.rs */

/* What a thread had done when its last call failed. */
struct retry {
	struct failed_key key;
	__u64 at_ns;
	__u64 switches;
	__u64 ran;
	__u64 delay;
	__u64 slept_ns; /* since that call */
	__u32 pid;      /* another thread's value may be read while it makes room */
	__u32 unused;
};

/* By thread. Old failures make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_RETRIES);
	__type(key, __u32);
	__type(value, struct retry);
} retries SEC(".maps");

/* Set by the first failure: until then no call that ended well belongs to a retry. */
__u32 any_failed;

/* Calls that only sleep (arch/x86/entry/syscalls/syscall_64.tbl). select and poll only sleep where they have nothing to watch. */
static __always_inline bool only_sleeps(__u64 call, const struct pt_regs *regs)
{
	switch (call) {
	case 35: case 230: /* nanosleep, clock_nanosleep */
		return true;
	case 23: case 270: /* select, pselect6 */
		return !(__u32)regs->di;
	case 7: case 271: /* poll, ppoll */
		return !(__u32)regs->si;
	}
	return false;
}

static __always_inline void read_counters(struct retry *r)
{
	struct task_struct *t = current_task();

	r->at_ns = bpf_ktime_get_ns();
	r->switches = BPF_CORE_READ(t, nvcsw);
	r->ran = BPF_CORE_READ(t, se.sum_exec_runtime);
	r->delay = BPF_CORE_READ(t, sched_info.run_delay);
}

/* The current thread's sleep is over: how long did it take, if that was its only wait since its call failed? */
static __noinline int note_nap(void)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct retry *r = bpf_map_lookup_elem(&retries, &pid), now = {};
	__u64 awake;

	if (!r || r->pid != pid)
		return 0;
	read_counters(&now);
	if (now.switches - r->switches != 1) {
		r->slept_ns = 0;
		return 0;
	}
	awake = elapsed(r->ran, now.ran) + elapsed(r->delay, now.delay);
	r->slept_ns = elapsed(awake, elapsed(r->at_ns, now.at_ns));
	return 0;
}

/* The current thread's call has failed: how long did it sleep since the last call that failed in the same way? */
static __always_inline __u64 slept_before(const struct failed_key *key, __u64 began)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct retry now = { .key = *key, .pid = pid }, *last = bpf_map_lookup_elem(&retries, &pid);
	__u64 slept = 0;

	if (last && last->pid == pid && last->at_ns >= began && !__builtin_memcmp(&last->key, key, sizeof(*key)))
		slept = last->slept_ns;
	read_counters(&now);
	bpf_map_update_elem(&retries, &pid, &now, BPF_ANY);
	if (!any_failed)
		any_failed = 1;
	return slept;
}
