// SPDX-License-Identifier: GPL-2.0
/* Which calls failed for want of something: room on a file system, a descriptor, a port, a task? Which processes do nothing but fail?
 *
 * Each system call of the host passes here at its end, and nearly all return at once. The high cost is that the kernel takes its slow way
 * out of each call while this tracepoint is attached (kernel/entry/common.c, SYSCALL_WORK_SYSCALL_TRACEPOINT). So calls are counted, and
 * user space detaches where they are many.
 *
 * A call's arguments are still in the registers when it ends.
 */
#include "kernel.bpf.h"

#define MAX_FAILED 1024
/* Calls that fail one after the other are counted in steps of so many: a search for a file in some folders is no such streak. */
#define STREAK 64
/* A task that does something else for longer between two such calls does more than fail; nor is a call that takes so long a cheap one. */
#define STREAK_GAP_NS 50000
/* A process that was born in the window and lived for a shorter time counts as its parent's. */
#define SHORT_LIFE_NS 1000000000ULL

struct failed_key {
	__u32 tgid;
	__u32 call;
	__u32 error;
	__u32 dev; /* of the file system, for a call on an open file; 0: not known */
};

struct failed_calls {
	__u64 count;
	__u64 slept_ns; /* between two such calls */
	__u32 pid;
	__u32 family; /* of the address to connect to; 0: none */
	__u8 address[16];
	__u32 port;
	__u32 mode; /* of the open file */
	char comm[16];
	char type[16];   /* of the file system */
	char device[32]; /* as the file system names it: "vda1", "tmpfs" */
	char file[96];   /* the last part of an open file's path, or the path that was given */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FAILED);
	__type(key, struct failed_key);
	__type(value, struct failed_calls);
} failures SEC(".maps");

/* Calls that ended, failed or not. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} ended_calls SEC(".maps");

/* Calls of this CPU that failed in the same way, with no other call's end between them. */
struct streak {
	__u64 ended; /* the number of the CPU's call that was the last of them */
	__u64 since_ns;
	__u64 last_ns;
	__u32 pid;
	__u32 call;
	__u32 error;
	__u32 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct streak);
} streaks SEC(".maps");

struct vain_key {
	__u32 tgid;
	__u32 call;
	__u32 error;
	__u32 of_children; /* of the process's children that live for a short time */
};

struct vain_calls {
	__u64 count;
	__u64 ns;
	__u32 pid;
	__u32 unused;
	char comm[16];
};

/* A map of its own: a thousand commands that fail in this way leave the other failures their room. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FAILED);
	__type(key, struct vain_key);
	__type(value, struct vain_calls);
} vain SEC(".maps");

/* Our own process reads many small files at once: its calls do not make a host with many calls. */
__u32 own_tgid;
/* When the window begins. */
__u64 began;

#include "retries.bpf.h"
#include "churn_calls.bpf.h"

/* Failures for which there was no room. */
__u64 lost;

/* The first or second argument of a call. */
enum { NOTHING, OPEN_FILE, PATH, PATH_IN_FOLDER, ADDRESS };

/* x86-64 (arch/x86/entry/syscalls/syscall_64.tbl): calls that may want room, a descriptor, a port or a task. */
static __always_inline __u32 argument_of(__u64 call)
{
	switch (call) {
	case 1: case 18: case 20: case 40: case 74: case 75: case 77: case 285: case 296: case 328: /* write ... fallocate */
		return OPEN_FILE;
	case 2: case 76: case 83: case 85: case 133: /* open, truncate, mkdir, creat, mknod */
		return PATH;
	case 82: case 86: case 88: case 254: case 257: case 258: case 259: case 437: /* rename ... inotify_add_watch, openat ... openat2 */
		return PATH_IN_FOLDER;
	case 42: /* connect */
		return ADDRESS;
	}
	return NOTHING;
}

/* fork, vfork, clone, clone3 return EAGAIN where a limit on tasks is met; other calls return it when there is nothing to do. */
static __always_inline bool makes_task(__u64 call)
{
	return call == 56 || call == 57 || call == 58 || call == 435;
}

/* include/uapi/asm-generic/errno.h */
static __always_inline bool is_want(__u64 call, __u32 error)
{
	switch (error) {
	case 23: case 24: case 28: case 122: /* ENFILE, EMFILE, ENOSPC, EDQUOT */
		return true;
	case 99: /* EADDRNOTAVAIL */
		return call == 42;
	case EAGAIN:
		return makes_task(call) || call == 42;
	case 111: /* ECONNREFUSED */
		return call == 42;
	}
	return false;
}

/* TCP reports its own refusals (away.bpf.h). A unix socket returns EAGAIN where the listen queue is full (net/unix/af_unix.c,
 * unix_stream_connect), and is refused where the process that made its file is gone.
 */
static __always_inline bool is_its_want(__u64 call, __u32 error, void *address)
{
	__u16 family = 0;

	if (call != 42)
		return true;
	bpf_probe_read_user(&family, sizeof(family), address);
	return error == 99 ? family == AF_INET || family == AF_INET6 : family == AF_UNIX;
}

static __always_inline void note_file(struct failed_calls *f, struct file *file)
{
	struct super_block *sb = BPF_CORE_READ(file, f_inode, i_sb);
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);

	f->mode = BPF_CORE_READ(file, f_inode, i_mode);
	bpf_probe_read_kernel_str(f->type, sizeof(f->type), BPF_CORE_READ(sb, s_type, name));
	bpf_probe_read_kernel_str(f->device, sizeof(f->device), sb->s_id);
	bpf_probe_read_kernel_str(f->file, sizeof(f->file), BPF_CORE_READ(dentry, d_name.name));
}

/* For AF_UNIX a path, or an abstract name, which begins with a zero byte. For AF_INET and AF_INET6: family, port, address
 * (include/uapi/linux/un.h, in.h, in6.h).
 */
static __always_inline void note_address(struct failed_calls *f, void *at, __u32 len)
{
	__u16 name[4] = {};

	if (!bpf_probe_read_user(name, sizeof(name[0]), at) && name[0] == AF_UNIX) {
		if (len <= sizeof(name[0]))
			return;
		len -= sizeof(name[0]);
		if (len > sizeof(f->file) - 1)
			len = sizeof(f->file) - 1;
		bpf_probe_read_user(f->file, len, at + sizeof(name[0]));
		if (!f->file[0])
			f->file[0] = '@';
		return;
	}
	if (bpf_probe_read_user(name, sizeof(name), at) || (name[0] != AF_INET && name[0] != AF_INET6))
		return;
	f->family = name[0];
	f->port = __builtin_bswap16(name[1]);
	if (name[0] == AF_INET6) {
		bpf_probe_read_user(f->address, 16, at + sizeof(name));
		return;
	}
	f->address[10] = f->address[11] = 0xff;
	__builtin_memcpy(f->address + 12, name + 2, 4);
}

static __always_inline struct failed_calls *row_of(const struct failed_key *key)
{
	static const struct failed_calls none;
	struct failed_calls *f = bpf_map_lookup_elem(&failures, key);

	if (f)
		return f;
	bpf_map_update_elem(&failures, key, &none, BPF_NOEXIST);
	f = bpf_map_lookup_elem(&failures, key);
	if (!f) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	f->pid = bpf_get_current_pid_tgid();
	bpf_get_current_comm(f->comm, sizeof(f->comm));
	return f;
}

static __noinline int note_failure(struct pt_regs *regs, __u32 error)
{
	struct task_struct *t = current_task();
	__u64 call = BPF_CORE_READ(regs, orig_ax), first = BPF_CORE_READ(regs, di);
	__u32 what = argument_of(call);
	struct failed_key key = { .call = call, .error = error };
	struct file *file = what == OPEN_FILE ? file_of_task(t, first) : 0;
	struct failed_calls *f;

	if (!is_its_want(call, error, (void *)BPF_CORE_READ(regs, si)))
		return 0;
	key.tgid = bpf_get_current_pid_tgid() >> 32;
	if (file)
		key.dev = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	f = row_of(&key);
	if (!f)
		return 0;
	if (!f->count) {
		if (file)
			note_file(f, file);
		else if (what == PATH)
			bpf_probe_read_user_str(f->file, sizeof(f->file), (void *)first);
		else if (what == PATH_IN_FOLDER)
			bpf_probe_read_user_str(f->file, sizeof(f->file), (void *)BPF_CORE_READ(regs, si));
		else if (what == ADDRESS)
			note_address(f, (void *)BPF_CORE_READ(regs, si), BPF_CORE_READ(regs, dx));
	}
	__sync_fetch_and_add(&f->count, 1);
	__sync_fetch_and_add(&f->slept_ns, slept_before(&key, began));
	return 0;
}

/* Errors that repeat as long as the program asks for the same: the object is not allowed, not there, not open, or the request makes no
 * sense. Not errors that say: nothing to do yet, taken, too much.
 */
static __always_inline bool is_in_vain(__u32 error)
{
	switch (error) {
	case 1: case 2: case 3: case 9: case 10: /* EPERM, ENOENT, ESRCH, EBADF, ECHILD */
	case 13: case 14: case 20: case 22: case 25: /* EACCES, EFAULT, ENOTDIR, EINVAL, ENOTTY */
	case 32: case 38: case 88: case 107: /* EPIPE, ENOSYS, ENOTSOCK, ENOTCONN */
		return true;
	}
	return false;
}

static __always_inline void note_vain(struct streak *s, __u64 now)
{
	static const struct vain_calls none;
	struct task_struct *t = current_task();
	struct vain_key key = { .call = s->call, .error = s->error };
	struct vain_calls *v;
	__u64 born = BPF_CORE_READ(t, group_leader, start_time);

	key.tgid = bpf_get_current_pid_tgid() >> 32;
	key.of_children = born > began && elapsed(born, now) < SHORT_LIFE_NS;
	if (key.of_children)
		key.tgid = BPF_CORE_READ(t, real_parent, tgid);
	v = bpf_map_lookup_elem(&vain, &key);
	if (!v) {
		bpf_map_update_elem(&vain, &key, &none, BPF_NOEXIST);
		v = bpf_map_lookup_elem(&vain, &key);
		if (!v) {
			__sync_fetch_and_add(&lost, 1);
			return;
		}
		v->pid = bpf_get_current_pid_tgid();
		bpf_get_current_comm(v->comm, sizeof(v->comm));
	}
	__sync_fetch_and_add(&v->count, STREAK);
	__sync_fetch_and_add(&v->ns, elapsed(s->since_ns, now));
}

/* `ended`: the number of the CPU's call. */
static __noinline int note_streak(__u64 call, __u32 error, __u64 ended)
{
	__u32 zero = 0, pid = bpf_get_current_pid_tgid();
	struct streak *s = bpf_map_lookup_elem(&streaks, &zero);
	__u64 now = bpf_ktime_get_ns();

	if (!s)
		return 0;
	if (s->pid != pid || s->call != call || s->error != error || s->ended + 1 != ended ||
	    elapsed(s->last_ns, now) > STREAK_GAP_NS)
		s->count = 0;
	s->ended = ended;
	s->last_ns = now;
	if (s->count++ == STREAK) {
		note_vain(s, now);
		s->count = 1;
	}
	if (s->count > 1)
		return 0;
	s->pid = pid;
	s->call = call;
	s->error = error;
	s->since_ns = now;
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(returned, struct pt_regs *regs, long ret)
{
	__u32 zero = 0;
	__u64 *count, call;

	if (bpf_get_current_pid_tgid() >> 32 == own_tgid)
		return 0;
	count = bpf_map_lookup_elem(&ended_calls, &zero);
	if (!count)
		return 0;
	++*count;
	if (ret > 0 || ret < -4095)
		return 0;
	/* A program of 32 bits has other numbers of calls (__USER_CS is 0x33). */
	if ((regs->cs & 0xff) != 0x33)
		return 0;
	call = regs->orig_ax;
	if (!ret && may_churn(call))
		return count_call(call, regs->di, regs->r10);
	if (!ret)
		return any_failed && only_sleeps(call, regs) ? note_nap() : 0;
	if (is_want(call, -ret))
		return note_failure(regs, -ret);
	return is_in_vain(-ret) ? note_streak(call, -ret, *count) : 0;
}
