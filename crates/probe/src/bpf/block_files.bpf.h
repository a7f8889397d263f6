/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which file a block request is about: the first page of its bio is in the page cache of an inode, and an inode has a name where the kernel
 * still has one (a dentry). The file is found by reads alone: no lock is taken, no reference held, d_path is not called.
 *
 * I/O that bypasses the page cache (direct I/O, swap, compressed data) is about memory of a program or of no process, and has no name here.
 * A page of a file may be such memory, too (a program that reads directly into a mapped file): so a page counts only if it is locked to be
 * read, or marked as being written (folio_start_writeback), as the page cache does.
 *
 * User space gets a file once, with the name that it had at its first request: a later request costs a look-up.
 */
#pragma once

#include "shared.bpf.h"

#define MAX_BLOCK_FILES 4096
/* Ids of one window. */
#define MAX_FILE_IDS 65535
#define MAX_FILE_ROWS 8192
/* Bios on their way to a request, by hash: a power of two. */
#define MAX_BIOS 16384
#define MAX_FILE_PARTS 16
#define FILE_TEXT 512

/* What a request is about. A page of a block device itself: a file system's own blocks, if it is mounted. */
enum { OF_NOTHING, OF_FILE, OF_BLOCKS, OF_JOURNAL };

struct block_file_key {
	__u64 ino;
	__u32 dev;
	__u32 generation; /* distinguishes files that use the same inode number one after another */
	__u32 kind;
	__u32 unused;
};

struct block_file {
	__u64 ino;
	__u32 dev; /* of the file system, or the device: major << 20 | minor */
	__u32 id;
	__u32 kind;
	__u32 deleted;
	__u32 cut; /* the path has further folders above */
	__u32 size;
	char text[FILE_TEXT]; /* parts of the path, each ends with a 0, last one first; none: the kernel has no name for it any more */
};

struct file_io_key {
	__u32 dev;
	__u32 op;
	__u32 tgid; /* the process that queued it; 0: not known */
	__u32 file; /* id; 0: not known */
};

struct file_io {
	__u64 requests;
	__u64 bytes;
	__u64 device_ns;
	__u64 device_worst_ns;
	__u64 queue_ns;
	__u64 ahead; /* sum of the requests that were at the device when one was handed to it */
	char comm[16];
};

/* The process that queued a bio, and the file that the bio is about. */
struct bio_note {
	__u64 bio;
	__u32 tgid;
	__u32 file;
	char comm[16];
};

struct file_scratch {
	struct block_file_key key;
	struct block_file file;
	char slack[256];
	__u64 dentry;
};

/* All are preallocated, as blkio's own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_BLOCK_FILES);
	__type(key, struct block_file_key);
	__type(value, struct block_file);
} block_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FILE_ROWS);
	__type(key, struct file_io_key);
	__type(value, struct file_io);
} file_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BIOS);
	__type(key, __u32);
	__type(value, struct bio_note);
} bio_notes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct file_scratch);
} file_scratch SEC(".maps");

/* Files that have an id. */
__u32 files_told;
/* Requests about files for which there was no room: they are reported without a file. */
__u64 files_lost;

static __always_inline struct file_scratch *my_file_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&file_scratch, &zero);
}

static __always_inline struct folio *first_folio(struct bio *bio)
{
	struct bio_vec *vec = BPF_CORE_READ(bio, bi_io_vec);
	struct page *page = 0;
	__u64 head;

	if (!vec || !BPF_CORE_READ(bio, bi_iter.bi_size) || !bpf_core_field_exists(page->compound_head))
		return 0;
	page = BPF_CORE_READ(vec, bv_page);
	head = BPF_CORE_READ(page, compound_head);
	return head & 1 ? (void *)(head - 1) : (void *)page;
}

/* The page cache itself reads or writes the page now. */
static __always_inline bool is_in_hand(struct folio *folio, __u32 op)
{
	__u32 bit = op ? bpf_core_enum_value(enum pageflags, PG_writeback) : bpf_core_enum_value(enum pageflags, PG_locked);
	struct folio___before_6_18 *old = (void *)folio;
	__u64 flags;

	flags = bpf_core_field_exists(folio->flags.f) ? BPF_CORE_READ(folio, flags.f) : BPF_CORE_READ(old, flags);
	return flags >> (bit & 63) & 1;
}

/* The inode that the page belongs to; 0: none. Other users of memory keep other things where a folio's mapping is: an inode points back. */
static __always_inline struct inode *inode_of(struct folio *folio)
{
	__u64 mapping = (__u64)BPF_CORE_READ(folio, mapping);
	struct inode *inode;

	if (!mapping || mapping & 3) /* 1: anonymous, 2: of a driver that moves pages */
		return 0;
	inode = BPF_CORE_READ((struct address_space *)mapping, host);
	return inode && (__u64)BPF_CORE_READ(inode, i_mapping) == mapping ? inode : 0;
}

static __always_inline bool is_jbd2(struct task_struct *t)
{
	return t->flags & PF_KTHREAD && t->comm[0] == 'j' && t->comm[1] == 'b' && t->comm[2] == 'd' && t->comm[3] == '2';
}

/* What a bio is about, in s->key; its inode, if it has one. */
static __always_inline struct inode *subject_of(struct file_scratch *s, struct bio *bio, __u32 op)
{
	struct folio *folio = first_folio(bio);
	struct inode *inode = folio ? inode_of(folio) : 0;
	__u64 magic = inode ? BPF_CORE_READ(inode, i_sb, s_magic) : 0;

	__builtin_memset(&s->key, 0, sizeof(s->key));
	if (inode && magic != BDEVFS_MAGIC) {
		if (!is_in_hand(folio, op))
			return 0;
		s->key.kind = OF_FILE;
		s->key.dev = BPF_CORE_READ(inode, i_sb, s_dev);
		s->key.ino = BPF_CORE_READ(inode, i_ino);
		s->key.generation = BPF_CORE_READ(inode, i_generation);
		return inode;
	}
	/* The journal writes future contents of the file system's blocks, out of their pages, or copies of them. */
	if (op && is_jbd2((void *)bpf_get_current_task_btf())) {
		s->key.kind = OF_JOURNAL;
		s->key.dev = BPF_CORE_READ(bio, bi_bdev, bd_dev);
	} else if (inode) {
		s->key.kind = OF_BLOCKS;
		s->key.dev = BPF_CORE_READ(inode, i_rdev);
	}
	return 0;
}

/* One part of the path. False: it is complete. */
static __always_inline bool add_part(struct file_scratch *s)
{
	struct dentry *dentry = (void *)s->dentry, *above = BPF_CORE_READ(dentry, d_parent);
	__u32 at = s->file.size;
	long n;

	if (!above || above == dentry || at >= FILE_TEXT)
		return false;
	n = bpf_probe_read_kernel_str(&s->file.text[at & (FILE_TEXT - 1)], 256, BPF_CORE_READ(dentry, d_name.name));
	s->file.size = at + (n > 0 ? n : 0);
	s->dentry = (__u64)above;
	return true;
}

/* Global: the verifier checks it once. */
__noinline int name_inode(__u64 at)
{
	struct file_scratch *s = my_file_scratch();
	struct inode *inode = (void *)at;
	struct hlist_node *node;
	struct dentry *dentry = 0;
	int i;

	if (!s || !bpf_core_field_exists(dentry->d_u.d_alias))
		return 0;
	node = BPF_CORE_READ(inode, i_dentry.first);
	s->file.deleted = !BPF_CORE_READ(inode, i_nlink);
	if (!node)
		return 0;
	dentry = (void *)node - bpf_core_field_offset(struct dentry, d_u.d_alias);
	s->dentry = (__u64)dentry;
	if (!BPF_CORE_READ(dentry, d_hash.pprev) && BPF_CORE_READ(dentry, d_parent) != dentry)
		s->file.deleted = 1;
	for (i = 0; i < MAX_FILE_PARTS; i++)
		if (!add_part(s))
			break;
	s->file.cut = i == MAX_FILE_PARTS || s->file.size > FILE_TEXT;
	if (s->file.size > FILE_TEXT)
		s->file.size = FILE_TEXT;
	return 0;
}

/* The id of what a bio is about; 0: nothing that has a name. */
static __always_inline __u32 file_of(struct bio *bio, __u32 op)
{
	struct file_scratch *s = my_file_scratch();
	struct block_file *file;
	struct inode *inode;
	__u32 id;

	if (!s || op > 1)
		return 0;
	inode = subject_of(s, bio, op);
	if (s->key.kind == OF_NOTHING)
		return 0;
	file = bpf_map_lookup_elem(&block_files, &s->key);
	if (file)
		return file->id; /* 0, for a moment: another CPU has just met it */
	if (*(volatile __u32 *)&files_told >= MAX_FILE_IDS) {
		__sync_fetch_and_add(&files_lost, 1);
		return 0;
	}
	__builtin_memset(&s->file, 0, sizeof(s->file));
	s->file.ino = s->key.ino;
	s->file.dev = s->key.dev;
	s->file.kind = s->key.kind;
	if (inode)
		name_inode((__u64)inode);
	/* An id is used up only where there is room: a waiting task notes it in 16 bits (struct last_io). */
	file = bpf_map_update_elem(&block_files, &s->key, &s->file, BPF_NOEXIST) ? 0 : bpf_map_lookup_elem(&block_files, &s->key);
	if (!file) {
		__sync_fetch_and_add(&files_lost, 1);
		return 0;
	}
	id = __sync_fetch_and_add(&files_told, 1) + 1;
	if (id > MAX_FILE_IDS)
		return 0;
	file->id = id;
	return id;
}

static __always_inline struct bio_note *note_of(__u64 bio)
{
	__u32 at = (bio >> 6 ^ bio >> 20) & (MAX_BIOS - 1);

	return bpf_map_lookup_elem(&bio_notes, &at);
}

/* A bio is queued, by the current task if `is_own`. Returns the id of the file that it is about. */
static __always_inline __u32 note_bio(struct bio *bio, __u32 op, bool is_own)
{
	struct task_struct *t = (void *)bpf_get_current_task_btf();
	struct bio_note *note;
	__u32 file = file_of(bio, op);
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &bio); /* the verifier shifts no pointer */
	note = note_of(number);
	if (!note)
		return file;
	note->bio = number;
	note->tgid = is_own ? t->tgid : 0;
	note->file = file;
	if (is_own)
		__builtin_memcpy(note->comm, t->comm, sizeof(note->comm));
	else
		__builtin_memset(note->comm, 0, sizeof(note->comm));
	return file;
}

/* A request is done. Where there is no room for its process and file, it is counted in the row of all. */
static __always_inline void add_file_row(struct file_io_key *key, struct file_io *done)
{
	struct file_io fresh = {}, *row = bpf_map_lookup_elem(&file_rows, key);

	if (!row) {
		__builtin_memcpy(fresh.comm, done->comm, sizeof(fresh.comm));
		if (bpf_map_update_elem(&file_rows, key, &fresh, BPF_NOEXIST)) {
			key->tgid = 0;
			key->file = 0;
			__builtin_memset(fresh.comm, 0, sizeof(fresh.comm));
			bpf_map_update_elem(&file_rows, key, &fresh, BPF_NOEXIST);
		}
		row = bpf_map_lookup_elem(&file_rows, key);
	}
	if (!row) {
		__sync_fetch_and_add(&files_lost, 1);
		return;
	}
	__sync_fetch_and_add(&row->requests, 1);
	__sync_fetch_and_add(&row->bytes, done->bytes);
	__sync_fetch_and_add(&row->device_ns, done->device_ns);
	__sync_fetch_and_add(&row->queue_ns, done->queue_ns);
	__sync_fetch_and_add(&row->ahead, done->ahead);
	if (done->device_ns > row->device_worst_ns)
		row->device_worst_ns = done->device_ns;
}
