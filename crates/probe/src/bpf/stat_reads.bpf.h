/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which statistics files do processes read, and how long does one read take? (oncpu)
 *
 * The kernel counts the read calls of each task when they end (task_struct.ioac.syscr: vfs_read, do_readv and do_preadv in fs/read_write.c).
 * So two samples with the same count, both inside a read, are of one read. No call is hooked: reads that are shorter than the time between two
 * samples are met in proportion to their time, and each read of two such times or more is met twice or more often.
 */
#pragma once

#include "spin.bpf.h"
#include "stat_time.bpf.h"

#define STAT_FILES 2048
/* Threads whose last read is remembered: those not sampled for longest make room. */
#define STAT_READERS 4096
#define STAT_NAME 32

/* Files of one name. */
struct stat_file {
	__u64 magic;
	__u32 tgid;
	__u32 place;
	char name[STAT_NAME];
};

/* Where such a file lies: directly in the root of its file system, in the folder of a process or thread in /proc, or elsewhere. */
enum stat_place { STAT_IN_ROOT = 1, STAT_OF_PROCESS, STAT_ELSEWHERE };

struct stat_cost {
	__u64 reads; /* that met a sample */
	__u64 ns; /* the CPU time of all */
	__u64 long_reads; /* of long_ns or more, without doubt */
	__u64 long_ns;
	__u64 late_ns; /* of long_ns: the sampler's timer was late, by interrupts that were off, or by a hypervisor */
	__u64 worst_ns;
	__u32 pid; /* the thread of the longest read */
	char comm[16];
	char folder[STAT_NAME]; /* of its file */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STAT_FILES);
	__type(key, struct stat_file);
	__type(value, struct stat_cost);
} stat_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STAT_READERS);
	__type(key, __u32);
	__type(value, struct stat_reader);
} stat_readers SEC(".maps");

/* All zero bytes: never written. */
static const struct stat_cost no_cost;

/* A read is long from here on. Set by stat_reads.rs. */
const volatile __u64 long_read_ns = ~0ULL;
/* Samples in reads of files for which there was no room; and those that this kernel does not count (CONFIG_TASK_XACCT). */
__u64 stat_reads_lost, stat_reads_untold;

static __always_inline bool is_read_call(__s32 call)
{
	/* arch/x86/entry/syscalls/syscall_64.tbl: read, pread64, readv, preadv, preadv2; descriptor first (call_args.bpf.h). */
	return call == 0 || call == 17 || call == 19 || call == 295 || call == 327;
}

static __always_inline bool is_of_statistics(__u64 magic)
{
	return magic == PROC_SUPER_MAGIC || magic == SYSFS_MAGIC || magic == CGROUP_SUPER_MAGIC || magic == CGROUP2_SUPER_MAGIC;
}

/* Of /proc/PID/smaps, and of /proc/PID/task/TID/stat: a number in the root, or in "task". */
static __always_inline bool is_of_process(struct dentry *folder, const char *name)
{
	struct dentry *above = BPF_CORE_READ(folder, d_parent);
	char word[5] = {};

	if (name[0] < '0' || name[0] > '9')
		return false;
	if (BPF_CORE_READ(above, d_parent) == above)
		return true;
	bpf_probe_read_kernel_str(word, sizeof(word), BPF_CORE_READ(above, d_name.name));
	return word[0] == 't' && word[1] == 'a' && word[2] == 's' && word[3] == 'k';
}

static __always_inline void place_of(struct file *file, struct stat_file *key, char *folder)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry), *above = BPF_CORE_READ(dentry, d_parent);

	bpf_probe_read_kernel_str(key->name, STAT_NAME, BPF_CORE_READ(dentry, d_name.name));
	bpf_probe_read_kernel_str(folder, STAT_NAME, BPF_CORE_READ(above, d_name.name));
	key->place = STAT_ELSEWHERE;
	if (BPF_CORE_READ(above, d_parent) == above)
		key->place = STAT_IN_ROOT;
	else if (key->magic == PROC_SUPER_MAGIC && is_of_process(above, folder))
		key->place = STAT_OF_PROCESS;
}

static __always_inline struct stat_cost *cost_of(struct stat_file *key)
{
	struct stat_cost *cost = bpf_map_lookup_elem(&stat_files, key);

	if (cost)
		return cost;
	bpf_map_update_elem(&stat_files, key, &no_cost, BPF_NOEXIST); /* another CPU may be faster */
	cost = bpf_map_lookup_elem(&stat_files, key);
	if (!cost)
		__sync_fetch_and_add(&stat_reads_lost, 1);
	return cost;
}

/* Several threads may read files of one name at once: of two that are the longest in the same moment one is kept. */
static __always_inline void note_worst(struct stat_cost *cost, struct stat_reader *now, const char *folder)
{
	if (now->ns <= cost->worst_ns)
		return;
	cost->worst_ns = now->ns;
	cost->pid = bpf_get_current_pid_tgid();
	bpf_get_current_comm(cost->comm, sizeof(cost->comm));
	__builtin_memcpy(cost->folder, folder, STAT_NAME);
}

static __always_inline void note_long(struct stat_cost *cost, struct stat_reader *now, struct stat_reader *before)
{
	bool was_long = before && before->least_ns >= long_read_ns;

	if (now->least_ns < long_read_ns)
		return;
	if (!was_long)
		__sync_fetch_and_add(&cost->long_reads, 1);
	__sync_fetch_and_add(&cost->long_ns, was_long ? elapsed(before->ns, now->ns) : now->ns);
	__sync_fetch_and_add(&cost->late_ns, was_long ? elapsed(before->late_ns, now->late_ns) : now->late_ns);
}

/* How long ago the timer of a sample was due: perf_swevent_hrtimer (kernel/events/core.c) sets it anew afterwards. A gap between two samples does
 * not tell, because kernels may stop timers of perf on an idle CPU.
 */
static __always_inline __u64 timer_late(void *ctx, __u64 now)
{
	struct bpf_perf_event_data_kern *sample = ctx;

	return elapsed(BPF_CORE_READ(sample, event, hw.hrtimer.node.expires), now);
}

/* The file that the current task reads; NULL: another kind of file. */
static __always_inline struct file *stat_file_here(struct task_struct *t, __u64 *magic)
{
	struct file *file;

	if (BPF_CORE_READ(t, thread_info.status) & TS_COMPAT)
		return 0; /* 32-bit tasks have other numbers of calls */
	file = file_of_task(t, BPF_CORE_READ(own_registers(), di));
	if (!file)
		return 0;
	*magic = BPF_CORE_READ(file, f_inode, i_sb, s_magic);
	return is_of_statistics(*magic) ? file : 0;
}

/* The current task was sampled in a read call at `at`; the timer was `late`. A function of its own: the verifier checks it once. */
__noinline int note_stat_read(__u64 at, __u64 period, __u64 late)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	struct stat_reader now = { .last = at }, *before;
	__u64 id = bpf_get_current_pid_tgid();
	char folder[STAT_NAME] = {};
	struct stat_file key = {};
	struct stat_cost *cost;
	struct file *file;
	__u32 pid = id;

	file = stat_file_here(t, &key.magic);
	if (!file)
		return 0;
	if (!bpf_core_field_exists(t->ioac.syscr)) {
		__sync_fetch_and_add(&stat_reads_untold, 1);
		return 0;
	}
	key.tgid = id >> 32;
	place_of(file, &key, folder);
	cost = cost_of(&key);
	if (!cost)
		return 0;
	now.born = BPF_CORE_READ(t, start_time);
	now.count = BPF_CORE_READ(t, ioac.syscr);
	now.switches = BPF_CORE_READ(t, nvcsw) + BPF_CORE_READ(t, nivcsw);
	before = bpf_map_lookup_elem(&stat_readers, &pid);
	if (!stat_goes_on(&now, before, period, late)) {
		before = 0;
		__sync_fetch_and_add(&cost->reads, 1);
	}
	__sync_fetch_and_add(&cost->ns, before ? elapsed(before->ns, now.ns) : now.ns);
	note_long(cost, &now, before);
	note_worst(cost, &now, folder);
	bpf_map_update_elem(&stat_readers, &pid, &now, BPF_ANY);
	return 0;
}
