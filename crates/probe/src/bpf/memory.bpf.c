// SPDX-License-Identifier: GPL-2.0
/* What did memory cost the tasks that needed it: reclaim, refaults, swap-in, pauses of writers?
 *
 * Reclaim is timed from its tracepoints. For pages of files one page in 16 is followed, chosen by a hash of (inode, index). When such a
 * page is evicted or dropped, the evictor is noted. When the page is added again, it was a refault if the task's own cgroup had evicted it
 * at its limit. Otherwise it was taken from its former user, if the same user reads it again. A page that is added for the first time is
 * neither, however fast it streams by. Not seen: pages evicted before the window.
 */
#include "kernel.bpf.h"

#define MAX_ROWS 8192
#define MAX_INSIDE 8192
#define MAX_EVICTED 65536
/* One page in so many is followed: this limits the cost of a full page cache to a hash and a compare per page. */
#define STRIDE 16
#define STRIDE_BITS 4
#define MAX_FOLIO_GROUPS 32 /* 2 MiB folios: 512 pages */
/* arch/x86/entry/syscalls/syscall_64.tbl */
#define NR_WRITE 1
#define NR_PWRITE64 18
#define NR_WRITEV 20
#define NR_FADVISE64 221
#define NR_PWRITEV 296
#define NR_PWRITEV2 328

enum memory_kind { LIMIT, GLOBAL, BACKGROUND, DROPPED };

struct memory_key {
	__u32 pid;
	__u32 tgid;
	__u64 cgroup;
};

struct memory_row {
	__u64 limit_ns;
	__u64 limit_count;
	__u64 limit_worst_ns;
	__u64 global_ns;
	__u64 global_count;
	__u64 global_worst_ns;
	__u64 added;
	__u64 added_before;
	__u64 refaulted;
	__u64 swapped_in;
	__u64 pause_jiffies;
	__u64 taken_at_limit;
	__u64 taken_by_reclaim;
	__u64 dropped;
	/* The session that took most at a limit or dropped most, by a majority vote (Boyer and Moore): a session and a way, with its last
	 * process. It took at least as many pages as it has votes.
	 */
	__u64 votes;
	__u32 taker;
	__u32 taker_session;
	__u32 taker_how;
	__u32 unused;
};

/* The evictor of a page, and the owner that had the page before: the memory cgroup that it was charged to, and if it was added in the
 * window the session.
 */
struct memory_eviction {
	__u64 cgroup;
	__u64 owner_cgroup;
	__u32 owner_session;
	__u32 session;
	__u32 tgid;
	__u32 how;
};

/* A task that is in reclaim. */
struct memory_inside {
	struct memory_key key;
	__u64 since;
	__u64 kind;
};

struct memory_page {
	__u64 inode;
	__u32 dev;
	__u32 index;
};

/* All are preallocated: folios are deleted from the page cache with interrupts off. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct memory_key);
	__type(value, struct memory_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_INSIDE);
	__type(key, __u32);
	__type(value, struct memory_inside);
} inside SEC(".maps");

/* Pages that were evicted or dropped. The map drops the oldest: 65,536 samples stand for 4 GiB. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_EVICTED);
	__type(key, struct memory_page);
	__type(value, struct memory_eviction);
} evicted SEC(".maps");

/* The session that added a page. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_EVICTED);
	__type(key, struct memory_page);
	__type(value, __u32);
} adders SEC(".maps");

/* Tasks that we saw but could not note. */
__u64 lost;
/* The kernel measures a pause in jiffies; two readings of both clocks show how long a jiffy is. */
__u64 first_jiffies, first_ns, last_jiffies, last_ns;

static void key_of_current(struct memory_key *key)
{
	struct task_struct *t = (void *)bpf_get_current_task_btf();

	key->pid = t->pid;
	key->tgid = t->tgid;
	key->cgroup = css_cgroup_key(task_css(t, memory_cgrp_id));
}

static struct memory_row *row_of(struct memory_key *key)
{
	static const struct memory_row none;
	struct memory_row *row = bpf_map_lookup_elem(&rows, key);

	if (!row) {
		bpf_map_update_elem(&rows, key, &none, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&rows, key);
	}
	if (!row)
		__sync_fetch_and_add(&lost, 1);
	return row;
}

static int enter(__u64 kind)
{
	struct memory_inside in = { .since = bpf_ktime_get_ns(), .kind = kind };
	__u32 pid;

	key_of_current(&in.key);
	pid = in.key.pid;
	if (bpf_map_update_elem(&inside, &pid, &in, BPF_ANY))
		__sync_fetch_and_add(&lost, 1);
	return 0;
}

static int leave(__u64 kind)
{
	__u32 pid = (__u32)bpf_get_current_pid_tgid();
	struct memory_inside *in = bpf_map_lookup_elem(&inside, &pid);
	struct memory_row *row;
	__u64 ns;

	if (!in || in->kind != kind)
		return 0; /* in reclaim since before we attached */
	ns = elapsed(in->since, bpf_ktime_get_ns());
	row = row_of(&in->key);
	bpf_map_delete_elem(&inside, &pid);
	if (!row)
		return 0;
	if (kind == LIMIT) {
		row->limit_ns += ns;
		row->limit_count++;
		row->limit_worst_ns = ns > row->limit_worst_ns ? ns : row->limit_worst_ns;
	} else {
		row->global_ns += ns;
		row->global_count++;
		row->global_worst_ns = ns > row->global_worst_ns ? ns : row->global_worst_ns;
	}
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(limit_begins)
{
	return enter(LIMIT);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(limit_ends)
{
	return leave(LIMIT);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(global_begins)
{
	return enter(GLOBAL);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(global_ends)
{
	return leave(GLOBAL);
}

static __always_inline __u32 pages_in(struct folio *folio)
{
	__u64 flags, head = 1ULL << (bpf_core_enum_value(enum pageflags, PG_head) & 63);

	if (bpf_core_field_exists(folio->flags.f))
		flags = folio->flags.f;
	else
		flags = ((struct folio___before_6_18 *)folio)->flags;
	if (!(flags & head))
		return 1;
	if (bpf_core_field_exists(folio->_nr_pages))
		return folio->_nr_pages;
	if (bpf_core_field_exists(((struct folio___before_6_15 *)folio)->_folio_nr_pages))
		return ((struct folio___before_6_15 *)folio)->_folio_nr_pages;
	return 1;
}

/* The page of a group of 16 that is followed. */
static __always_inline __u32 followed(__u64 inode, __u32 group)
{
	__u64 h = (inode * 0x9E3779B97F4A7C15ULL) ^ (group * 0xC2B2AE3D27D4EB4FULL);

	return group << STRIDE_BITS | ((h ^ h >> 29) * 0xBF58476D1CE4E5B9ULL >> (64 - STRIDE_BITS));
}

struct span {
	__u64 inode;
	__u32 dev;
	__u32 first;
	__u32 end;
};

/* Where a folio lies in its file; false if no page of it can be followed, which is the usual case. */
static __always_inline bool span_of(struct folio *folio, struct span *span)
{
	struct inode *inode = folio->mapping->host;

	span->inode = inode->i_ino;
	span->first = folio->index;
	span->end = span->first + pages_in(folio);
	if (span->end - span->first == 1 && followed(span->inode, span->first >> STRIDE_BITS) != span->first)
		return false;
	span->dev = inode->i_sb->s_dev;
	return true;
}

static __always_inline bool next_page(struct span *span, __u32 *group, struct memory_page *page)
{
	page->inode = span->inode;
	page->dev = span->dev;
	page->index = followed(span->inode, *group);
	(*group)++;
	return page->index >= span->first && page->index < span->end;
}

static void vote(struct memory_row *row, struct memory_eviction *by)
{
	if (row->votes && (row->taker_session != by->session || row->taker_how != by->how)) {
		row->votes--;
		return;
	}
	row->votes++;
	row->taker_session = by->session;
	row->taker_how = by->how;
	row->taker = by->tgid;
}

/* The number of the current task's system call; interrupts and faults: negative. */
static __always_inline __s64 call_of(struct task_struct *t)
{
	return t->flags & PF_KTHREAD ? -1 : (__s64)BPF_CORE_READ(registers_of(t), orig_ax);
}

static __always_inline bool is_write(__s64 call)
{
	return call == NR_WRITE || call == NR_PWRITE64 || call == NR_WRITEV || call == NR_PWRITEV || call == NR_PWRITEV2;
}

/* Whether the task that adds a page had it before, and reads it again: a write does not read it. */
static __always_inline bool is_again(struct memory_eviction *by, struct memory_key *key, __u32 session)
{
	if (is_write(call_of((void *)bpf_get_current_task_btf())))
		return false;
	return by->owner_session ? by->owner_session == session : by->owner_cgroup == key->cgroup;
}

static __noinline void added_again(struct memory_row *row, struct memory_page *page, struct memory_key *key, __u32 session)
{
	struct memory_eviction *by = bpf_map_lookup_elem(&evicted, page);
	__u64 came_back = row->refaulted + row->taken_at_limit + row->taken_by_reclaim + row->dropped;
	bool own;

	if (by) {
		own = by->how == LIMIT && by->cgroup == key->cgroup;
		if (!came_back && (own || is_again(by, key, session)))
			row->added_before = row->added;
		if (own) {
			row->refaulted += STRIDE;
		} else if (is_again(by, key, session)) {
			if (by->how == GLOBAL || by->how == BACKGROUND) {
				row->taken_by_reclaim += STRIDE;
			} else if (by->session != session) {
				row->taken_at_limit += by->how == LIMIT ? STRIDE : 0;
				row->dropped += by->how == DROPPED ? STRIDE : 0;
				vote(row, by);
			}
		}
		bpf_map_delete_elem(&evicted, page);
	}
	row->added += STRIDE;
	bpf_map_update_elem(&adders, page, &session, BPF_ANY);
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(added, struct folio *folio)
{
	struct memory_page page = {};
	struct memory_row *row = 0;
	struct memory_key key = {};
	struct span span = {};
	__u32 group, i, session = 0;

	if (!span_of(folio, &span))
		return 0;
	group = span.first >> STRIDE_BITS;
	for (i = 0; i <= MAX_FOLIO_GROUPS && group << STRIDE_BITS < span.end; i++) {
		if (!next_page(&span, &group, &page))
			continue;
		if (!row) {
			key_of_current(&key);
			session = session_of((void *)bpf_get_current_task_btf());
			row = row_of(&key);
			if (!row)
				return 0;
		}
		added_again(row, &page, &key, session);
	}
	return 0;
}

/* Whether the current task makes the kernel drop pages: posix_fadvise(2), or a write to a file of /proc; among these
 * /proc/sys/vm/drop_caches is the one that does (fs/drop_caches.c). Pages go for many other reasons: their file is truncated, written past
 * the cache, changed on another host.
 */
static __always_inline bool drops(struct task_struct *t)
{
	struct fdtable *table = BPF_CORE_READ(t, files, fdt);
	__s64 call = call_of(t);
	struct file *file = 0;
	__u32 fd;

	if (call == NR_FADVISE64)
		return true;
	fd = (__u32)BPF_CORE_READ(registers_of(t), di);
	if (!is_write(call) || !table || fd >= BPF_CORE_READ(table, max_fds))
		return false;
	bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
	return file && BPF_CORE_READ(file, f_inode, i_sb, s_magic) == PROC_SUPER_MAGIC;
}

/* The process that evicts a page, and in which way; false: not known. Reclaim that is none of these runs with PF_MEMALLOC, too. */
static __always_inline bool evictor(struct memory_eviction *by)
{
	struct task_struct *t = (void *)bpf_get_current_task_btf();
	__u32 pid = t->pid;
	struct memory_inside *in = bpf_map_lookup_elem(&inside, &pid);

	if (in) {
		by->cgroup = in->key.cgroup;
		by->how = in->kind;
	} else if (t->flags & PF_KSWAPD) {
		by->how = BACKGROUND;
	} else if (!(t->flags & PF_MEMALLOC) && drops(t)) {
		by->how = DROPPED;
	} else {
		return false;
	}
	by->tgid = t->tgid;
	by->session = session_of(t);
	return true;
}

/* The memory cgroup that a page of a file is charged to. The low bits are flags; v5.11, bcfe06bf2622 ("mm: memcontrol: Use helpers
 * to read page's memcg data").
 */
static __always_inline __u64 charged_to(struct folio *folio)
{
	struct mem_cgroup *memcg;

	if (!bpf_core_field_exists(folio->memcg_data))
		return 0;
	memcg = (void *)(folio->memcg_data & ~7ULL);
	return memcg ? css_cgroup_key(&memcg->css) : 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int BPF_PROG(deleted, struct folio *folio)
{
	struct memory_eviction by = {};
	struct memory_page page = {};
	struct span span = {};
	__u32 group, i, *adder;

	if (!span_of(folio, &span) || !evictor(&by))
		return 0;
	by.owner_cgroup = charged_to(folio);
	group = span.first >> STRIDE_BITS;
	for (i = 0; i <= MAX_FOLIO_GROUPS && group << STRIDE_BITS < span.end; i++) {
		if (!next_page(&span, &group, &page))
			continue;
		adder = bpf_map_lookup_elem(&adders, &page);
		by.owner_session = adder ? *adder : 0;
		bpf_map_update_elem(&evicted, &page, &by, BPF_ANY);
	}
	return 0;
}

/* The count of swap entries of a process changes: it swaps in, unless it is reclaiming (then it swaps out).
 * Attached only where there is swap. Each event counts as a page: before v6.2, f1a7941243c1 ("mm: convert mm's
 * rss stats into percpu_counter"), one in 64 is reported.
 */
SEC("tp_btf/rss_stat")
int BPF_PROG(swapped, struct mm_struct *mm, int member)
{
	struct task_struct *t;
	struct memory_key key = {};
	struct memory_row *row;
	__u32 pid;

	if (member != MM_SWAPENTS)
		return 0;
	t = (void *)bpf_get_current_task_btf();
	pid = t->pid;
	if (t->mm != mm || bpf_map_lookup_elem(&inside, &pid))
		return 0;
	key_of_current(&key);
	row = row_of(&key);
	if (row)
		row->swapped_in++;
	return 0;
}

static void read_clocks(void)
{
	last_jiffies = bpf_jiffies64();
	last_ns = bpf_ktime_get_ns();
	if (!first_ns) {
		first_ns = last_ns;
		first_jiffies = last_jiffies;
	}
}

static int pause(__s64 jiffies)
{
	struct memory_key key = {};
	struct memory_row *row;

	read_clocks();
	if (jiffies <= 0)
		return 0;
	key_of_current(&key);
	row = row_of(&key);
	if (row)
		row->pause_jiffies += jiffies;
	return 0;
}

/* The pause is the last argument but one: the 7th, where the kernel passes `dtc`; the 11th, where it passes its
 * parts. memory.rs counts the arguments in BTF and loads the one that fits.
 */
SEC("tp_btf/balance_dirty_pages")
int paused(__u64 *ctx)
{
	return pause(ctx[6]);
}

SEC("tp_btf/balance_dirty_pages")
int paused_by_parts(__u64 *ctx)
{
	return pause(ctx[10]);
}

SEC("iter/task")
int clocks(struct bpf_iter__task *ctx)
{
	if (!ctx->task) /* the end of the walk */
		read_clocks();
	return 0;
}
