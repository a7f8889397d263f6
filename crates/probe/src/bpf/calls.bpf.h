/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the calls object notes of each task, and its maps. */
#pragma once

#include "shared.bpf.h"

#define ENTRIES 65536
#define FILES 32768
#define SEEN 8
#define SPLITS 4 /* READY, IO, BLOCKED, ASLEEP */
#define MAX_TEXT 4096
#define MAX_DEPTH 64
/* Entries below this number are for all calls of one number, when the entries of its own have run out; 0 is none. */
#define SPARE 513
/* File ids below FIRST_NAME have no record. */
enum { NO_NAME, OTHER_FILES, FIRST_NAME };

/* A call that the task made lately, and where it is summed. */
struct call_seen {
	__u64 file; /* address of the open file, or hash of the path */
	__u64 dentry; /* ... of the folder that the path begins in */
	__u64 check;
	__u32 nr;
	__u32 entry;
};

/* A task, by pid. Only the task itself writes. */
struct call_task {
	__u64 task; /* address, only compared; 0: ended */
	__u64 start; /* 0: not in a call */
	__u64 since; /* the scheduler's slot's `since` when `off` was read */
	__u64 off[SPLITS];
	__u32 entry;
	__u32 nr;
	__u32 life; /* distinguishes this task from those that had its pid before */
	__u32 pid;
	__u32 after; /* to be read when the call returns */
	struct call_seen seen[SEEN];
};

/* Calls of one task, of one number, on one file. */
struct call_entry {
	__u64 count;
	__u64 errors;
	__u64 total_ns;
	__u64 worst_ns;
	__u64 split[SPLITS];
	__u32 life;
	__u32 nr;
	__u32 file;
	__u32 pid;
	__u32 tgid;
	__u32 unused;
	char comm[16];
};

struct entry_key {
	__u32 life;
	__u32 nr;
	__u32 file;
};

struct name_key {
	__u64 a, b, c, d;
};

enum name_kind { WALK = 1, STRING, PIPE, INET, UNIX, SOCKET, ANON, ADDRESS };

/* What a file is called; sent to user space when it is first seen. */
struct call_name {
	__u32 id;
	__u32 kind;
	__u32 base; /* STRING: the folder that a relative path begins in */
	__u32 size; /* of the text */
	__u32 cut; /* the text is incomplete */
	__u32 deleted; /* no folder lists it any more */
	__u32 unused;
	__u32 family;
	__u32 listens;
	__u32 port;
	__u8 addr[16];
	__u64 ino;
};

struct call_scratch {
	struct name_key key;
	__u64 dentry, mnt; /* position of the walk: kept here, so that the verifier need not tell its states apart */
	struct call_name name;
	char text[2 * MAX_TEXT]; /* so that a masked offset and a full read cannot leave it */
};

/* A slow call, or one whose user stack is wanted. */
struct call_slow {
	__u64 start;
	__u64 ns;
	__u64 split[SPLITS];
	__u32 pid;
	__u32 tgid;
	__u32 nr;
	__u32 file;
	__u32 open;
	__s32 depth; /* bytes of frames */
	char comm[16];
	__u64 frames[MAX_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS + SPARES);
	__type(key, __u32);
	__type(value, struct call_task);
} call_tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENTRIES);
	__type(key, __u32);
	__type(value, struct call_entry);
} entries SEC(".maps");

/* Which entry is for what. Only slow paths look here. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENTRIES);
	__type(key, struct entry_key);
	__type(value, __u32);
} entry_index SEC(".maps");

/* Entries that no task has had, by runs: a CPU takes one, and gives out its entries one by one. Filled by calls.rs. */
struct entry_run {
	__u32 next;
	__u32 end;
};

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, ENTRIES);
	__uint(value_size, sizeof(struct entry_run));
} free_runs SEC(".maps");

/* The last quarter: for calls of which only the number is noted. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, ENTRIES / 4);
	__uint(value_size, sizeof(struct entry_run));
} last_runs SEC(".maps");

/* Entries that this CPU gives out. An atomic add that also returns the sum exists since v5.12 only. One writer: preemption is off. */
struct call_own {
	struct entry_run run;
	struct entry_run last_run;
	__u32 lives;
	__u32 names;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_own);
} own_numbers SEC(".maps");

/* Entries that user space has taken from ended tasks. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, ENTRIES);
	__uint(value_size, sizeof(__u32));
} spare_entries SEC(".maps");

/* Names that user space knows. The longest unseen make room: they get another id when they are seen again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FILES);
	__type(key, struct name_key);
	__type(value, __u32);
} names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} new_names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} slow_calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* for a file; for an argument, while its folder uses the first */
	__type(key, __u32);
	__type(value, struct call_scratch);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_slow);
} slow_scratch SEC(".maps");

/* The closing walk's own: the walk may be preempted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_slow);
} still_scratch SEC(".maps");

/* For the skeleton: what the rings carry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_name);
} name_type SEC(".maps");

struct call_rate {
	__u64 slice;
	__u64 taken;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_rate);
} call_rates SEC(".maps");

/* Calls longer than this are reported one by one. Set by calls.rs. */
const volatile __u64 slow_ns = ~0ULL;
/* ... with the caller's stack, and the stack of calls that wait. */
const volatile __u32 user_stacks = 0;
/* When the window ended; 0: not yet. From then on no call is seen to begin or end. Set by calls.rs before the closing walk. */
__u64 ended_at;
/* CPUs that the host may have. */
const volatile __u32 cpus = 1;
/* Single calls and names that we saw but could not note. */
__u64 lost;
/* Runs of entries that CPUs took, and entries given out again. */
__u32 runs_taken;
__u32 last_runs_taken;
__u32 reused;

static __always_inline struct call_own *own_numbers_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&own_numbers, &zero);
}

/* A number that no other CPU gives out, from this CPU's count. It repeats after 2^32 / cpus. */
static __always_inline __u32 new_number(__u32 *count)
{
	return (*count)++ * cpus + bpf_get_smp_processor_id();
}

