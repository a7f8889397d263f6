/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Whether a service polls a client's connection in epoll_wait() at all while it waits.
 *
 * A program may have several epolls: a database's backend reads its client through one, and waits for a lock of its own through another,
 * which wakes it when it has the lock. While it waits there, it does not wait for its client's requests. A file knows the epolls that watch
 * it (file->f_ep, v5.11, 319c15174757), and the closing walk has noted the epolls at which a task waits.
 */
#pragma once

#include "kernel.bpf.h"

#define MOST_EPOLLS 16384
/* Epolls of one file that are read. */
#define MOST_WATCHES 8

/* struct eventpoll, by address; compared, and never reported. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_EPOLLS);
	__type(key, __u64);
	__type(value, __u32);
} waited_epolls SEC(".maps");

/* Further epolls at which a task waits. */
__u64 epolls_left_out;

/* `t` sleeps in epoll_wait() for the file `fd`. */
static __always_inline void note_epoll(struct task_struct *t, __u32 fd)
{
	struct file *file = file_of_task(t, fd);
	__u64 epoll = file ? (__u64)BPF_CORE_READ(file, private_data) : 0;
	__u32 one = 1;

	if (epoll && bpf_map_update_elem(&waited_epolls, &epoll, &one, BPF_ANY))
		epolls_left_out++;
}

/* Neither poll() nor another epoll watches this epoll (fs/eventpoll.c, ep_eventpoll_poll), and no task waits at it now: since the window
 * ended a program may have made a new one for its next wait.
 */
static __always_inline bool is_alone(struct eventpoll *epoll)
{
	const __u64 head = (__u64)epoll + bpf_core_field_offset(struct wait_queue_head, head);

	if (!bpf_core_field_exists(epoll->poll_wait) || !bpf_core_field_exists(epoll->wq))
		return false;
	return (__u64)BPF_CORE_READ(epoll, poll_wait.head.next) == head + bpf_core_field_offset(epoll->poll_wait) &&
	       (__u64)BPF_CORE_READ(epoll, wq.head.next) == head + bpf_core_field_offset(epoll->wq);
}

/* A service's end of a connection. Waited: a task waited, as the window ended, at an epoll that watches it. Parked: epolls watch it, and no
 * task waited at any of them. Unknown: no epoll watches it, or it is not known whether a task waits there.
 */
enum watch { WATCH_UNKNOWN, WATCH_WAITED, WATCH_PARKED };

/* Global: the verifier checks it once. */
__noinline int watch_of(__u64 at)
{
	struct file *file = (void *)at;
	struct hlist_head *watches;
	struct hlist_node *node;
	struct epitem *item = 0;
	__u64 epoll;

	if (!bpf_core_field_exists(file->f_ep) || !bpf_core_field_exists(item->fllink) || !bpf_core_field_exists(item->ep))
		return WATCH_UNKNOWN;
	watches = BPF_CORE_READ(file, f_ep);
	node = watches ? BPF_CORE_READ(watches, first) : 0;
	if (!node)
		return WATCH_UNKNOWN;
	for (int i = 0; i < MOST_WATCHES && node; i++) {
		item = (void *)node - bpf_core_field_offset(struct epitem, fllink);
		epoll = (__u64)BPF_CORE_READ(item, ep);
		if (epoll && bpf_map_lookup_elem(&waited_epolls, &epoll))
			return WATCH_WAITED;
		if (!epoll || epolls_left_out || !is_alone((void *)epoll))
			return WATCH_UNKNOWN;
		node = BPF_CORE_READ(node, next);
	}
	return node ? WATCH_UNKNOWN : WATCH_PARKED;
}
