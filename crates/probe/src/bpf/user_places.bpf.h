/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* In which file does user code lie, and where in it? (oncpu)
 *
 * The file is looked up when a thread is sampled, so that it is known for processes that have ended when names are looked up, and is the
 * same for all processes that run the same file, wherever they have it in memory.
 *
 * Areas are found in the process's maple tree without its lock: values that are read meanwhile may be outdated. So an answer counts only if
 * the area holds the address and belongs to this process. A freed node is memory that a probe read may read: at worst there is no answer.
 */
#pragma once

#include "kernel.bpf.h"

/* A frame: an address, or a file and an offset in it. */
#define FRAME_IN_FILE (1ULL << FRAME_IN_FILE_BIT)
#define FRAME_IN_FILE_BIT 63
#define FRAME_FILE_SHIFT 40
#define FRAME_OFFSET_MASK ((1ULL << FRAME_FILE_SHIFT) - 1)
#define USER_FILES 8192
/* Programs lie below, on x86-64 and arm64 alike, except those that request more. */
#define USER_BITS 47
/* Numbers of files: the first is the kernel's own (vdso(7)). */
#define VDSO_FILE 1
#define FIRST_FILE 2
#define VDSO_BYTES 0x4000
#define USER_FRAMES 64
#define MAPLE_LEVELS 8
#define PATH_PARTS 32
#define PATH_BYTES 512
#define PART_BYTES 256
#define FS_BYTES 16
#define VM_EXEC 4
/* Words of the stack that are searched for callers whose code has no rows yet. */
#define WORDS_AHEAD 256

/* Kinds of messages to user space. */
enum { TOLD_FILE = 1, TOLD_BLOCK = 2 };

struct user_file_key {
	__u64 ino;
	__u32 generation; /* a number is reused: for the next program that a compiler tries out */
	__u32 dev;
};

struct user_file {
	__u32 what;
	__u32 index;
	__u32 dev;
	__u32 tgid; /* the process that runs it, as /proc shows it; 0: /proc does not */
	__u64 ino;
	__u64 size;
	__u64 start; /* of the area: its name in /proc/PID/map_files */
	__u64 end;
	__u32 links; /* 0: deleted */
	__u32 length;
	char fs[FS_BYTES]; /* the type of its file system */
	char path[PATH_BYTES + PART_BYTES]; /* its parts, the last first, each with a zero behind it */
};

struct user_stack {
	__u64 count;
	__u64 frames[USER_FRAMES];
};

struct user_walk {
	__u64 pc, sp, bp;
	__u64 start, end; /* of the last area found */
	__u64 base;	  /* its first byte as a frame */
	__u64 mm;
	__u32 file;  /* its number; 0: in none */
	__u32 exact; /* pc is where the code is, not its return address */
	__u32 python; /* the file of its interpreter, while the frames of Python are walked */
	__u32 asked;  /* whether it is in Python */
	__u32 is_cut; /* its callers are not known yet */
	__u64 hash; /* of the frames */
	struct user_stack stack;
	__u64 entry; /* of the tree: a node, in the end an area */
	__u64 addr;  /* the address that is looked up */
	__u64 node[MAPLE_NODE_WORDS];
	__u64 area_file; /* struct file */
	__u64 dentry, mnt; /* position on the way from it to the root */
	struct user_file told;
	__u64 wanted, row; /* of the unwinding tables: looked for, found */
	__u32 low, high;
	__u64 words[WORDS_AHEAD]; /* from the stack pointer on */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct user_walk);
} user_walks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, USER_FILES);
	__type(key, struct user_file_key);
	__type(value, __u32);
} user_files SEC(".maps");

/* Numbers in use. An atomic addition that returns a value needs Linux 5.12; an update has always reported that a key exists. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, USER_FILES);
	__type(key, __u32);
	__type(value, __u8);
} user_numbers SEC(".maps");

/* Files and blocks of code that were seen for the first time. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 << 10);
} user_news SEC(".maps");

__u32 user_files_met;
/* Samples of code whose file has no number: the numbers have run out. */
__u64 user_files_refused;

/* The pid namespace that /proc shows (stat of /proc/self/ns/pid); 0: the initial one. Set by oncpu.rs. */
const volatile __u64 shown_dev = 0, shown_ino = 0;

static __always_inline struct user_walk *my_walk(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&user_walks, &zero);
}

/* How many of the first words of a node are below the address. Words that are no pivots are zero or kernel pointers, which both count as
 * larger than any address: so each kind of node is searched alike, and without a branch.
 */
static __always_inline __u32 pivots_below(const __u64 *node, __u64 addr)
{
	__u32 below = 0, i;

	for (i = 1; i < MAPLE_SLOTS; i++)
		below += (((node[i] - 1) & (~0ULL >> 2)) - (addr - 1)) >> 63;
	return below;
}

/* One level down, as in mas_walk (lib/maple_tree.c), by a read that may fail: 0. Each step of a walk is a function of its own without
 * arguments: the verifier checks it once, however often it is called.
 */
__noinline int tree_step(void)
{
	struct user_walk *w = my_walk();
	__u32 kind, slot;

	if (!w)
		return 1;
	kind = w->entry >> 3 & 15;
	if (bpf_probe_read_kernel(w->node, sizeof(w->node), (void *)(w->entry & ~(__u64)MAPLE_NODE_MASK))) {
		w->entry = 0;
		return 1;
	}
	slot = kind == MAPLE_ARANGE_64 ? MAPLE_ARANGE_SLOTS : MAPLE_SLOTS;
	slot += pivots_below(w->node, w->addr);
	w->entry = w->node[slot & (MAPLE_NODE_WORDS - 1)];
	return kind <= MAPLE_LEAF_64;
}

static __always_inline __u64 area_at(struct user_walk *w, __u64 addr)
{
	struct mm_struct *mm = (void *)w->mm;
	__u32 level;

	w->entry = (__u64)BPF_CORE_READ(mm, mm_mt.ma_root);
	w->addr = addr;
	if ((w->entry & 3) != 2 || w->entry < 4096)
		return w->entry; /* no node (xa_is_node): the tree is one area */
	for (level = 0; level < MAPLE_LEVELS; level++)
		if (tree_step())
			return w->entry;
	return 0;
}

/* One part of a path, or across the edge of a mount. Not 0: the path is complete. */
__noinline int path_step(void)
{
	struct user_walk *w = my_walk();
	struct dentry *dentry, *above;
	struct vfsmount *mnt;
	__u32 at;
	long n;

	if (!w || w->told.length >= PATH_BYTES)
		return 1;
	dentry = (void *)w->dentry;
	mnt = (void *)w->mnt;
	if (dentry == BPF_CORE_READ(mnt, mnt_root)) {
		struct mount *m = mount_of(mnt), *parent = BPF_CORE_READ(m, mnt_parent);

		w->dentry = (__u64)BPF_CORE_READ(m, mnt_mountpoint);
		w->mnt = (__u64)&parent->mnt;
		return !parent || parent == m;
	}
	above = BPF_CORE_READ(dentry, d_parent);
	if (!above || above == dentry)
		return 1;
	at = w->told.length;
	n = bpf_probe_read_kernel_str(w->told.path + (at & (PATH_BYTES - 1)), PART_BYTES,
				      BPF_CORE_READ(dentry, d_name.name));
	if (n <= 0)
		return 1;
	w->told.length = at + n;
	w->dentry = (__u64)above;
	return 0;
}

/* include/uapi/linux/bpf.h */
struct bpf_pidns_info {
	__u32 pid, tgid;
};

/* The running process, as /proc shows it. The kernel does not report it for a process in a namespace below (kernel/bpf/helpers.c). */
static __always_inline __u32 shown_tgid(void)
{
	struct bpf_pidns_info shown = {};

	if (!shown_ino)
		return bpf_get_current_pid_tgid() >> 32;
	if (bpf_get_ns_current_pid_tgid(shown_dev, shown_ino, &shown, sizeof(shown)))
		return 0;
	return shown.tgid;
}

/* Report a file that was seen for the first time. */
__noinline int tell_file(__u32 index)
{
	struct user_walk *w = my_walk();
	struct user_file *told;
	struct file *file;
	struct inode *inode;
	__u32 i;

	if (!w)
		return 0;
	told = &w->told;
	file = (void *)w->area_file;
	inode = BPF_CORE_READ(file, f_inode);
	told->what = TOLD_FILE;
	told->index = index;
	told->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	told->tgid = shown_tgid();
	told->ino = BPF_CORE_READ(inode, i_ino);
	told->size = BPF_CORE_READ(inode, i_size);
	told->links = BPF_CORE_READ(inode, i_nlink);
	told->start = w->start;
	told->end = w->end;
	told->length = 0;
	bpf_probe_read_kernel_str(told->fs, sizeof(told->fs), BPF_CORE_READ(inode, i_sb, s_type, name));
	w->dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
	w->mnt = (__u64)BPF_CORE_READ(file, f_path.mnt);
	for (i = 0; i < PATH_PARTS; i++)
		if (path_step())
			break;
	return bpf_ringbuf_output(&user_news, told, sizeof(*told), 0) == 0;
}

static __always_inline bool has_room(void)
{
	__u64 used = bpf_ringbuf_query(&user_news, BPF_RB_AVAIL_DATA);

	return used + 2 * sizeof(struct user_file) < bpf_ringbuf_query(&user_news, BPF_RB_RING_SIZE);
}

/* 0: the numbers have run out, or another CPU has just taken it: try again next time. A number is taken only where the file and its message
 * have room, too: user space may have made the tables smaller.
 */
static __always_inline __u32 new_number(const struct user_file_key *key)
{
	__u32 index = FIRST_FILE + *(volatile __u32 *)&user_files_met, *number, none = 0;
	__u8 given = 1;

	if (index >= USER_FILES) {
		__sync_fetch_and_add(&user_files_refused, 1);
		return 0;
	}
	if (!has_room())
		return 0;
	if (bpf_map_update_elem(&user_numbers, &index, &given, BPF_NOEXIST)) {
		if (!bpf_map_lookup_elem(&user_numbers, &index))
			__sync_fetch_and_add(&user_files_refused, 1);
		return 0;
	}
	/* Other CPUs see no number before the file was reported: blocks of it would be reported first. */
	if (bpf_map_update_elem(&user_files, key, &none, BPF_NOEXIST)) {
		bpf_map_delete_elem(&user_numbers, &index);
		if (!bpf_map_lookup_elem(&user_files, key))
			__sync_fetch_and_add(&user_files_refused, 1);
		return 0;
	}
	number = tell_file(index) ? bpf_map_lookup_elem(&user_files, key) : 0;
	if (!number) {
		bpf_map_delete_elem(&user_files, key);
		bpf_map_delete_elem(&user_numbers, &index);
		return 0;
	}
	*number = index;
	__sync_fetch_and_add(&user_files_met, 1);
	return index;
}

/* The number of the file of the last area found. 0: it has none, or the numbers have run out. */
__noinline __u32 file_number(void)
{
	struct user_file_key key = {};
	struct user_walk *w = my_walk();
	struct inode *inode;
	struct file *file;
	__u32 *known;

	if (!w || !w->area_file)
		return 0;
	file = (void *)w->area_file;
	inode = BPF_CORE_READ(file, f_inode);
	key.ino = BPF_CORE_READ(inode, i_ino);
	key.generation = BPF_CORE_READ(inode, i_generation);
	key.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	known = bpf_map_lookup_elem(&user_files, &key);
	if (known)
		return *known;
	return new_number(&key);
}

static __always_inline bool is_vdso(struct user_walk *w, __u64 addr)
{
	struct mm_struct *mm = (void *)w->mm;
	__u64 vdso = (__u64)BPF_CORE_READ(mm, context.vdso);

	if (!vdso || addr < vdso || addr >= vdso + VDSO_BYTES)
		return false;
	w->start = vdso;
	w->end = vdso + VDSO_BYTES;
	w->file = VDSO_FILE;
	w->base = FRAME_IN_FILE | (__u64)VDSO_FILE << FRAME_FILE_SHIFT;
	return true;
}

/* Find the area of an address. False: there is none. */
static __always_inline bool meet_area(struct user_walk *w, __u64 addr)
{
	struct vm_area_struct *area;
	__u64 start, end;

	if (addr >= w->start && addr < w->end)
		return true;
	if (!bpf_core_field_exists(((struct mm_struct *)0)->mm_mt))
		return false; /* before v6.1 areas are in a tree of another kind: code has no names */
	area = (void *)area_at(w, addr);
	if (!area)
		return false;
	start = BPF_CORE_READ(area, vm_start);
	end = BPF_CORE_READ(area, vm_end);
	if (addr < start || addr >= end || (__u64)BPF_CORE_READ(area, vm_mm) != w->mm)
		return false;
	if (bpf_core_field_exists(area->vm_flags) && !(BPF_CORE_READ(area, vm_flags) & VM_EXEC))
		return false; /* data */
	w->start = start;
	w->end = end;
	w->base = start;
	w->area_file = (__u64)BPF_CORE_READ(area, vm_file);
	w->file = file_number();
	if (w->file)
		w->base = FRAME_IN_FILE | (__u64)w->file << FRAME_FILE_SHIFT |
			  (BPF_CORE_READ(area, vm_pgoff) << 12 & FRAME_OFFSET_MASK);
	else
		is_vdso(w, addr);
	return true;
}

/* False: there is no code. */
static __always_inline bool frame_of(struct user_walk *w, __u64 addr, __u64 *frame)
{
	if (meet_area(w, addr))
		*frame = w->base + (addr - w->start);
	else if (bpf_core_field_exists(((struct mm_struct *)0)->mm_mt))
		return false;
	else
		*frame = addr;
	return true;
}
