/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which socket sent the data that ended a wait, when a softirq delivered them.
 *
 * A packet that stays on this host (loopback, veth) goes into its CPU's own backlog, and the softirq that takes it from there runs where
 * the sender enables softirqs again: within its system call (net/core/dev.c, netif_rx; kernel/softirq.c, __local_bh_enable_ip). The current
 * task is then the sender, otherwise it is the interrupted task: only the two sockets show which. If they are the two ends of one
 * connection, it is the sender.
 */
#pragma once

#include "kernel.bpf.h"

/* Addresses of a socket. IPv4 ones as IPv6 has them. */
struct sched_ends {
	__u32 family; /* 0: no socket */
	__u16 local_port;
	__u16 peer_port;
	__u8 local[16];
	__u8 peer[16];
	__u32 round_trip_us; /* as TCP measures it; 0: not TCP, or not measured */
	__u32 protocol;
	__u16 serves; /* it was made by accept(2); for UDP: it is not connected */
	__u16 unread; /* for TCP: unread data lie there */
	__u32 netns;
};

/* The socket of this CPU at which data came last. */
struct data_ready {
	__u64 sk;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct data_ready);
} ready_socket SEC(".maps");

/* Which end of a connection sends. */
enum { UNIX_NEITHER, UNIX_ANSWERS, UNIX_ASKS, UNIX_TAKES };

/* x86-64: sendto, sendmsg. */
enum { CALL_SENDTO = 44, CALL_SENDMSG = 46 };

static __always_inline void note_address(__u8 *to, __u32 family, const __be32 *v4, const struct in6_addr *v6)
{
	if (family == AF_INET6) {
		bpf_probe_read_kernel(to, 16, v6);
		return;
	}
	to[10] = to[11] = 0xff;
	bpf_probe_read_kernel(to + 12, 4, v4);
}

/* For a TCP connection. */
static __always_inline bool has_unread_data(const struct sock *sk)
{
	const struct tcp_sock *tcp = (void *)sk;

	return (__s32)(BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq)) > 0;
}

static __always_inline void note_ends(struct sched_ends *ends, const struct sock *sk)
{
	const struct sock_common *c = &sk->__sk_common;
	__u32 family = BPF_CORE_READ(c, skc_family);

	if (family != AF_INET && family != AF_INET6)
		return;
	ends->family = family;
	ends->local_port = BPF_CORE_READ(c, skc_num);
	ends->peer_port = __builtin_bswap16(BPF_CORE_READ(c, skc_dport));
	note_address(ends->local, family, &c->skc_rcv_saddr, &c->skc_v6_rcv_saddr);
	note_address(ends->peer, family, &c->skc_daddr, &c->skc_v6_daddr);
	ends->netns = BPF_CORE_READ(c, skc_net.net, ns.inum);
	ends->protocol = BPF_CORE_READ(sk, sk_protocol);
	if (ends->protocol == IPPROTO_TCP) {
		ends->round_trip_us = BPF_CORE_READ((const struct tcp_sock *)sk, srtt_us) >> 3; /* in eighths */
		/* An accepted socket is a copy of the one that listens (net/core/sock.c, sk_clone_lock), which has a backlog. */
		ends->serves = !!BPF_CORE_READ(sk, sk_max_ack_backlog);
		ends->unread = has_unread_data(sk);
	} else {
		ends->serves = !ends->peer_port;
	}
}

/* Whether data that came at a socket wake its waiters now: the CPU that walks their list holds its lock (kernel/sched/wait.c,
 * __wake_up_common_lock). A sender that is woken by room for its data is woken in the same way: then no data lie unread. With PREEMPT_RT
 * the lock is a mutex with an owner.
 */
static __always_inline bool wakes_by_data(const struct sock *sk)
{
	struct socket_wq *queue = BPF_CORE_READ(sk, sk_wq);
	struct spinlock___rt *rt = (void *)&queue->wait.lock;
	__u32 lock = 0;

	if (bpf_core_field_exists(rt->lock))
		lock = BPF_CORE_READ(rt, lock.owner) != 0;
	else
		bpf_probe_read_kernel(&lock, sizeof(lock), &queue->wait.lock);
	if (!lock)
		return false;
	if (BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP)
		return has_unread_data(sk);
	return BPF_CORE_READ(sk, sk_receive_queue.qlen) > 0;
}

/* Ticks since a connection sent something itself (net/ipv4/tcp_output.c, tcp_event_data_sent), and one; 0: it is no TCP connection. */
static __always_inline __u32 ticks_since_sent(const struct sock *sk)
{
	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	return (__u32)bpf_jiffies64() - BPF_CORE_READ((const struct tcp_sock *)sk, lsndtime) + 1;
}

static __always_inline __u32 ports_of(const struct sock *sk)
{
	return (__u32)BPF_CORE_READ(sk, __sk_common.skc_num) << 16 | BPF_CORE_READ(sk, __sk_common.skc_dport);
}

/* After a long sleep that data of a connection ended, so many sleeps are checked for data that the connection holds back: a program that
 * asks and is answered in two parts has two long sleeps and a short one.
 */
#define HELD_LOOKS 8

/* Data that were written to this connection wait for an acknowledgement, since they are little and other little data are on their way:
 * Nagle's algorithm (net/ipv4/tcp_output.c, tcp_nagle_check). The socket may be gone: another in its place has other ports.
 */
static __noinline int is_held_back(__u64 socket, __u32 ports)
{
	const struct sock *sk = (void *)socket;
	const struct tcp_sock *tcp = (void *)socket;
	__u32 sent = BPF_CORE_READ(tcp, snd_nxt), unsent = BPF_CORE_READ(tcp, write_seq) - sent;
	__u32 acknowledged = BPF_CORE_READ(tcp, snd_una), small = BPF_CORE_READ(tcp, snd_sml);

	if (!unsent || unsent >= BPF_CORE_READ(tcp, mss_cache) || BPF_CORE_READ_BITFIELD_PROBED(tcp, nonagle))
		return 0;
	return ports_of(sk) == ports && (__s32)(small - acknowledged) > 0 && (__s32)(small - sent) <= 0;
}

static __always_inline __u32 segments_of(__u64 socket)
{
	return BPF_CORE_READ((const struct tcp_sock *)socket, data_segs_out);
}

/* Data have come, and the data that were held back as the reader went to sleep, after so many segments, were sent in one, and acknowledged.
 * Data that carry the acknowledgement themselves release the held data as they come (net/ipv4/tcp_input.c, tcp_rcv_established): no task
 * waited for that.
 */
static __always_inline bool was_let_go(__u64 socket, __u32 segments)
{
	const struct tcp_sock *tcp = (void *)socket;

	return segments_of(socket) == segments + 1 && BPF_CORE_READ(tcp, snd_una) == BPF_CORE_READ(tcp, snd_nxt);
}

/* A message's own destination, for sockets that are not connected. */
static __always_inline void note_destination(struct sched_ends *ends, struct pt_regs *regs, __u32 call)
{
	__u16 name[4] = {}; /* include/uapi/linux/in.h, in6.h: family, port, address; for AF_INET6 the address is behind these */
	void *at = 0;

	if (call == CALL_SENDTO)
		at = (void *)BPF_CORE_READ(regs, r8);
	else if (call == CALL_SENDMSG) /* struct msghdr begins with it */
		bpf_probe_read_user(&at, sizeof(at), (void *)BPF_CORE_READ(regs, si));
	if (!at || bpf_probe_read_user(name, sizeof(name), at))
		return;
	ends->peer_port = __builtin_bswap16(name[1]);
	if (name[0] == AF_INET6) {
		bpf_probe_read_user(ends->peer, 16, at + sizeof(name));
		return;
	}
	ends->peer[10] = ends->peer[11] = 0xff;
	__builtin_memcpy(ends->peer + 12, name + 2, 4);
}

/* The socket that the current task has open as `fd`, if it is one. */
static __always_inline struct sock *socket_at(struct task_struct *t, __u32 fd)
{
	struct file *file = file_at(t, fd);
	struct socket *socket;

	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & 0170000) != 0140000)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}

/* The socket of the system call that the current task is in, and the call's number; -1: none. */
static __always_inline struct sock *socket_of_call(struct task_struct *t, const volatile __u64 *takes_fd, __s32 *call)
{
	struct pt_regs *regs;
	__u64 nr;

	*call = -1;
	if (t->flags & PF_KTHREAD)
		return 0;
	regs = registers_of(t);
	nr = BPF_CORE_READ(regs, orig_ax);
	if (nr >= 512)
		return 0;
	*call = nr;
	if (!(takes_fd[nr / 64 & 7] >> (nr & 63) & 1))
		return 0;
	return socket_at(t, BPF_CORE_READ(regs, di));
}

/* The socket from which the current task sends. */
static __always_inline __s32 note_sender(struct sched_ends *ends, struct task_struct *t, const volatile __u64 *takes_fd)
{
	__s32 call;
	struct sock *sk = socket_of_call(t, takes_fd, &call);

	if (!sk)
		return call;
	note_ends(ends, sk);
	if (ends->family && !ends->peer_port)
		note_destination(ends, registers_of(t), call);
	return call;
}

/* x86-64: read, readv, recvfrom, recvmsg, recvmmsg. */
static __always_inline bool is_read(__u64 call)
{
	return call == 0 || call == 19 || call == 45 || call == 47 || call == 299;
}

/* x86-64: write, writev, pwritev2, sendfile, sendto, sendmsg, sendmmsg. */
static __always_inline bool is_send(__u64 call)
{
	return call == 1 || call == 20 || call == 328 || call == 40 || call == 44 || call == 46 || call == 307;
}

enum { CALL_CONNECT = 42 };

/* A client's end has no name, and its other end has the service's name. */
static __always_inline bool is_unix_client(const struct unix_sock *sk)
{
	const struct unix_sock *peer = (void *)BPF_CORE_READ(sk, peer);

	return !BPF_CORE_READ(sk, addr) && peer && BPF_CORE_READ(peer, addr);
}

/* The current task sends through a unix socket. A service's end has the name that it listens at, also for each connection
 * (net/unix/af_unix.c, unix_stream_connect); a client's has none. A service that reads wakes its client, too (unix_write_space): it takes
 * data, and sends nothing.
 */
static __always_inline __u32 unix_role(struct task_struct *t, const volatile __u64 *takes_fd, bool *unread)
{
	__s32 call;
	struct unix_sock *sk = (void *)socket_of_call(t, takes_fd, &call);
	struct unix_sock *peer;
	bool own, others;

	if (!sk || BPF_CORE_READ((struct sock *)sk, __sk_common.skc_family) != AF_UNIX)
		return UNIX_NEITHER;
	peer = (void *)BPF_CORE_READ(sk, peer);
	own = BPF_CORE_READ(sk, addr);
	others = peer && BPF_CORE_READ(peer, addr);
	if (own == others)
		return UNIX_NEITHER;
	if (is_read(call))
		return own ? UNIX_TAKES : UNIX_NEITHER;
	*unread = BPF_CORE_READ((struct sock *)sk, sk_receive_queue.qlen) > 0;
	return own ? UNIX_ANSWERS : UNIX_ASKS;
}

/* So many sleeps of a thread are checked from its first on, and from each long wait for an answer through a unix socket on. The kernel
 * notes no time at these sockets, and a request that ends no long wait leaves no row.
 */
#define LOOKED_AT 16

/* x86-64: poll, ppoll. */
enum { CALL_POLL = 7, CALL_PPOLL = 271 };

/* As include/uapi/asm-generic/poll.h has it. */
struct one_polled {
	__u32 fd;
	__u16 events;
	__u16 revents;
};
#define POLLED_IN 0x41 /* POLLIN, POLLRDNORM */

/* Sockets of one poll(2) that are read: programs poll one, or one and another that wakes them. */
#define POLLED 4

enum { UNREAD_NO, UNREAD_YES, UNREAD_OTHER };

/* Whether data that a client sent through this socket of the current task lie unread; or another socket, through which answers come, too.
 * The ends of a pair have no names: a program wakes itself through them. With datagrams all senders have one queue.
 */
static __always_inline __u32 unread_at(struct task_struct *t, __u32 fd)
{
	const __u32 dgram = 2; /* SOCK_DGRAM */
	struct unix_sock *sk = (void *)socket_at(t, fd), *peer;

	if (!sk)
		return UNREAD_NO;
	if (BPF_CORE_READ((struct sock *)sk, __sk_common.skc_family) != AF_UNIX)
		return UNREAD_OTHER;
	peer = (void *)BPF_CORE_READ(sk, peer);
	if (!is_unix_client(sk))
		return BPF_CORE_READ(sk, addr) ? UNREAD_OTHER : UNREAD_NO;
	if (BPF_CORE_READ((struct sock *)sk, sk_type) == dgram || !BPF_CORE_READ((struct sock *)peer, sk_receive_queue.qlen))
		return UNREAD_OTHER;
	return UNREAD_YES;
}

/* The current task goes to sleep, and a service has not read what the task sent. The task sent it through the unix socket that it reads
 * from, or through the only one of the few descriptors that it polls through which an answer may come.
 */
static __noinline int lies_unread(struct task_struct *t)
{
	struct pt_regs *regs = registers_of(t);
	__u64 nr = BPF_CORE_READ(regs, orig_ax), at = BPF_CORE_READ(regs, di);
	struct one_polled one;
	__u32 i, at_one, unread = 0;

	if (t->flags & PF_KTHREAD)
		return 0;
	if (is_read(nr))
		return unread_at(t, at) == UNREAD_YES;
	if ((nr != CALL_POLL && nr != CALL_PPOLL) || BPF_CORE_READ(regs, si) > POLLED)
		return 0;
	for (i = 0; i < POLLED; i++) {
		if (i >= BPF_CORE_READ(regs, si))
			break;
		if (bpf_probe_read_user(&one, sizeof(one), (void *)(at + i * sizeof(one))))
			return 0;
		at_one = one.events & POLLED_IN ? unread_at(t, one.fd) : UNREAD_NO;
		if (at_one == UNREAD_OTHER || (at_one == UNREAD_YES && unread))
			return 0;
		unread |= at_one;
	}
	return unread;
}
