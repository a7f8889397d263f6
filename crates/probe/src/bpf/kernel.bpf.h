/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The kernel, as far as whyslow knows it.
 *
 * Every kernel type, field and constant our programs use is declared here and nowhere else. CO-RE finds fields by name, so their order, and
 * all that we leave out, does not matter.
 *
 * Where kernels differ, this file has the difference: the older shape as `struct x___before_<version>`, the commit that changed it, and one
 * accessor that hides both. Programs ask for the field, never for a kernel version.
 */
#pragma once

#include <stdbool.h>

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef signed short __s16;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32, __wsum;

/* include/uapi/linux/bpf.h: these numbers never change. */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_MAP_TYPE_STACK = 23,
	BPF_F_USER_STACK = 1 << 8,
	BPF_F_CURRENT_CPU = 0xffffffff,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_EXIST = 2,
};

/* include/linux/smp_types.h, the type in call_single_node.u_flags. v5.8, 545b8c8df41f ("smp: Cleanup smp_call_function*()"). */
enum {
	CSD_TYPE_SYNC = 0x10,
	CSD_FLAG_TYPE_MASK = 0xf0,
};

/* include/trace/events/power.h: (u32)-1 ends an idle state. */
#define PWR_EVENT_EXIT 0xffffffffU

/* include/linux/sched.h */
enum {
	TASK_RUNNING = 0,
	TASK_INTERRUPTIBLE = 1,
	TASK_UNINTERRUPTIBLE = 2,
	TASK_DEAD = 0x80,
	TASK_NOLOAD = 0x400,
	PF_MEMALLOC = 0x00000800,
	PF_KSWAPD = 0x00020000,
	PF_KTHREAD = 0x00200000,
	PF_WQ_WORKER = 0x00000020,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id; /* before v5.5, 67c0496e87d1, a union: not claimed */
	const char *name;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
	__u64 serial_nr; /* counted over all hierarchies, in the order in which they were made (kernel/cgroup/cgroup.c) */
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
	int level; /* 0: the root */
	int nr_descendants;
	int nr_dying_descendants; /* removed, and not freed yet */
};

struct cgroup_root {
	int hierarchy_id;
	struct cgroup cgrp;
};

struct css_set {
	struct cgroup *dfl_cgrp;
	struct cgroup_subsys_state *subsys[16];
};

/* Values differ with the configuration: ask BTF. */
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
	io_cgrp_id = 3,
	memory_cgrp_id = 4,
};

struct cfs_bandwidth {
	__u64 period;
	__u64 quota;
	__u64 burst; /* v5.14, f4183717b370 ("sched/fair: Introduce the burstable CFS controller") */
	int nr_periods;
	int nr_throttled;
	__u64 throttled_time;
};

struct autogroup {
	unsigned long id; /* 0: the autogroup of tasks that have none of their own */
};

struct task_group {
	struct cgroup_subsys_state css;
	struct autogroup *autogroup;
	unsigned long shares;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct rq {
	__u64 clock;
	int cpu;
};

struct cfs_rq {
	struct rq *rq;
};

struct load_weight {
	unsigned long weight;
};

struct sched_entity {
	struct load_weight load;
	__u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
	unsigned long long last_arrival;
	unsigned long long last_queued;
};

typedef struct {
	long long counter;
} atomic64_t;

typedef struct {
	long counter;
} atomic_long_t;

struct page_counter {
	atomic64_t usage;
	unsigned long failcnt;
	unsigned long high;
	unsigned long max;
};

/* enum memcg_memory_event: order differs with the kernel, ask BTF. */
enum memcg_memory_event {
	MEMCG_LOW,
	MEMCG_HIGH,
	MEMCG_MAX,
	MEMCG_OOM,
	MEMCG_OOM_KILL,
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
	struct page_counter swap;
	struct page_counter memsw;
	atomic64_t memory_events[10];
	atomic64_t memory_events_local[10];
};

struct cpumask {
	unsigned long bits[128];
};

/* include/linux/maple_tree.h; v6.1, 54a611b60590 ("Maple Tree: add new data structure"). */
struct maple_tree {
	void *ma_root;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long env_start;
	unsigned long env_end;
	struct maple_tree mm_mt; /* v6.1, d4af56c5c7c6 ("mm: start tracking VMAs with maple tree") */
	struct {
		void *vdso;
	} context;
};

struct files_struct;
struct fs_struct;

struct pt_regs;

struct thread_info {
	unsigned int status; /* x86: TS_COMPAT */
};

struct pid_namespace;

/* A task's number in one pid namespace. */
struct upid {
	int nr;
	struct pid_namespace *ns;
};

/* A task's numbers in its own namespace (`level`) and in those above, from the initial one (0) on. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

/* Ask BTF: bits were added before it. */
enum req_flag_bits {
	__REQ_PREFLUSH = 18,
};

/* Values are the same since v4.19 (2c4704756cab): PID 0, TGID 1, PGID 2, SID 3. */
#define SESSION 3

struct signal_struct {
	struct pid *pids[SESSION + 1];
	int group_exit_code;
};

/* CONFIG_TASK_IO_ACCOUNTING; syscr: CONFIG_TASK_XACCT */
struct task_io_accounting {
	__u64 syscr;
	__u64 write_bytes;
};

/* arch/x86/include/asm/processor.h */
struct thread_struct {
	unsigned long sp;
};

/* include/linux/uidgid_types.h, include/linux/cred.h */
typedef struct {
	__u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct task_struct {
	struct thread_info thread_info;
	struct files_struct *files;
	struct fs_struct *fs;
	int pid;
	int tgid;
	unsigned int __state;
	unsigned int flags;
	unsigned int policy;
	unsigned int in_iowait : 1;
	int nr_cpus_allowed;
	int on_cpu;
	int exit_code;
	int softirq_disable_cnt; /* with PREEMPT_RT only */
	const struct cpumask *cpus_ptr;
	struct sched_entity se;
	struct sched_info sched_info;
	struct task_io_accounting ioac;
	struct task_group *sched_task_group;
	unsigned int ptrace;
	struct task_struct *parent;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct css_set *cgroups;
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_time;
	char comm[16];
	struct mm_struct *mm;
	void *stack;
	struct thread_struct thread;
	void *worker_private;
	const struct cred *real_cred;
	struct nsproxy *nsproxy;
};

/* v5.17, e32cf5dfbe22 ("kthread: Generalize pf_io_worker so it can point to struct kthread") */
struct task_struct___before_5_17 {
	int *set_child_tid;
};

/* v5.14, 2f064a59a11f ("sched: Change task_struct::state") */
struct task_struct___before_5_14 {
	long state;
};

struct irqaction {
	const char *name;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_bl_node {
	void *pprev;
};

struct hlist_head {
	struct hlist_node *first;
};

struct work_struct;

struct kthread {
	void *data;
};

struct workqueue_struct {
	char name[24]; /* 32 since v6.9 */
};

struct pool_workqueue {
	struct workqueue_struct *wq;
};

struct worker {
	void (*current_func)(struct work_struct *work);
	struct pool_workqueue *current_pwq;
};

struct gendisk {
	int major;
	int first_minor;
};

struct throtl_data;

struct request_queue {
	struct gendisk *disk;
	struct throtl_data *td;
};

struct block_device {
	struct gendisk *bd_disk;
	unsigned int bd_dev;
};

struct blkg_policy_data {
	int plid;
};

struct throtl_service_queue {
	unsigned int nr_queued_bps[2];
	unsigned int nr_queued_iops[2];
};

/* v6.16, 28ad83b774a6 ("blk-throttle: Split the service queue") */
struct throtl_service_queue___before_6_16 {
	unsigned int nr_queued[2];
};

struct throtl_grp {
	struct blkg_policy_data pd;
	struct throtl_data *td;
	struct throtl_service_queue service_queue;
};

struct blkcg;

struct blkcg_gq {
	struct request_queue *q;
	struct hlist_node blkcg_node;
	struct blkcg *blkcg;
	struct blkcg_gq *parent;
	struct blkg_policy_data *pd[6];
};

struct blkcg {
	struct cgroup_subsys_state css;
	struct hlist_head blkg_list;
};

struct page {
	unsigned long compound_head; /* bit 0: the rest is the first page of the folio */
};

struct bio_vec {
	struct page *bv_page;
};

struct bvec_iter {
	unsigned int bi_size;
};

struct bio {
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	struct blkcg_gq *bi_blkg;
	struct bvec_iter bi_iter;
	struct bio_vec *bi_io_vec;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct bio *bio;
	__u64 start_time_ns;
};

struct file_system_type {
	const char *name;
};

struct super_block {
	unsigned int s_dev;
	unsigned long s_flags;
	unsigned long s_magic;
	struct file_system_type *s_type;
	char s_id[32];
};

struct inode {
	struct super_block *i_sb;
	struct address_space *i_mapping;
	struct file_lock_context *i_flctx;
	unsigned long i_ino;
	unsigned short i_mode;
	unsigned int i_rdev;
	unsigned int i_nlink;
	long long i_size;
	unsigned int i_generation;
	struct hlist_head i_dentry;
};

struct address_space {
	struct inode *host;
};

typedef struct {
	unsigned long f;
} memdesc_flags_t;

struct folio {
	memdesc_flags_t flags;
	struct address_space *mapping;
	unsigned long index;
	unsigned int _nr_pages;
	unsigned long memcg_data;
};

/* v6.18, 53fbef56e07d ("mm: introduce memdesc_flags_t") */
struct folio___before_6_18 {
	unsigned long flags;
};

/* v6.15, 4996fc547f5b ("mm: let _folio_nr_pages overlay memcg_data in first tail page") renamed it. */
struct folio___before_6_15 {
	unsigned int _folio_nr_pages;
};

/* Values differ with the configuration: ask BTF. */
enum pageflags {
	PG_locked = 0,
	PG_writeback = 1,
	PG_head = 6,
};

enum {
	MM_SWAPENTS = 2, /* v4.5, eca56ff906bd ("mm, shmem: add internal shmem resident memory accounting"), and since */
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

static __always_inline __u32 task_state(struct task_struct *t)
{
	struct task_struct___before_5_14 *old = (void *)t;

	if (bpf_core_field_exists(t->__state))
		return t->__state;
	return old->state;
}

/* Bytes that the task has made dirty or sent to a disk itself (task_io_account_write: folio_account_dirtied, and direct I/O). ~0: this
 * kernel does not count them (the struct is there without CONFIG_TASK_IO_ACCOUNTING, and is empty).
 */
static __always_inline __u64 bytes_written(struct task_struct *t)
{
	return bpf_core_field_exists(t->ioac.write_bytes) ? BPF_CORE_READ(t, ioac.write_bytes) : ~0ULL;
}

static __always_inline bool is_on_cpu(struct task_struct *t)
{
	return t->on_cpu;
}

/* Whether a task that leaves the CPU still wants it. A preempted task does,
 * even if it was about to sleep.
 */
static __always_inline bool wants_cpu(struct task_struct *t, bool preempted)
{
	return preempted || task_state(t) == TASK_RUNNING;
}

/* A cgroup's id over all hierarchies: each v1 hierarchy counts its own kernfs ids from 1,
 * so the hierarchy's number (0: unified) goes into the top byte. 0: no cgroup.
 */
static __always_inline __u64 cgroup_key(struct cgroup *cg)
{
	__u64 hierarchy;

	if (!cg)
		return 0;
	hierarchy = (__u32)BPF_CORE_READ(cg, root, hierarchy_id);
	return hierarchy << 56 | (BPF_CORE_READ(cg, kn, id) & 0xffffffffffffffULL);
}

static __always_inline __u64 parent_key(struct cgroup *cg)
{
	return cgroup_key(BPF_CORE_READ(cg, self.parent, cgroup));
}

/* The cgroup of a task in the hierarchy of one controller, or NULL. */
#define task_css(t, id)                                                                            \
	({                                                                                         \
		struct cgroup_subsys_state *__css = 0;                                             \
		if (bpf_core_enum_value_exists(enum cgroup_subsys_id, id)) {                       \
			struct css_set *__set = BPF_CORE_READ(t, cgroups);                         \
			__u32 __at = bpf_core_enum_value(enum cgroup_subsys_id, id);               \
			bpf_core_read(&__css, sizeof(__css), &__set->subsys[__at & 15]);           \
		}                                                                                  \
		__css;                                                                             \
	})

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct___grouped {
	struct task_group *sched_task_group;
};

#pragma clang attribute pop

/* The group that a task of the root cgroup is scheduled in: that of its session (kernel/sched/autogroup.c, v2.6.38,
 * 5091faa449ee). 0: none.
 */
static __always_inline __u64 autogroup_of(struct task_struct *t, __u64 *shares)
{
	struct task_struct___grouped *grouped = (void *)t;
	struct task_group *tg = 0;

	*shares = 0;
	if (!bpf_core_field_exists(grouped->sched_task_group) || !bpf_core_field_exists(tg->autogroup))
		return 0;
	tg = BPF_CORE_READ(grouped, sched_task_group);
	*shares = BPF_CORE_READ(tg, shares);
	return BPF_CORE_READ(tg, autogroup, id);
}

/* The session of a task's process (setsid(2)), by the id of its leader. 0: none, or the leader has ended and its parent has waited for it. */
static __always_inline __u32 session_of(struct task_struct *t)
{
	struct pid *session = BPF_CORE_READ(t, signal, pids[SESSION]);

	return session ? BPF_CORE_READ(session, numbers[0].nr) : 0;
}

static __always_inline __u64 css_cgroup_key(struct cgroup_subsys_state *css)
{
	return cgroup_key(css ? BPF_CORE_READ(css, cgroup) : 0);
}

/* Values are fixed (include/uapi/linux/bpf.h); which of them a kernel has shows which helpers it has. */
enum bpf_func_id___known {
	BPF_FUNC_get_current_task_btf___known = 158, /* v5.11, 3ca1032ab7ab */
	BPF_FUNC_sock_from_file___known = 162,	     /* v5.11, 4f19cab76136 */
	BPF_FUNC_task_pt_regs___known = 175,	     /* v5.15, dd6e10fbd9fb */
	BPF_FUNC_get_func_arg___known = 183,	     /* v5.17, f92c1e183604 */
};

#define has_helper(name) bpf_core_enum_value_exists(enum bpf_func_id___known, BPF_FUNC_##name##___known)

/* The current task. Before v5.11 the verifier knows it as a number: fields are read with of_current(). */
static __always_inline struct task_struct *current_task(void)
{
	if (has_helper(get_current_task_btf))
		return bpf_get_current_task_btf();
	return (void *)bpf_get_current_task();
}

/* A field of the current task: a load where the verifier knows the task, else a read with checks. The branch that is not taken is removed
 * when the program is loaded.
 */
#define of_current(t, field)                                                                              \
	(has_helper(get_current_task_btf) ? (t)->field : BPF_CORE_READ((t), field))

/* Where the last entry into the kernel left the registers of a task: at the top of its stack. THREAD_SIZE of x86-64 has been 16 kB since
 * v3.15, 6538b8ea886e, except with KASAN, which no production kernel has.
 */
static __always_inline struct pt_regs *registers_of(struct task_struct *t)
{
	if (has_helper(task_pt_regs))
		return (void *)bpf_task_pt_regs(t);
	return (void *)((unsigned long)t->stack + (4 << 12) - bpf_core_type_size(struct pt_regs));
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* ---- sockets (connect) ---- */

/* include/net/tcp_states.h, include/uapi/linux/in.h, socket.h: these numbers never change. */
enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_SYN_RECV = 3,
	TCP_CLOSE = 7,
	TCP_LISTEN = 10,
	IPPROTO_TCP = 6,
	AF_INET = 2,
	AF_INET6 = 10,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

typedef struct {
	int counter;
} atomic_t;

struct spinlock {}; /* its first word is not 0: held (include/asm-generic/qspinlock_types.h) */

struct wait_queue_head {
	struct spinlock lock;
	struct list_head head;
};

struct wait_queue_entry {
	void *private;
	struct list_head entry;
};

struct socket_wq {
	struct wait_queue_head wait;
};

/* fs/select.c, include/linux/poll.h: what a wait queue entry of poll() and select() points to. */
struct poll_table_entry {
	struct file *filp;
	struct wait_queue_entry wait;
};

struct poll_wqueues {
	struct task_struct *polling_task;
	int inline_index;
	struct poll_table_entry inline_entries[1];
};

/* fs/eventpoll.c */
struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct rb_root_cached {
	struct rb_root rb_root;
};

struct eventpoll {
	struct rb_root_cached rbr;
	struct wait_queue_head wq;
	struct wait_queue_head poll_wait;
};

struct epoll_filefd {
	struct file *file;
};

struct epitem {
	struct rb_node rbn;
	struct epoll_filefd ffd;
	struct eventpoll *ep;
	struct hlist_node fllink;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	__u8 bytes[16]; /* never relocated: read through the address of the whole */
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	__u16 skc_family;
	volatile __u8 skc_state;
	__u8 skc_ipv6only : 1;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sk_buff_head {
	__u32 qlen;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	atomic_t sk_drops;
	struct socket_wq *sk_wq;
	__u16 sk_type; /* as sk_protocol */
	int sk_err;
	__u16 sk_protocol; /* a bit field before v5.6, bf9765145b85: not claimed */
	__u8 sk_shutdown;
	struct socket *sk_socket; /* a connection that was not accepted yet has none */
	__u32 sk_ack_backlog; /* u16 on older kernels: CO-RE adjusts the width */
	__u32 sk_max_ack_backlog;
};

struct inet_connection_sock {
	__u8 icsk_retransmits;
	struct {
		__u32 lrcvtime;
	} icsk_ack;
};

struct udp_sock {
	struct sk_buff_head reader_queue; /* a reader takes all packets that have come at once (net/ipv4/udp.c, __skb_recv_udp; v4.13) */
};

struct tcp_sock {
	__u32 data_segs_in;
	__u32 data_segs_out; /* v4.6 */
	__u64 bytes_acked; /* v4.1, 0df48c26d841 */
	__u64 bytes_sent;  /* v4.19, ba113c3aa79a */
	__u64 bytes_received;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 lsndtime;
	__u32 srtt_us;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 snd_sml; /* the end of the last small packet sent */
	__u32 write_seq; /* the end of the written data */
	__u32 mss_cache;
	__u8 nonagle : 4;
	__u32 total_retrans; /* SYNs, too; not reset by an answer, as icsk_retransmits is */
	__u64 first_tx_mstamp; /* us: send time of the data that were acknowledged last, or are on their way (net/ipv4/tcp_rate.c; v4.9) */
};

struct socket {
	struct sock *sk;
};

struct file;
struct sk_buff;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* ---- open files and paths (calls) ---- */

/* include/uapi/linux/magic.h, fs.h, fcntl.h: these numbers never change. */
enum {
	PIPEFS_MAGIC = 0x50495045,
	SOCKFS_MAGIC = 0x534f434b,
	ANON_INODE_FS_MAGIC = 0x09041934,
	BDEVFS_MAGIC = 0x62646576,
	PROC_SUPER_MAGIC = 0x9fa0,
	SYSFS_MAGIC = 0x62656572,
	CGROUP_SUPER_MAGIC = 0x27e0eb,
	CGROUP2_SUPER_MAGIC = 0x63677270,
	SB_KERNMOUNT = 1 << 22, /* a mount that the kernel keeps for itself: pipes, sockets, memfd */
	AF_UNIX = 1,
	TS_COMPAT = 2,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* arch/x86: the arguments of a system call, in this order; its number; where it was made. */
struct pt_regs {
	unsigned long di, si, dx, r10, r8, r9, orig_ax, ip, bp, sp, cs;
};

struct qstr {
	__u64 hash_len; /* the hash is salted with the parent's address */
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	union {
		struct hlist_node d_alias;
	} d_u;
	struct hlist_bl_node d_hash;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct fs_struct {
	struct path root, pwd;
};

struct file {
	struct hlist_head *f_ep;
	unsigned int f_mode;
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct sockaddr_un {
	unsigned short sun_family;
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[];
};

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};

#pragma clang attribute pop

/* v6.2, a35b9af4ec2c ("bpf: Add a kfunc for generic type cast"): a load instead of a call. */
extern void *bpf_rdonly_cast(const void *at, __u32 btf_id) __ksym __weak;

#define as(type, at) ((type *)bpf_rdonly_cast((void *)(at), bpf_core_type_id_kernel(type)))

/* The same task, but the verifier does not check whether pointers in it are trusted: for each such pointer, on each path to it, the
 * verifier searches all types of the kernel by name (btf_nested_type_is_trusted, v6.3, 6fcd486b3a0a). The loaded value is the same.
 */
static __always_inline struct task_struct *plain(struct task_struct *t)
{
	return bpf_ksym_exists(bpf_rdonly_cast) ? as(struct task_struct, t) : t;
}

/* The process that traces the task (ptrace(2)), which is its parent meanwhile; 0: none. */
static __always_inline __u32 tracer_of(struct task_struct *t)
{
	return plain(t)->ptrace ? plain(t)->parent->tgid : 0;
}

/* The last reading of the clock of a task's run queue. */
static __always_inline __u64 clock_of(struct task_struct *t)
{
	return plain(t)->se.cfs_rq->rq->clock;
}

/* The file that the current task has open as `fd`; NULL: none. The table may change under us: only compare and read with checks. */
static __always_inline struct file *file_at(struct task_struct *t, __u32 fd)
{
	struct file *file = 0;
	unsigned long at;
	__u32 room;

	if (has_helper(get_current_task_btf)) {
		struct fdtable *table = plain(t)->files->fdt;

		at = (unsigned long)table->fd;
		room = table->max_fds;
	} else {
		struct fdtable *table = BPF_CORE_READ(t, files, fdt);

		at = (unsigned long)BPF_CORE_READ(table, fd);
		room = BPF_CORE_READ(table, max_fds);
	}
	if (fd >= room)
		return 0;
	at += fd * 8ULL;
	if (bpf_ksym_exists(bpf_rdonly_cast))
		return (void *)as(struct list_head, at)->next; /* as good as any struct that begins with a pointer */
	bpf_probe_read_kernel(&file, sizeof(file), (void *)at);
	return file;
}

/* The same for any task, by reads with checks. */
static __always_inline struct file *file_of_task(struct task_struct *t, __u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(t, files, fdt);
	struct file *file = 0;

	if (table && fd < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
	return file;
}

/* The socket of an open file that an iterator returns; NULL: the file is no socket. */
static __always_inline struct socket *socket_of(struct file *file)
{
	if (has_helper(sock_from_file))
		return bpf_sock_from_file(file);
	if (file->f_inode->i_sb->s_magic != SOCKFS_MAGIC)
		return 0;
	return file->private_data;
}

/* Distinguishes one open file from the next at the same address. */
struct file_mark {
	__u64 dentry;
	__u64 name; /* and length, and parent: qstr.hash_len */
	__u64 ino;
};

static __always_inline void file_mark(struct file_mark *mark, struct file *file)
{
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		struct file *f = as(struct file, file);
		struct dentry *dentry = f->f_path.dentry;

		mark->dentry = (__u64)dentry;
		mark->name = dentry->d_name.hash_len;
		mark->ino = f->f_inode->i_ino;
	} else {
		mark->dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
		mark->name = BPF_CORE_READ(file, f_path.dentry, d_name.hash_len);
		mark->ino = BPF_CORE_READ(file, f_inode, i_ino);
	}
}

static __always_inline struct mount *mount_of(struct vfsmount *mnt)
{
	return (void *)((unsigned long)mnt - bpf_core_field_offset(struct mount, mnt));
}

/* ---- counts of namespaces and mounts (churn) ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct user_namespace {
	struct ucounts *ucounts; /* of the user that made it, in the namespace above */
};

struct ucounts {
	struct user_namespace *ns;
	atomic_long_t ucount[8]; /* by enum ucount_type */
};

/* v5.14, 905ae01c4ae2 ("Add a reference to ucounts for each cred") */
struct cred___since_5_14 {
	struct ucounts *ucounts;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

struct mnt_namespace {
	unsigned int nr_mounts;
};

/* v6.8, 2eea9ce4310d ("mounts: keep list of mounts in an rbtree"): it is the tree since then. */
struct mnt_namespace___before_6_8 {
	unsigned int mounts;
};

#pragma clang attribute pop

/* User namespaces are nested in 32 levels at most (kernel/user_namespace.c); those of containers in one. */
#define MOST_USER_NAMESPACES 8

/* How many namespaces of this type (enum ucount_type, include/linux/user_namespace.h) the task's user has, with those in user namespaces
 * below: what /proc/sys/user/max_* limits. One counts until it is freed. 0: not known.
 */
static __always_inline struct ucounts *root_user(struct task_struct *t)
{
	struct cred___since_5_14 *cred = (void *)BPF_CORE_READ(t, real_cred);
	struct ucounts *user, *above;

	if (!bpf_core_field_exists(cred->ucounts))
		return 0;
	user = BPF_CORE_READ(cred, ucounts);
	for (int i = 0; i < MOST_USER_NAMESPACES; i++) {
		above = BPF_CORE_READ(user, ns, ucounts);
		if (!above)
			break;
		user = above;
	}
	return user;
}

static __always_inline __u64 namespaces_of(struct ucounts *user, __u32 type)
{
	__u64 count = 0;

	bpf_probe_read_kernel(&count, sizeof(count),
			      (void *)user + bpf_core_field_offset(struct ucounts, ucount) + type * sizeof(count));
	return count;
}

static __always_inline __u64 mounts_of(struct mnt_namespace *ns)
{
	struct mnt_namespace___before_6_8 *old = (void *)ns;

	return bpf_core_field_exists(ns->nr_mounts) ? BPF_CORE_READ(ns, nr_mounts) : BPF_CORE_READ(old, mounts);
}

/* ---- timelines (sched) ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* v6.18, e1fad12dcb66 ("sched/fair: Switch to task based throttle model") */
struct task_struct___throttled {
	bool throttled;
};

/* Before v6.18: the queue of a group that is throttled, or lies below one that is. */
struct cfs_rq___before_6_18 {
	int throttle_count;
};

#pragma clang attribute pop

/* ---- kernel locks (locks) ---- */

/* include/linux/lockdep.h and trace/events/lock.h, v5.19, 16edd9b511a1 ("locking: Add lock contention tracepoints"). */
enum {
	LCB_F_SPIN = 1,
	LCB_F_READ = 2,
	LCB_F_WRITE = 4,
	LCB_F_RT = 8,
	LCB_F_PERCPU = 16,
	LCB_F_MUTEX = 32,
};

/* Low bits of the owner words: kernel/locking/mutex.h, rwsem.c, rtmutex_common.h; and of task->blocker: hung_task.h. */
enum {
	MUTEX_FLAGS = 7,
	RWSEM_READER_OWNED = 1,
	RWSEM_OWNER_FLAGS = 3,
	RT_MUTEX_HAS_WAITERS = 1,
	BLOCKER_TYPE_MUTEX = 0,
	BLOCKER_TYPE_SEM = 1,
	BLOCKER_TYPE_RWSEM_READER = 2,
	BLOCKER_TYPE_RWSEM_WRITER = 3,
	BLOCKER_TYPE_MASK = 3,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mutex {
	atomic_long_t owner; /* absent with PREEMPT_RT: an rt_mutex is in its place */
};

struct rw_semaphore {
	atomic_long_t owner; /* absent with PREEMPT_RT: an rwbase_rt is in its place */
};

struct rt_mutex_base {
	struct task_struct *owner;
};

/* With PREEMPT_RT (include/linux/spinlock_types.h). */
struct spinlock___rt {
	struct rt_mutex_base lock;
};

/* PREEMPT_RT only */
struct rwbase_rt {
	struct rt_mutex_base rtmutex;
};

struct rcuwait {
	struct task_struct *task;
};

struct percpu_rw_semaphore {
	struct rcuwait writer;
};

/* v6.16, 194a9b9e843b ("hung_task: show the blocker task if the task is hung on semaphore") */
struct semaphore {
	unsigned long last_holder;
};

/* v6.15, 3cf67d61ff98 ("hung_task: show the blocker task if the task is hung on mutex") and after; an option. */
struct task_struct___with_blocker {
	unsigned long blocker;
};

/* Of this type since v6.17 (proxy execution); before, only with DEBUG_MUTEXES, and then it is a mutex_waiter. */
struct task_struct___blocked_on_mutex {
	struct mutex *blocked_on;
};

#pragma clang attribute pop

/* ---- work items (work) ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct work_struct {
	void (*func)(struct work_struct *work);
};

#pragma clang attribute pop

/* The function of the work item that a task runs; 0: the task is no worker, or an idle one. */
static __always_inline __u64 work_of(struct task_struct *t)
{
	struct task_struct___before_5_17 *old = (void *)t;
	struct kthread *thread;
	struct worker *worker;

	if (!(t->flags & PF_WQ_WORKER))
		return 0;
	thread = bpf_core_field_exists(t->worker_private) ? t->worker_private : (void *)old->set_child_tid;
	worker = BPF_CORE_READ(thread, data);
	return worker ? (__u64)BPF_CORE_READ(worker, current_func) : 0;
}

/* Raise a maximum that several CPUs raise. Without a compare-and-swap, which BPF has since v5.12 (5ffa25502b5a): older kernels refuse a
 * program that has one. A CPU that another one overtakes reads again, and raises the maximum again. A maximum is lost if a smaller one
 * overwrites it after that: two CPUs end their longest within the same few nanoseconds, and one stands still between its load and its
 * store. The reported maximum is then too small by the difference of these two; sums are exact.
 */
static __always_inline void worsen(__u64 *worst, __u64 ns)
{
	volatile __u64 *now = worst;
	int i;

	for (i = 0; i < 4 && ns > *now; i++)
		*now = ns;
}

/* ---- the tasks of a cgroup (blkio) ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The struct with all its fields: the stride of an array is not relocated. */
struct list_head___whole {
	struct list_head *next, *prev;
};

/* v4.2, 2d8f243a5e6e ("cgroup: implement cgroup->e_csets[]"): css_sets by the cgroup that is in effect for a
 * controller, its own or an ancestor's.
 */
struct cgroup___members {
	struct list_head___whole e_csets[16];
};

struct css_set___members {
	struct list_head tasks;
	struct list_head___whole e_cset_node[16];
};

struct task_struct___member {
	struct list_head cg_list;
};

#pragma clang attribute pop

/* ---- requests for quick wake-ups (latency) ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct plist_node {
	int prio;
};

/* include/linux/pm_qos.h */
struct pm_qos_request {
	struct plist_node node;
};

#pragma clang attribute pop

/* ---- IRQ latency ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct __call_single_node {
	unsigned int u_flags;
};

/* v6.4, 949fa3f11ced ("trace: Add trace points for csd") and its followers: no program of ours uses it on older kernels. */
struct __call_single_data {
	struct __call_single_node node;
};

struct timerqueue_node {
	__s64 expires;
};

struct hrtimer_cpu_base {
	unsigned int hres_active : 1;
};

struct hrtimer_clock_base {
	struct hrtimer_cpu_base *cpu_base;
};

struct hrtimer {
	struct timerqueue_node node;
	void *function;
	struct hrtimer_clock_base *base;
	__u8 is_soft;
};

struct hrtimer_sleeper {
	struct hrtimer timer;
	struct task_struct *task;
};

/* Of a software event such as cpu-clock. */
struct hw_perf_event {
	struct hrtimer hrtimer;
};

struct perf_event {
	struct hw_perf_event hw;
};

/* What the context of a perf_event program is: struct bpf_perf_event_data is how the verifier shows it. */
struct bpf_perf_event_data_kern {
	struct perf_event *event;
};

#pragma clang attribute pop

/* ---- received packets and full receive queues (napi) ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct napi_struct {
	struct net_device *dev;
};

/* One a CPU. Packets come to `input_pkt_queue`; a poll of `backlog` takes all of them over to `process_queue` (net/core/dev.c, process_backlog;
 * v2.6.35, 6e7676c1a76a). None of the three depends on the configuration (v5.10 to v6.18).
 */
struct softnet_data {
	struct sk_buff_head process_queue;
	struct sk_buff_head input_pkt_queue;
	struct napi_struct backlog;
};

struct sock___queue {
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	int sk_rcvbuf;
};

struct numa_drop_counters {
	atomic_t drops0;
	atomic_t drops1;
};

/* v6.18, c51613fa276f ("net: add sk->sk_drop_counters"): where set, drops are counted there. */
struct sock___drop_counters {
	struct numa_drop_counters *sk_drop_counters;
};

struct Qdisc_ops {
	char id[16];
};

struct Qdisc {
	const struct Qdisc_ops *ops;
	struct {
		__u32 qlen;
	} q;
};

struct net_device {
	char name[16];
	struct Qdisc *qdisc;
};

struct dst_entry {
	struct net_device *dev;
};

struct sock___send {
	struct {
		atomic_t refs;
	} sk_wmem_alloc; /* v4.13, 14afee4b6092: a refcount_t */
	struct dst_entry *sk_dst_cache;
};

struct tcp_sock___queue {
	__u32 rcv_wnd;
	__u32 chrono_start;   /* v4.10, 05b055e89121 ("tcp: instrument tcp sender limits chronographs") */
	__u32 chrono_stat[3];
	__u8 chrono_type : 2; /* a plain field in later stable kernels: CO-RE adjusts */
};

#pragma clang attribute pop

/* include/net/tcp.h, linux/net.h: these numbers have never changed. */
enum {
	TCP_CHRONO_RWND_LIMITED = 2,
	IPPROTO_UDP = 17,
};

/* Memory of the packets in a socket's receive queue, and its limit. */
static __always_inline __u32 queue_used(const struct sock *sk)
{
	struct sock___queue *queue = (void *)sk;

	return BPF_CORE_READ(queue, sk_backlog.rmem_alloc.counter);
}

/* The queue of a CPU itself: netif_napi_add() gives all others a device (net/core/dev.c, net_dev_init; v5.10 to v6.18). */
static __always_inline bool is_backlog(const struct napi_struct *napi)
{
	return !napi->dev;
}

/* Packets that wait there. */
static __always_inline __u32 packets_queued(const struct napi_struct *backlog)
{
	struct softnet_data *cpu = (void *)backlog - bpf_core_field_offset(struct softnet_data, backlog);

	return BPF_CORE_READ(cpu, process_queue.qlen) + BPF_CORE_READ(cpu, input_pkt_queue.qlen);
}

static __always_inline __u32 queue_room(const struct sock *sk)
{
	struct sock___queue *queue = (void *)sk;

	return BPF_CORE_READ(queue, sk_rcvbuf);
}

/* Packets that came for a socket and were dropped. 32 bits. */
static __always_inline __u32 packets_dropped(const struct sock *sk)
{
	struct sock___drop_counters *with = (void *)sk;
	struct numa_drop_counters *split = 0;

	if (bpf_core_field_exists(with->sk_drop_counters))
		split = BPF_CORE_READ(with, sk_drop_counters);
	if (split)
		return BPF_CORE_READ(split, drops0.counter) + BPF_CORE_READ(split, drops1.counter);
	return BPF_CORE_READ(sk, sk_drops.counter);
}

/* The queue of the network device through which a socket sends, if packets are in it and some of them may be the socket's: the socket holds
 * one reference itself, and one for each byte that no device has taken yet (net/core/sock.c, sk_free).
 */
static __always_inline struct net_device *device_that_queues(const struct sock *sk)
{
	struct sock___send *send = (void *)sk;
	struct net_device *dev;

	if (BPF_CORE_READ(send, sk_wmem_alloc.refs.counter) <= 1)
		return 0;
	dev = BPF_CORE_READ(send, sk_dst_cache, dev);
	return dev && BPF_CORE_READ(dev, qdisc, q.qlen) ? dev : 0;
}

/* How many bytes its peer may send. */
static __always_inline __u32 window_open(const struct sock *sk)
{
	struct tcp_sock___queue *tcp = (void *)sk;

	return BPF_CORE_READ(tcp, rcv_wnd);
}

/* Ticks in which a TCP socket had data to send and its peer's window had no room for it (tcpi_rwnd_limited). */
static __always_inline __u32 held_ticks(const struct sock *sk, __u32 now)
{
	struct tcp_sock___queue *tcp = (void *)sk;
	__u32 held = BPF_CORE_READ(tcp, chrono_stat[TCP_CHRONO_RWND_LIMITED - 1]);

	if (BPF_CORE_READ_BITFIELD_PROBED(tcp, chrono_type) == TCP_CHRONO_RWND_LIMITED)
		held += now - BPF_CORE_READ(tcp, chrono_start);
	return held;
}

/* ---- locks of user space (user_lock) ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct file_lock_context {
	struct list_head flc_flock;
	struct list_head flc_posix;
};

struct file_lock_core {
	struct list_head flc_list;
	struct list_head flc_blocked_requests;
	struct list_head flc_blocked_member;
	void *flc_owner;
	unsigned int flc_flags;
	unsigned char flc_type;
	int flc_pid;
	struct file *flc_file;
};

struct file_lock {
	struct file_lock_core c;
	long long fl_start;
	long long fl_end;
};

/* v6.9, a69ce85ec9af ("filelock: split common fields into struct file_lock_core") */
struct file_lock___before_6_9 {
	struct list_head fl_list;
	struct list_head fl_blocked_requests;
	struct list_head fl_blocked_member;
	void *fl_owner;
	unsigned int fl_flags;
	unsigned char fl_type;
	unsigned int fl_pid;
	struct file *fl_file;
	long long fl_start;
	long long fl_end;
};

#pragma clang attribute pop

/* ---- time ---- */

/* Nanoseconds between two readings of a clock; 0 if the later reading is the smaller. bpf_ktime_get_ns() does not promise growing readings
 * on two CPUs, nor on one CPU across an update of the timekeeper (kernel/time/timekeeping.c, ktime_get_mono_fast_ns()), and the clocks of
 * two run queues differ.
 */
static __always_inline __u64 elapsed(__u64 from, __u64 to)
{
	return to > from ? to - from : 0;
}

/* ---- samples (oncpu, spin) ---- */

enum {
	E2BIG = 7, /* include/uapi/asm-generic/errno-base.h */
	EAGAIN = 11,
	EEXIST = 17,
};

/* arch/x86/include/uapi/asm/ptrace.h: the whole struct, in an order that never changes. The verifier turns a load from the context into one
 * from the registers of the interrupted code.
 */
struct bpf_perf_event_data {
	struct {
		unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
		unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
	} regs;
	__u64 sample_period;
	__u64 addr;
};

/* ---- where user code is (oncpu: user_places.bpf.h, user_stack.bpf.h) ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct vm_area_struct {
	unsigned long vm_start, vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_pgoff;
	struct file *vm_file;
	unsigned long vm_flags; /* v6.3, bc292ab00f6c ("mm: introduce vma->vm_flags wrapper functions"): in a union with the field that is written */
};

#pragma clang attribute pop

/* Nodes are aligned to 256 bytes; kind and flags are in the low bits of the pointer to a node (include/linux/maple_tree.h). */
#define MAPLE_NODE_MASK 255
#define MAPLE_NODE_WORDS 32
#define MAPLE_SLOTS 16
#define MAPLE_ARANGE_SLOTS 10
enum {
	MAPLE_LEAF_64 = 1,
	MAPLE_RANGE_64 = 2,
	MAPLE_ARANGE_64 = 3,
};
