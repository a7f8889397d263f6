// SPDX-License-Identifier: GPL-2.0
/* IRQ latency: which CPU is late for its interrupts, and what did it run?
 *
 * Two clocks cost nothing: a timer's expiry, which its interrupt can only miss, and the moment at which another CPU queued a call for this
 * one. Both contain what a CPU loses between the request and its first handler (waking from a deep idle state, interrupts off, firmware, a
 * hypervisor). The stack at the first late interrupt is that of the code that kept interrupts off: it falls on the instruction that enables
 * them again.
 *
 * Calls that no thread waits for are not counted; neither are wake-ups by call.
 */
#include "irq_latency.bpf.h"
#include "irq_gap.bpf.h"

/* Calls under way that we can distinguish: places by hash of the call's data. 512 KiB. */
#define QUEUED 8192
/* Some 3000 gaps. */
#define GAP_BYTES (1 << 20)
#define MAX_STACKS 2048
#define MAX_DEPTH 64

/* A call that waits for its CPU. */
struct irqlat_queued {
	__u64 csd; /* 0: free */
	__u64 at;
	__u64 function;
	__u64 site;
	__u64 task;
	__u32 pid;
	__u32 state;
};

/* Frames whose instructions are reported. */
#define LOOKED_AT 32

/* A CPU was late for an interrupt. */
struct irqlat_gap {
	__u64 at; /* when the interrupt came */
	__u64 ns;
	__u32 cpu;
	__u32 pid;
	__u32 tgid;
	__u32 state;
	__s32 stack;
	__u32 unused;
	__s64 stolen; /* of ns; -1: not reported */
	char comm[16];
	__u64 before[LOOKED_AT]; /* by frame: the eight bytes of code before it; 0: not read */
};

struct irqlat_reported {
	struct irqlat_gap gap;
	__u64 frames[LOOKED_AT];
};

/* What this CPU may still note before the next tick. */
struct irqlat_ration {
	__u64 tick;
	__u64 left;
	__u64 unseen;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUED);
	__type(key, __u32);
	__type(value, struct irqlat_queued);
} queue SEC(".maps");

/* Taken at the end. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, GAP_BYTES);
} gaps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, MAX_STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct irqlat_ration);
} ration SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct irqlat_reported);
} scratch SEC(".maps");

/* Calls of one CPU in one tick beyond which it notes none: at 40 ns each that many are 0.4 % of a tick of 4 ms. */
const volatile __u64 per_tick = 400;
/* From here on a gap is reported with its stack. */
const volatile __u64 gap_ns = 1000000;
/* hrtimer_wakeup(): a timer with this function wakes a thread that sleeps. 0: not known. */
const volatile __u64 sleeper_function;
/* The tick: tick_nohz_handler() and its older names. 0: not known. */
const volatile __u64 tick_function;
/* From a CPU's run queue to struct kvm_steal_time, which begins with the time taken. 0: not known. */
const volatile __s64 steal_at;
/* The window has begun. */
__u32 counting;

/* A longer delay is not latency: the clock was set. */
#define LATEST 10000000000ULL

/* Interrupts are off here: no other code of this CPU writes there meanwhile. User space decodes the bytes: a verifier would follow each of
 * their values.
 */
static __always_inline void look(void *ctx, struct irqlat_reported *reported)
{
	long size = bpf_get_stack(ctx, reported->frames, sizeof(reported->frames), 0);
	__u32 i;

	for (i = 0; i < LOOKED_AT; i++) {
		reported->gap.before[i] = 0;
		if ((long)((i + 1) * sizeof(__u64)) <= size)
			bpf_probe_read_kernel(&reported->gap.before[i], sizeof(__u64), (void *)(reported->frames[i] - sizeof(__u64)));
	}
}

/* The time that the hypervisor took from this CPU since the last call, a tick ago at most on a CPU that runs; -1: it does not report that.
 * It writes the time down before it lets a CPU go on.
 */
static __always_inline __s64 stolen_here(struct irqlat_cpu *here)
{
	__u64 before = here->stolen, now = 0;

	if (!steal_at)
		return -1;
	if (!here->steal_from) {
		struct task_struct *current = (void *)bpf_get_current_task();

		here->steal_from = (__u64)BPF_CORE_READ(current, se.cfs_rq, rq) + steal_at;
	}
	if (bpf_probe_read_kernel(&now, sizeof(now), (void *)here->steal_from) || !now)
		return -1; /* a hypervisor that reports has taken some since boot */
	here->stolen = now;
	here->stolen_from = here->stolen_at;
	here->stolen_at = bpf_ktime_get_ns();
	return before ? elapsed(before, now) : -1;
}

static __always_inline void note_gap(void *ctx, __u64 now, __u64 ns, __u32 cpu, __u32 state, __s64 stolen, bool is_tick)
{
	__u64 id = bpf_get_current_pid_tgid(), begin = now - ns;
	struct irqlat_cpu *here = irqlat_cpu_at(cpu);
	bool again;
	__u32 zero = 0, size = __builtin_offsetof(struct irqlat_gap, before);
	struct irqlat_reported *reported = bpf_map_lookup_elem(&scratch, &zero);

	if (!here || !reported)
		return;
	again = begin < here->reported;
	stolen = stolen_since(stolen, here->stolen_from, begin);
	if (again) {
		struct irqlat_told told = { .at = here->reported, .ns = here->gap_ns, .woke = here->woke };

		if (!gap_is_longer(&told, is_tick, begin, now, gap_ns))
			return;
		now = here->reported;
		ns = now - begin;
		stolen = stolen_of_both(here->gap_stolen, stolen);
	}
	here->gap_ns = ns;
	here->gap_stolen = stolen;
	here->reported = now;
	reported->gap.at = now;
	reported->gap.ns = ns;
	reported->gap.cpu = cpu;
	reported->gap.pid = id;
	reported->gap.tgid = id >> 32;
	reported->gap.state = state;
	reported->gap.stack = -1;
	reported->gap.stolen = stolen;
	bpf_get_current_comm(reported->gap.comm, sizeof(reported->gap.comm));
	/* The place where an idle CPU was interrupted says nothing. */
	if ((__u32)id && !again) {
		reported->gap.stack = (__s32)bpf_get_stackid(ctx, &stacks, 0);
		look(ctx, reported);
		size = sizeof(reported->gap);
	}
	if (bpf_ringbuf_output(&gaps, &reported->gap, size, BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(idled, unsigned int state, unsigned int cpu)
{
	struct irqlat_cpu *here = irqlat_cpu_at(cpu);

	if (!here)
		return 0;
	if (state == PWR_EVENT_EXIT) {
		here->state = RUNS;
		here->woke = bpf_ktime_get_ns();
		return 0;
	}
	here->state = here->last = state < RUNS ? state : RUNS - 1;
	here->counted = 0;
	return 0;
}

/* Argument 1, a pointer to a number: these may be loaded since v5.17 (bb6728d75611, of the same series as the helper whose presence is
 * tested); before, only values in the context can be read. In assembly: the compiler would compute the address of both once, and the
 * verifier accepts loads through the context itself only.
 */
static __always_inline void *second_argument(unsigned long long *ctx)
{
	void *at = 0;

	if (has_helper(get_func_arg)) {
		asm volatile("%0 = *(u64 *)(%1 + 8)" : "=r"(at) : "r"(ctx));
		return at;
	}
	bpf_probe_read_kernel(&at, sizeof(at), ctx + 1);
	return at;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(expired, struct hrtimer *timer)
{
	__u32 cpu = bpf_get_smp_processor_id(), pid = bpf_get_current_pid_tgid();
	struct hrtimer_sleeper *sleeper = (void *)timer;
	struct irqlat_key key = { .cpu = cpu, .kind = LATE_TIMER };
	struct task_struct *t = 0;
	__s64 now = 0, ns, stolen;
	__u64 mono, gap;
	struct irqlat_cpu *here;
	bool is_tick;

	if (!counting || timer->is_soft || bpf_probe_read_kernel(&now, sizeof(now), second_argument(ctx)))
		return 0;
	ns = now - timer->node.expires;
	here = irqlat_cpu_at(cpu);
	if (!here)
		return 0;
	stolen = stolen_here(here);
	mono = bpf_ktime_get_ns();
	gap = elapsed(here->timer, mono);
	here->timer = mono;
	if (ns < 0 || ns > LATEST)
		return 0;
	key.state = pid ? RUNS : here->last;
	if (ns >= late_ns) {
		/* Without high resolution all timers come with the tick, up to its whole length late. */
		if (!BPF_CORE_READ_BITFIELD_PROBED(timer->base->cpu_base, hres_active))
			return 0;
		key.function = (__u64)timer->function;
		if (sleeper_function && key.function == sleeper_function)
			t = BPF_CORE_READ(sleeper, task);
		key.pid = t ? BPF_CORE_READ(t, pid) : 0;
		/* It was due in an idle state that something else ended: the task that has run since then keeps no interrupt out. */
		if (here->woke > mono - ns)
			key.state = here->last;
		note_row(&key, t, 0, mono, ns);
		/* A timer that is set for a time in the past comes at once (clockevents_program_event, force): no interrupt was kept out
		 * before the last one.
		 */
		is_tick = tick_function && key.function == tick_function;
		if (gap > (__u64)ns || is_tick)
			gap = ns;
		if (gap >= gap_ns)
			note_gap(ctx, mono, gap, cpu, key.state, stolen, is_tick);
	}
	/* Timers that fall due while the first one's handlers and softirqs run find a CPU that is awake. */
	if (key.state != RUNS && here->counted++)
		return 0;
	note_wake(cpu, key.state, ns);
	return 0;
}

static __always_inline struct irqlat_queued *place(__u64 csd)
{
	/* The data of calls are cache lines apart: multiply, and take high bits (Knuth). */
	__u32 at = ((__u32)(csd >> 5) * 2654435761U >> 19) & (QUEUED - 1);

	return bpf_map_lookup_elem(&queue, &at);
}

static __always_inline bool may_note(void)
{
	__u32 zero = 0;
	struct irqlat_ration *r = bpf_map_lookup_elem(&ration, &zero);
	__u64 tick = bpf_jiffies64();

	if (!r)
		return false;
	if (r->tick != tick) {
		r->tick = tick;
		r->left = per_tick;
	}
	if (!r->left) {
		r->unseen++;
		return false;
	}
	r->left--;
	return true;
}

/* Raw: the verifier knows no pointers to functions, and typed pointers could not be hashed. */
SEC("raw_tp/csd_queue_cpu")
int BPF_PROG(queued, unsigned int cpu, unsigned long site, void *function, struct __call_single_data *csd)
{
	struct irqlat_queued *q;
	struct irqlat_cpu *there;

	if (!counting || (BPF_CORE_READ(csd, node.u_flags) & CSD_FLAG_TYPE_MASK) != CSD_TYPE_SYNC || !may_note())
		return 0;
	q = place((__u64)csd);
	there = irqlat_cpu_at(cpu);
	if (!q || !there)
		return 0;
	q->at = bpf_ktime_get_ns();
	q->function = (__u64)function;
	q->site = site;
	q->task = bpf_get_current_task();
	q->pid = bpf_get_current_pid_tgid();
	q->state = there->state;
	q->csd = (__u64)csd;
	return 0;
}

SEC("raw_tp/csd_function_entry")
int BPF_PROG(entered, void *function, struct __call_single_data *csd)
{
	struct irqlat_queued *q = place((__u64)csd);
	struct irqlat_key key = { .kind = LATE_CALL };
	struct irqlat_cpu *here;
	__u64 now, ns;

	if (!counting || !q || q->csd != (__u64)csd)
		return 0;
	q->csd = 0;
	now = bpf_ktime_get_ns();
	ns = elapsed(q->at, now);
	if (ns > LATEST)
		return 0;
	key.cpu = bpf_get_smp_processor_id();
	key.state = q->state;
	note_wake(key.cpu, q->state, ns);
	if (ns < late_ns)
		return 0;
	key.function = q->function;
	key.pid = q->pid;
	/* The thread waits for us, so its task exists. */
	note_row(&key, (struct task_struct *)q->task, q->site, now, ns);
	here = irqlat_cpu_at(key.cpu);
	if (ns >= gap_ns && here)
		note_gap(ctx, now, ns, key.cpu, q->state, stolen_here(here), false);
	return 0;
}
