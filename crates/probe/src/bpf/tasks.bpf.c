// SPDX-License-Identifier: GPL-2.0
/* Which tasks exist, in which cgroups, and what has the kernel counted for them?
 *
 * A task iterator: no lock of the observed tasks is taken (RCU only), nothing is flushed. Run at the start and at the end of a window; user
 * space takes the difference. Cgroups are noted on the way, each with its ancestors, so that no reader of /proc/PID/cgroup is needed
 * (cgroup_mutex before 6.7).
 */
#include "kernel.bpf.h"

#define MAX_CGROUPS 32768
#define MAX_DEPTH 16
#define CPU_WORDS 16 /* 1024 CPUs */

/* Read by tasks.rs, one after another from the iterator. */
struct tasks_one {
	__u64 start_ns;
	__u64 exec_ns;
	__u64 run_delay_ns;
	__u64 switches_in;
	__u64 voluntary;
	__u64 involuntary;
	__u64 written;
	__u64 weight;
	__u64 cpu_cgroup;
	__u64 memory_cgroup;
	__u64 io_cgroup;
	__u64 unified_cgroup;
	__u64 autogroup;
	__u64 autogroup_shares;
	__u64 allowed[CPU_WORDS];
	__u32 pid;
	__u32 tgid;
	__u32 ppid;
	__u32 flags;
	__u32 state;
	__u32 policy;
	__u32 allowed_count;
	__u32 in_iowait;
	__u32 session;
	__u32 uid; /* real uid, in the initial user namespace */
	__u32 tracer;
	__u32 unused;
	char comm[16];
};

enum tasks_controller { CPU = 1, MEMORY = 2, IO = 4, UNIFIED = 8 };

struct tasks_cgroup {
	__u64 parent;
	__u64 controllers;
	__u64 shares;
	__u64 quota_ns;
	__u64 burst_ns;
	__u64 period_ns;
	__u64 periods;
	__u64 throttled_periods;
	__u64 throttled_ns;
	__u64 usage_pages;
	__u64 limit_pages;
	__u64 high_pages;
	__u64 swap_pages;
	__u64 limit_hits;
	__u64 oom_kills;
	__u64 pass;
	__u64 fresh; /* the `controllers` whose counters began in the window */
	char name[128];
};

/* By cgroup_key. Filled in the context of the reading process: it may allocate. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_CGROUPS);
	__type(key, __u64);
	__type(value, struct tasks_cgroup);
} cgroups SEC(".maps");

/* Too large for the stack of a BPF program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tasks_cgroup);
} blank SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tasks_one);
} record SEC(".maps");

/* Counted up by user space before each walk: facts of a cgroup are refreshed once a walk. */
__u64 pass;
/* The first cgroup that was made since we attached: all later ones have larger numbers. 0: none was. */
__u64 first_made;
/* Tasks or cgroups that we saw but could not note. */
__u64 lost;

static void cpu_facts(struct tasks_cgroup *c, struct cgroup_subsys_state *css)
{
	struct task_group *tg = (void *)css; /* css is its first member: checked by tasks.rs through BTF */

	c->shares = BPF_CORE_READ(tg, shares);
	if (!bpf_core_field_exists(tg->cfs_bandwidth))
		return;
	c->quota_ns = BPF_CORE_READ(tg, cfs_bandwidth.quota);
	c->burst_ns = ~0ULL;
	if (bpf_core_field_exists(tg->cfs_bandwidth.burst))
		c->burst_ns = BPF_CORE_READ(tg, cfs_bandwidth.burst);
	c->period_ns = BPF_CORE_READ(tg, cfs_bandwidth.period);
	c->periods = (__u32)BPF_CORE_READ(tg, cfs_bandwidth.nr_periods);
	c->throttled_periods = (__u32)BPF_CORE_READ(tg, cfs_bandwidth.nr_throttled);
	c->throttled_ns = BPF_CORE_READ(tg, cfs_bandwidth.throttled_time);
}

static void memory_facts(struct tasks_cgroup *c, struct cgroup_subsys_state *css)
{
	struct mem_cgroup *m = (void *)css;
	__u32 hit = bpf_core_enum_value(enum memcg_memory_event, MEMCG_MAX);
	__u32 kill = bpf_core_enum_value(enum memcg_memory_event, MEMCG_OOM_KILL);
	__u64 v = 0;

	c->usage_pages = BPF_CORE_READ(m, memory.usage.counter);
	c->limit_pages = BPF_CORE_READ(m, memory.max);
	c->high_pages = BPF_CORE_READ(m, memory.high);
	c->swap_pages = BPF_CORE_READ(m, swap.usage.counter);
	/* On version 2 events also count for ancestors whose limits were not met (local counts: v5.3, 1e577f970f66). */
	if (bpf_core_field_exists(m->memory_events_local))
		bpf_core_read(&v, sizeof(v), &m->memory_events_local[hit & 7]);
	else
		bpf_core_read(&v, sizeof(v), &m->memory_events[hit & 7]);
	c->limit_hits = v;
	bpf_core_read(&v, sizeof(v), &m->memory_events[kill & 7]);
	c->oom_kills = v;
}

/* Note one cgroup; true if its ancestors still have to be noted. */
static bool note(struct cgroup_subsys_state *css, struct cgroup *cg, __u64 controller)
{
	struct tasks_cgroup *c, *none;
	struct kernfs_node *kn = BPF_CORE_READ(cg, kn);
	__u64 id = cgroup_key(cg);
	__u32 zero = 0;

	c = bpf_map_lookup_elem(&cgroups, &id);
	if (!c) {
		none = bpf_map_lookup_elem(&blank, &zero);
		if (!none)
			return false;
		bpf_probe_read_kernel_str(none->name, sizeof(none->name), BPF_CORE_READ(kn, name));
		none->parent = parent_key(cg);
		bpf_map_update_elem(&cgroups, &id, none, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&cgroups, &id);
		if (!c) {
			__sync_fetch_and_add(&lost, 1);
			return false;
		}
	}
	if ((c->controllers & controller) && c->pass == pass)
		return false;
	if (c->pass != pass) {
		c->pass = pass;
		c->controllers = 0;
		c->fresh = 0;
	}
	c->controllers |= controller;
	if (css && first_made && BPF_CORE_READ(css, serial_nr) >= first_made)
		c->fresh |= controller;
	if (css && controller == CPU)
		cpu_facts(c, css);
	if (css && controller == MEMORY)
		memory_facts(c, css);
	return true;
}

/* Note the cgroup of a css and its ancestors; returns its id. */
static __u64 climb(struct cgroup_subsys_state *css, __u64 controller)
{
	__u64 id = 0;
	int i;

	for (i = 0; i < MAX_DEPTH && css; i++) {
		struct cgroup *cg = BPF_CORE_READ(css, cgroup);

		if (!cg)
			break;
		if (!i)
			id = cgroup_key(cg);
		if (!note(css, cg, controller))
			break;
		css = BPF_CORE_READ(css, parent);
	}
	return id;
}

static __u64 climb_unified(struct cgroup *cg)
{
	struct cgroup_subsys_state *css = (void *)&cg->self;
	__u64 id = cgroup_key(cg);
	int i;

	for (i = 0; i < MAX_DEPTH && css; i++) {
		struct cgroup *at = BPF_CORE_READ(css, cgroup);

		if (!at || !note(0, at, UNIFIED))
			break;
		css = BPF_CORE_READ(css, parent);
	}
	return id;
}

SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct tasks_one *one;
	__u32 zero = 0;

	if (!t)
		return 0;
	one = bpf_map_lookup_elem(&record, &zero);
	if (!one)
		return 0;
	one->start_ns = t->start_time;
	one->exec_ns = t->se.sum_exec_runtime;
	one->weight = t->se.load.weight;
	one->run_delay_ns = t->sched_info.run_delay;
	one->switches_in = t->sched_info.pcount;
	one->voluntary = t->nvcsw;
	one->involuntary = t->nivcsw;
	one->written = bytes_written(t);
	one->pid = t->pid;
	one->tgid = t->tgid;
	one->ppid = plain(t)->real_parent->tgid;
	one->session = session_of(t);
	one->tracer = tracer_of(t);
	one->unused = 0;
	one->uid = BPF_CORE_READ(t, real_cred, uid.val);
	one->flags = t->flags;
	one->state = task_state(t);
	one->policy = t->policy;
	one->in_iowait = BPF_CORE_READ_BITFIELD_PROBED(t, in_iowait);
	one->allowed_count = t->nr_cpus_allowed;
	bpf_probe_read_kernel(one->allowed, sizeof(one->allowed), t->cpus_ptr);
	bpf_probe_read_kernel(one->comm, sizeof(one->comm), t->comm);
	one->cpu_cgroup = climb(task_css(t, cpu_cgrp_id), CPU);
	one->memory_cgroup = climb(task_css(t, memory_cgrp_id), MEMORY);
	one->io_cgroup = climb(task_css(t, io_cgrp_id), IO);
	one->unified_cgroup = climb_unified(BPF_CORE_READ(t, cgroups, dfl_cgrp));
	one->autogroup = autogroup_of(t, &one->autogroup_shares);
	bpf_seq_write(ctx->meta->seq, one, sizeof(*one)); /* if it does not fit the kernel asks again for this task */
	return 0;
}

/* A cgroup that no walk met when the window began is new, or had no task: then its counters are older. */
SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(group_made, struct cgroup *made)
{
	__u64 number = BPF_CORE_READ(made, self.serial_nr);

	if (!first_made || number < first_made)
		first_made = number;
	return 0;
}

/* Does nothing. It measures the cost to enter and leave a program, which the kernel's statistics of programs leave out, since they count
 * within the program only. A thread that renames itself calls it; attached for a moment at start (tasks.rs).
 */
SEC("tp_btf/task_rename")
int entered(void *ctx)
{
	return 0;
}
