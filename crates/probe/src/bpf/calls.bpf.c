// SPDX-License-Identifier: GPL-2.0
/* Time of system calls, by file, of the tasks that a trace follows.
 *
 * The cost of a call is what this file is about. Each task remembers where its last few (call, file) are summed, so a
 * call that comes again touches arrays only. Times off the CPU come from the scheduler's slot, which is looked at
 * only if it has changed. A call of a task that nobody follows costs one array lookup at each end.
 *
 * Both hooks run in the task that they are about, with preemption off: a task's notes have one writer.
 */
#include "calls.bpf.h"
#include "call_args.bpf.h"
#include "call_names.bpf.h"

#define MSEC 1000000ULL
/* Stacks of waits in calls: at most so many a slice, on each CPU. */
#define SLICE (50 * MSEC)
#define STACKS_PER_SLICE 10
/* Beside OPENS: the path could not be read when the call began. */
#define AGAIN 1
/* In the number: a call by the 32-bit table. */
#define COMPAT (1U << 31)

static __noinline void begin_life(struct call_task *ct, struct task_struct *t)
{
	__builtin_memset(ct, 0, sizeof(*ct));
	ct->pid = t->pid;
	ct->life = __sync_add_and_fetch(&lives, 1);
	ct->task = (__u64)t;
}

static __always_inline struct call_task *task_of(struct task_struct *t)
{
	__u32 pid = t->pid, at = pid & (SLOTS - 1);
	struct call_task *ct;

	if (!is_followed(pid))
		return 0;
	ct = bpf_map_lookup_elem(&call_tasks, &at);
	if (ct && ct->task != (__u64)t)
		begin_life(ct, t);
	return ct;
}

/* What the task has spent off the CPU since this was last asked. */
static __noinline void off_cpu(struct call_task *ct, struct sched_slot *s, __u64 *split)
{
	int i;

	for (i = 0; i < SPLITS; i++) {
		__u64 now = s->sum[READY + i].ns;

		if (split)
			split[i] = now > ct->off[i] ? now - ct->off[i] : 0;
		ct->off[i] = now;
	}
	ct->since = s->since;
}

/* 0: there are no more. */
static __always_inline __u32 free_entry(__u32 limit)
{
	__u32 at;

	if (used < limit) {
		at = __sync_fetch_and_add(&used, 1);
		if (at < limit)
			return at;
	}
	if (bpf_map_pop_elem(&spare_entries, &at))
		return 0;
	__sync_fetch_and_add(&reused, 1);
	return at;
}

static __noinline __u32 entry_of(struct call_task *ct, __u32 nr, __u32 file)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct entry_key key = { .life = ct->life, .nr = nr, .file = file };
	__u32 *at = bpf_map_lookup_elem(&entry_index, &key), fresh;
	struct call_entry *e;

	if (at)
		return *at;
	fresh = free_entry(file < FIRST_NAME ? entry_limit : entry_limit - (entry_limit - SPARE) / 4);
	e = bpf_map_lookup_elem(&entries, &fresh);
	if (!fresh || !e)
		return 0;
	__builtin_memset(e, 0, sizeof(*e));
	e->life = ct->life;
	e->nr = nr;
	e->file = file;
	e->pid = t->pid;
	e->tgid = t->tgid;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	bpf_map_update_elem(&entry_index, &key, &fresh, BPF_ANY);
	return fresh;
}

/* Where to sum calls on this file; if entries have run out, where to sum those on others. */
static __noinline __u32 place_of(struct call_task *ct, __u32 nr, __u32 file)
{
	__u32 at = entry_of(ct, nr, file);

	if (!at && file != OTHER_FILES)
		at = entry_of(ct, nr, OTHER_FILES);
	if (at)
		return at;
	__sync_fetch_and_add(&lost, 1);
	return nr < SPARE - 2 ? nr + 1 : SPARE - 1;
}

static __always_inline __u64 mark_check(const struct file_mark *mark)
{
	return mark->name ^ mark->ino * 0x9e3779b97f4a7c15ULL;
}

static __always_inline bool is_seen(const struct call_seen *seen, __u32 nr, __u64 file, __u64 dentry, __u64 check)
{
	return seen->entry && seen->nr == nr && seen->file == file && seen->dentry == dentry && seen->check == check;
}

static __always_inline __u32 see(struct call_seen *seen, __u32 nr, __u64 file, __u64 dentry, __u64 check, __u32 entry)
{
	seen->nr = nr;
	seen->file = file;
	seen->dentry = dentry;
	seen->check = check;
	seen->entry = entry;
	return entry;
}

/* A socket that has no peer yet is looked at each time. */
static __always_inline bool may_change(struct file *file)
{
	struct socket *socket;

	if (BPF_CORE_READ(file, f_inode, i_sb, s_magic) != SOCKFS_MAGIC)
		return false;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk, __sk_common.skc_state) != TCP_ESTABLISHED;
}

static __noinline __u32 first_seen(struct call_task *ct, struct call_seen *seen, __u32 nr, struct file *file,
				   struct file_mark *mark)
{
	__u32 id = NO_NAME, entry;

	seen->entry = 0;
	seen->file = (__u64)file;
	barrier(); /* global functions take numbers only, and what comes out of a map is one */
	if (file)
		id = file_id(seen->file);
	entry = place_of(ct, nr, id);
	if (id == OTHER_FILES || (file && may_change(file)))
		return entry;
	return see(seen, nr, (__u64)file, mark->dentry, mark_check(mark), entry);
}

static __always_inline __u32 by_file(struct call_task *ct, __u32 nr, __u32 fd, struct file *file)
{
	struct call_seen *seen = &ct->seen[(nr + fd * 3) & (SEEN - 1)];
	struct file_mark mark = {};

	if (file)
		file_mark(&mark, file);
	if (is_seen(seen, nr, (__u64)file, mark.dentry, mark_check(&mark)))
		return seen->entry;
	return first_seen(ct, seen, nr, file, &mark);
}

/* Where a path begins. */
struct base {
	__u64 dentry;
	__u64 mnt; /* 0: an absolute path, it does not need the name of its base */
};

/* The folder that a relative path begins in. Nothing: the descriptor is bad, and the call fails. */
static __always_inline void folder(struct task_struct *t, __s32 fd, struct base *base)
{
	struct file *file;

	if (fd < 0) {
		base->dentry = (__u64)BPF_CORE_READ(t, fs, pwd.dentry);
		base->mnt = (__u64)BPF_CORE_READ(t, fs, pwd.mnt);
		return;
	}
	file = file_at(t, fd);
	base->dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
	base->mnt = (__u64)BPF_CORE_READ(file, f_path.mnt);
}

/* Calls on a path, by its text and where it begins. s->key.d tells the kind. */
static __noinline __u32 by_text(struct call_task *ct, __u32 nr, struct call_scratch *s, __u32 size, struct base *base)
{
	__u64 hash = hash_text(size), dentry = base->dentry;
	struct dentry *begins = (void *)dentry;
	__u64 check = BPF_CORE_READ(begins, d_name.hash_len) ^ s->key.d;
	struct call_seen *seen = &ct->seen[(nr + hash) & (SEEN - 1)];
	__u32 id;

	if (is_seen(seen, nr, hash, dentry, check))
		return seen->entry;
	s->key.a = hash;
	s->key.b = dentry;
	s->key.c = check;
	id = known(s);
	if (!id) {
		anew(s, s->key.d);
		s->name.size = size;
		if (base->mnt)
			s->name.base = path_id(dentry, base->mnt);
		id = s->name.base == OTHER_FILES ? OTHER_FILES : tell(s);
	}
	if (id == OTHER_FILES)
		return place_of(ct, nr, id);
	return see(seen, nr, hash, dentry, check, place_of(ct, nr, id));
}

/* Its size; negative: it cannot be read. */
static __always_inline long read_argument(struct call_scratch *s, void *text, bool address, __u32 size)
{
	if (!address)
		return bpf_probe_read_user_str(s->text, MAX_TEXT, text) - 1;
	barrier_var(size);
	if (size > 128)
		return -1; /* sizeof(struct sockaddr_storage) */
	return bpf_probe_read_user(s->text, size, text) ? -1 : (long)size;
}

/* Calls on a path or an address that the caller names. A page that is not there now will be when the kernel has read it. */
static __noinline __u32 by_argument(struct call_task *ct, struct task_struct *t, struct pt_regs *regs, __u32 what,
				    bool again)
{
	struct call_scratch *s = my_scratch(FOR_ARGUMENT);
	__u32 kind = what & KIND, nr = ct->nr;
	__u64 text = kind == PATH0 ? regs->di : kind == AT1 ? regs->dx : regs->si;
	__s32 fd = kind == AT0 ? regs->di : kind == AT1 ? regs->si : -1;
	struct base base = {};
	long size;

	if (!s)
		return place_of(ct, nr, NO_NAME);
	size = read_argument(s, (void *)text, kind == ADDR, regs->dx);
	ct->after |= size < 0 && !again ? AGAIN : 0;
	if (size < 0)
		return place_of(ct, nr, NO_NAME);
	if (size == 0 && fd >= 0)
		return by_file(ct, nr, fd, file_at(t, fd)); /* AT_EMPTY_PATH */
	s->key.d = kind == ADDR ? ADDRESS : STRING;
	if (kind != ADDR) {
		if (s->text[0] == '/')
			base.dentry = (__u64)BPF_CORE_READ(t, fs, root.dentry);
		else
			folder(t, fd, &base);
	}
	return by_text(ct, nr, s, size, &base);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(entered, struct pt_regs *regs, long id)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct call_task *ct = task_of(t);
	struct sched_slot *s;
	__u32 nr = id, what, fd;

	if (!ct)
		return 0;
	what = call_file(nr);
	if (t->thread_info.status & TS_COMPAT) {
		nr |= COMPAT;
		what = NO_FILE;
	}
	s = slot_at(ct->pid);
	if (s && s->since != ct->since)
		off_cpu(ct, s, 0);
	if (what & (NEVER | GOES_ON)) {
		if (what & GOES_ON && ct->entry)
			ct->start = bpf_ktime_get_ns();
		return 0;
	}
	ct->nr = nr;
	ct->after = what & OPENS;
	switch (what & KIND) {
	case NO_FILE:
		ct->entry = by_file(ct, nr, 0, 0);
		break;
	case FD:
	case FD4:
		fd = (what & KIND) == FD ? regs->di : regs->r8;
		ct->entry = by_file(ct, nr, fd, file_at(t, fd));
		break;
	default:
		ct->entry = by_argument(ct, t, regs, what, false);
	}
	ct->start = bpf_ktime_get_ns();
	return 0;
}

static __always_inline bool may_take_stack(__u64 now)
{
	__u32 zero = 0;
	struct call_rate *rate = bpf_map_lookup_elem(&call_rates, &zero);

	if (!rate)
		return false;
	if (now - rate->slice > SLICE) {
		rate->slice = now;
		rate->taken = 0;
	}
	return rate->taken++ < STACKS_PER_SLICE;
}

static __always_inline void fill_slow(struct call_slow *slow, struct call_task *ct, struct task_struct *t, __u64 ns,
				      const __u64 *split)
{
	struct call_entry *e = bpf_map_lookup_elem(&entries, &ct->entry);
	int i;

	slow->start = ct->start;
	slow->ns = ns;
	for (i = 0; i < SPLITS; i++)
		slow->split[i] = split[i];
	slow->pid = t->pid;
	slow->tgid = t->tgid;
	slow->nr = ct->nr;
	slow->file = e && ct->entry >= SPARE ? e->file : NO_NAME;
	slow->depth = 0;
	bpf_probe_read_kernel_str(slow->comm, sizeof(slow->comm), t->comm);
}

static __noinline void tell_slow(void *ctx, struct call_task *ct, __u64 ns, const __u64 *split)
{
	__u32 zero = 0, size = __builtin_offsetof(struct call_slow, frames);
	struct call_slow *slow = bpf_map_lookup_elem(&slow_scratch, &zero);

	if (!slow || (ns < slow_ns && !may_take_stack(ct->start + ns)))
		return;
	fill_slow(slow, ct, bpf_get_current_task_btf(), ns, split);
	slow->open = 0;
	if (user_stacks) {
		slow->depth = bpf_get_stack(ctx, slow->frames, sizeof(slow->frames), BPF_F_USER_STACK);
		size = sizeof(*slow);
	}
	if (bpf_ringbuf_output(&slow_calls, slow, size, BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

/* A number's own entry, for all tasks. */
static __noinline void sum_spare(struct call_entry *e, __u64 ns, bool failed, const __u64 *split)
{
	int i;

	__sync_fetch_and_add(&e->count, 1);
	__sync_fetch_and_add(&e->errors, failed);
	__sync_fetch_and_add(&e->total_ns, ns);
	for (i = 0; i < SPLITS; i++)
		__sync_fetch_and_add(&e->split[i], split[i]);
	if (ns > e->worst_ns)
		e->worst_ns = ns;
}

/* Restarts (512 to 516) never reach the caller: the call goes on, or fails with EINTR. */
static __always_inline bool has_failed(long ret)
{
	return ret < 0 && ret >= -4095 && !(ret <= -512 && ret >= -516);
}

/* What was not known when the call began: which file it opened, and a path that could not be read then. */
static __noinline void look_again(struct call_task *ct, struct task_struct *t, struct pt_regs *regs, long ret)
{
	__u32 what = call_file(ct->nr);

	if (what & OPENS && ret >= 0)
		ct->entry = by_file(ct, ct->nr, ret, file_at(t, ret));
	else if (ct->after & AGAIN)
		ct->entry = by_argument(ct, t, regs, what, true);
}

/* The rare half of an exit: it waited, was slow, or its sums are shared. */
static __noinline void sum_rest(void *ctx, struct call_task *ct, struct call_entry *e, __u64 ns, bool failed)
{
	__u64 split[SPLITS] = {}, waited = 0;
	struct sched_slot *s = slot_at(ct->pid);
	int i;

	if (s && s->since != ct->since)
		off_cpu(ct, s, split);
	if (ct->entry < SPARE) {
		sum_spare(e, ns, failed, split);
	} else {
		for (i = 0; i < SPLITS; i++)
			e->split[i] += split[i];
	}
	for (i = 0; i < SPLITS; i++)
		waited += split[i];
	if (ns >= slow_ns || (user_stacks && waited >= MSEC))
		tell_slow(ctx, ct, ns, split);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(left, struct pt_regs *regs, long ret)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct call_task *ct = task_of(t);
	struct call_entry *e;
	struct sched_slot *s;
	bool failed;
	__u64 ns;

	if (!ct || !ct->start)
		return 0; /* it began before us, or in the parent of a fork */
	ns = bpf_ktime_get_ns() - ct->start;
	if (ct->after)
		look_again(ct, t, regs, ret);
	e = bpf_map_lookup_elem(&entries, &ct->entry);
	if (!e)
		return 0;
	failed = has_failed(ret);
	s = slot_at(ct->pid);
	if (ct->entry < SPARE || ns >= slow_ns || (s && s->since != ct->since))
		sum_rest(ctx, ct, e, ns, failed);
	if (ct->entry >= SPARE) {
		e->count++;
		e->errors += failed;
		e->total_ns += ns;
		if (ns > e->worst_ns)
			e->worst_ns = ns;
	}
	ct->start = 0;
	return 0;
}

/* A thread that is not its process's first takes over that one's pid when it executes. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed, struct task_struct *t, int old_pid)
{
	__u32 old = old_pid, pid = t->pid, at = old & (SLOTS - 1), to = pid & (SLOTS - 1);
	struct call_task *before, *ct;
	struct sched_slot *s;

	if (old == pid || !is_followed(pid))
		return 0;
	before = bpf_map_lookup_elem(&call_tasks, &at);
	ct = bpf_map_lookup_elem(&call_tasks, &to);
	if (!before || !ct || before->task != (__u64)t)
		return 0;
	__builtin_memcpy(ct, before, sizeof(*ct));
	ct->pid = pid;
	before->task = 0;
	s = slot_at(pid);
	if (s)
		off_cpu(ct, s, 0); /* the old slot's sums are another's */
	return 0;
}

/* User space may take its entries. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended, struct task_struct *t)
{
	__u32 at = t->pid & (SLOTS - 1);
	struct call_task *ct = is_followed(t->pid) ? bpf_map_lookup_elem(&call_tasks, &at) : 0;

	if (ct && ct->task == (__u64)t) {
		ct->task = 0;
		ct->start = 0;
	}
	return 0;
}

/* At the end: the calls that tasks are in. */
SEC("iter/task")
int still(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u32 zero = 0, at = t ? t->pid & (SLOTS - 1) : 0;
	struct call_slow *slow = bpf_map_lookup_elem(&still_scratch, &zero);
	struct call_task *ct = t && is_followed(t->pid) ? bpf_map_lookup_elem(&call_tasks, &at) : 0;
	__u64 split[SPLITS] = {}, now = bpf_ktime_get_ns(), left;
	struct sched_slot *s;
	int i;

	if (!slow || !ct || ct->task != (__u64)t || !ct->start)
		return 0;
	left = now - ct->start;
	s = slot_of(t);
	for (i = 0; s && i < SPLITS; i++) {
		split[i] = s->sum[READY + i].ns > ct->off[i] ? s->sum[READY + i].ns - ct->off[i] : 0;
		left -= split[i] < left ? split[i] : left;
	}
	/* The state that it is in has lasted since the slot's time, by a clock that differs by a little. */
	i = s ? s->state - READY : -1;
	if (i >= 0 && i < SPLITS && now > s->since)
		split[i & 3] += now - s->since < left ? now - s->since : left;
	fill_slow(slow, ct, t, now - ct->start, split);
	slow->open = 1;
	bpf_seq_write(ctx->meta->seq, slow, __builtin_offsetof(struct call_slow, frames));
	return 0;
}
