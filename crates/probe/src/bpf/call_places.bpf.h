/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The entry that a call is summed in: by the file it is about, with a short memory of each task's own.
 */
#pragma once

#include "call_args.bpf.h"
#include "call_names.bpf.h"

/* Besides OPENS in call_task.after: the path could not be read when the call began. */
#define AGAIN 1

/* The next entry of a run, or of a fresh run. 0: there are no more. */
static __always_inline __u32 next_of(struct entry_run *run, void *more, __u32 *taken)
{
	struct entry_run fresh = {};

	if (run->next >= run->end) {
		if (bpf_map_pop_elem(more, &fresh))
			return 0;
		*run = fresh;
		__sync_fetch_and_add(taken, 1);
	}
	return run->next++;
}

/* 0: there are no more. */
static __always_inline __u32 free_entry(bool is_named)
{
	struct call_own *own = own_numbers_here();
	__u32 at = 0;

	if (own && !is_named)
		at = next_of(&own->last_run, &last_runs, &last_runs_taken);
	if (own && !at)
		at = next_of(&own->run, &free_runs, &runs_taken);
	if (at)
		return at;
	if (bpf_map_pop_elem(&spare_entries, &at))
		return 0;
	__sync_fetch_and_add(&reused, 1);
	return at;
}

static __noinline __u32 entry_of(struct call_task *ct, __u32 nr, __u32 file)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct entry_key key = { .life = ct->life, .nr = nr, .file = file };
	__u32 *at = bpf_map_lookup_elem(&entry_index, &key), fresh;
	struct call_entry *e;

	if (at)
		return *at;
	fresh = free_entry(file >= FIRST_NAME);
	e = bpf_map_lookup_elem(&entries, &fresh);
	if (!fresh || !e)
		return 0;
	__builtin_memset(e, 0, sizeof(*e));
	e->life = ct->life;
	e->nr = nr;
	e->file = file;
	e->pid = task;
	e->tgid = task >> 32;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	bpf_map_update_elem(&entry_index, &key, &fresh, BPF_ANY);
	return fresh;
}

/* The entry for calls on this file; if entries have run out, the one for calls on other files. */
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

/* A socket that has no peer yet is looked up each time. */
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
	__u64 mnt; /* 0: an absolute path, which does not need the name of its base */
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

/* Calls on a path, by its text and the folder where it begins. s->key.d says which kind. */
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

/* Calls on a path or an address that the caller names. A page that is not in memory now will be when the kernel has read it. */
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
