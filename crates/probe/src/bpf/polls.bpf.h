/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which socket a task waits for in poll(), select() or epoll_wait(): the one socket with another end that it polls.
 *
 * poll() and select() keep their table on the waiter's kernel stack (fs/select.c, struct poll_wqueues). The table names its task, and its
 * entries point back to it: memory that only looks like a table is rejected. epoll's set is a tree (fs/eventpoll.c). The table is read only
 * for waits that nothing has ended: data that come show where they came from. Before Linux 6.3 they do not, and the table is read for a
 * wait that a softirq has ended, too.
 */
#pragma once

#include "kernel.bpf.h"

/* Words of the stack, from its pointer at the switch: the scheduler's frames, and that of the system call. */
#define STACK_WORDS 256
/* Entries that are on the stack (N_INLINE_POLL_ENTRIES); those of more descriptors are on pages elsewhere. */
#define MAX_POLLED 9

/* Addresses, as numbers: a value that is kept in a map is no pointer. */
struct polled {
	__u64 sk; /* 0: none */
	__u64 local; /* a unix socket */
	__u32 others; /* network sockets besides `sk`, or sockets that have no other end */
	__u32 locals; /* unix sockets besides `local` */
};

struct poll_stack {
	struct file *set; /* the file that it waits for in epoll_wait(); 0: it waits in poll() or select() */
	__u64 task; /* the task: a number, not a pointer that the verifier follows */
	struct polled found;
	__u64 words[STACK_WORDS];
};

/* One for each switch, and one for the closing walk, which a switch may interrupt. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct poll_stack);
} poll_stacks SEC(".maps");

static __always_inline bool is_poll(__u64 call)
{
	return call == 7 || call == 23 || call == 270 || call == 271; /* x86-64: poll, select, pselect6, ppoll */
}

static __always_inline bool is_epoll(__u64 call)
{
	return call == 232 || call == 281 || call == 441; /* epoll_wait, epoll_pwait, epoll_pwait2 */
}

/* One of the files that the task polls. Global, as below: for twelve in a row the verifier would follow all values that each may have. */
__noinline int note_polled_file(__u64 at, __u32 which)
{
	struct file *file = (void *)at;
	struct socket *socket;
	struct poll_stack *s;
	struct polled *p;
	struct sock *sk;
	__u32 family;

	s = bpf_map_lookup_elem(&poll_stacks, &which);
	if (!s || !file || (BPF_CORE_READ(file, f_inode, i_mode) & 0170000) != 0140000)
		return 0;
	p = &s->found;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family == AF_UNIX && p->local && (__u64)sk != p->local)
		p->locals++;
	else if (family == AF_UNIX)
		p->local = (__u64)sk;
	if ((family != AF_INET && family != AF_INET6) || (__u64)sk == p->sk)
		return 0;
	if (p->sk || !BPF_CORE_READ(sk, __sk_common.skc_dport))
		p->others++;
	else
		p->sk = (__u64)sk;
	return 0;
}

/* Where the table of a task that sleeps in poll() is; 0: not found. Global: the verifier checks it once, and not on each path to it, which
 * took a million instructions on 6.1.
 */
__noinline __u64 poll_table_of(__u32 which)
{
	const __u32 whose = bpf_core_field_offset(struct poll_wqueues, polling_task);
	const __u32 back = bpf_core_field_offset(struct poll_wqueues, inline_entries) +
			   bpf_core_field_offset(struct poll_table_entry, wait) +
			   bpf_core_field_offset(struct wait_queue_entry, private);
	const __u32 apart = (back - whose) / 8;
	struct poll_stack *s = bpf_map_lookup_elem(&poll_stacks, &which);
	struct task_struct *t;
	__u64 sp, size;

	if (!s)
		return 0;
	t = (void *)s->task;
	sp = BPF_CORE_READ(t, thread.sp);
	size = (__u64)BPF_CORE_READ(t, stack) + (4 << 12) - sp; /* see registers_of() */
	if (size > sizeof(s->words))
		size = sizeof(s->words);
	if (!sp || bpf_probe_read_kernel(s->words, size, (void *)sp))
		return 0;
	for (__u32 at = 0; at < STACK_WORDS; at++) {
		__u64 table = sp + at * 8 - whose;

		if ((at + apart) * 8 >= size)
			return 0;
		if (s->words[at] == s->task && s->words[(at + apart) & (STACK_WORDS - 1)] == table)
			return table;
	}
	return 0;
}

static __always_inline void note_table(struct polled *p, __u32 which)
{
	struct poll_wqueues *table;
	__u64 at, entry;
	__s32 count;

	at = poll_table_of(which);
	if (!at)
		return;
	table = (void *)at;
	count = BPF_CORE_READ(table, inline_index);
	if (count >= MAX_POLLED) /* poll_get_entry() uses the entries on the stack first */
		p->others++;
	entry = at + bpf_core_field_offset(struct poll_wqueues, inline_entries);
	for (__s32 n = 0; n < MAX_POLLED && n < count; n++) {
		note_polled_file((__u64)BPF_CORE_READ((struct poll_table_entry *)entry, filp), which);
		entry += bpf_core_type_size(struct poll_table_entry);
	}
}

static __always_inline struct rb_node *note_item(struct rb_node *node, __u32 which)
{
	__u64 at = (__u64)node - bpf_core_field_offset(struct epitem, rbn);

	if (node)
		note_polled_file((__u64)BPF_CORE_READ((struct epitem *)at, ffd.file), which);
	return node;
}

/* Sets of three at most: their tree has no third level. */
static __always_inline void note_set(struct polled *p, struct file *file, __u32 which)
{
	struct eventpoll *set = BPF_CORE_READ(file, private_data);
	struct rb_node *root = note_item(BPF_CORE_READ(set, rbr.rb_root.rb_node), which), *left, *right;

	if (!root)
		return;
	left = note_item(BPF_CORE_READ(root, rb_left), which);
	right = note_item(BPF_CORE_READ(root, rb_right), which);
	if (left && (BPF_CORE_READ(left, rb_left) || BPF_CORE_READ(left, rb_right)))
		p->others++;
	if (right && (BPF_CORE_READ(right, rb_left) || BPF_CORE_READ(right, rb_right)))
		p->others++;
}

/* The one network socket that the task of this CPU's `poll_stacks` polls, or where there is none the one unix socket; 0: none, or several.
 * Global, see poll_table_of().
 */
__noinline __u64 polled_socket(__u32 which)
{
	struct poll_stack *s = bpf_map_lookup_elem(&poll_stacks, &which);
	struct polled *p;

	if (!s)
		return 0;
	p = &s->found;
	__builtin_memset(p, 0, sizeof(*p));
	if (s->set)
		note_set(p, s->set, which);
	else
		note_table(p, which);
	if (p->others)
		return 0;
	return p->sk || p->locals ? p->sk : p->local;
}
