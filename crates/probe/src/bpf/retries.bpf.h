/* SPDX-License-Identifier: GPL-2.0 */
/* How long a thread slept between two calls that failed alike, if it did nothing but sleep for a set time. */
#pragma once

#define MAX_RETRIES 1024

/* What a thread had done when its last call failed. */
struct retry {
	struct failed_key key;
	__u64 at_ns;
	__u64 switches;
	__u64 ran;
	__u64 delay;
	__u32 napped;
	__u32 unused;
};

/* By thread. The failure that is the oldest makes room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_RETRIES);
	__type(key, __u32);
	__type(value, struct retry);
} retries SEC(".maps");

/* Set by the first failure: until then a call that ended well is none of ours. */
__u32 any_failed;

/* Calls that only sleep (arch/x86/entry/syscalls/syscall_64.tbl). select and poll do where they are given nothing to watch. */
static __always_inline bool only_sleeps(__u64 call, const struct pt_regs *regs)
{
	switch (call) {
	case 35: case 230: /* nanosleep, clock_nanosleep */
		return true;
	case 23: case 270: /* select, pselect6 */
		return !regs->di;
	case 7: case 271: /* poll, ppoll */
		return !regs->si;
	}
	return false;
}

/* The current thread's sleep is over. */
static __noinline int note_nap(void)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct retry *r = bpf_map_lookup_elem(&retries, &pid);

	if (r)
		r->napped = 1;
	return 0;
}

/* The current thread's call has failed: how long did it sleep since the last one that failed so? 0: it slept more than once, or did not
 * sleep for a set time.
 */
static __always_inline __u64 slept_before(const struct failed_key *key, __u64 began)
{
	struct task_struct *t = current_task();
	struct retry now = { .at_ns = bpf_ktime_get_ns() }, *last;
	__u32 pid = bpf_get_current_pid_tgid();
	__u64 slept = 0, gap, awake;

	now.key = *key;
	now.switches = BPF_CORE_READ(t, nvcsw);
	now.ran = BPF_CORE_READ(t, se.sum_exec_runtime);
	now.delay = BPF_CORE_READ(t, sched_info.run_delay);
	last = bpf_map_lookup_elem(&retries, &pid);
	if (last && last->napped && now.switches - last->switches == 1 && last->at_ns >= began &&
	    !__builtin_memcmp(&last->key, key, sizeof(*key))) {
		gap = elapsed(last->at_ns, now.at_ns);
		awake = elapsed(last->ran, now.ran) + elapsed(last->delay, now.delay);
		slept = elapsed(awake, gap);
	}
	bpf_map_update_elem(&retries, &pid, &now, BPF_ANY);
	any_failed = 1;
	return slept;
}
