/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which process holds the other end of a connection that a client waits at, when the window ends and nothing has ended that wait.
 *
 * The event that ends a wait shows what the client waited for; for a wait that lasts, only the connection itself shows it. The walk over
 * tasks notes the ends to look for: any connection of a followed client, and of other clients one through which they may have asked. The
 * walk over files finds the process that has the other end open, or the listening socket in whose queue it is: no process has a file for a
 * connection that was not accepted yet. Nothing is written, no lock is taken but those of the iterators.
 *
 * A service that a client has asked may have asked other services. It may wait for any of its open connections, so its requests show what
 * the answer waits for. The first walk over files notes the requests of all processes, the next one finds the processes that are to answer
 * them.
 */
#pragma once

#include "rows.bpf.h"
#include "parked.bpf.h"

#define MAX_WANTED 4096
/* For a client that is not followed, a wait is looked up if it has lasted for so long, or is in poll() or epoll_wait(). */
#define LASTING (15 * MSEC)
/* Processes that share one end. */
#define MOST_AT_END 16

/* Several processes have that end: which of them made the request is not known. */
#define SHARED 4294967295

/* include/linux/fs.h */
#define FMODE_READ 1
#define FMODE_WRITE 2

enum other_kind { OTHER_INET, OTHER_UNIX, OTHER_LISTENER, OTHER_PIPE, OTHER_FILE };
enum other_asked { ASKED_UNKNOWN, ASKED_NOT, ASKED_SENT, ASKED_UNREAD, ASKED_QUEUED };

/* One end, as its holder has it; for a listening socket, its own address, zeros for any. A unix socket's address is compared, and never
 * reported. For a pipe its mode stands for a port. For a lock on a file: the open file through which it was taken, and `peer` is its inode.
 */
struct other_key {
	__u8 local[16];
	__u8 peer[16];
	__u16 local_port;
	__u16 peer_port;
	__u32 netns; /* for an address that does not leave its host: each network namespace has its own */
	__u64 object;
	__u32 kind;
	__u32 unused;
};

struct other_end {
	__u32 index; /* number of the rows that want it, from 1 */
	__u32 count; /* of `holders`, and more */
	__u32 holders[MOST_AT_END];
	__u32 asked; /* enum other_asked */
	__u32 may_be_queued; /* it may be in a listen queue: it has a listener's key, too */
	__u32 sent; /* ticks since this end sent something, and one; 0: not known */
	__u32 walk; /* the walk over files that searches for it */
	__u32 asker; /* the process that made a noted request, or SHARED */
	__u32 connecting; /* it has requested a connection */
	__u32 sends; /* it waits until the other end takes what it sends, whichever of the two is the service */
	__u32 watch; /* enum watch (parked.bpf.h) */
	__u32 unused;
	__u32 taker; /* for a lock on a file: `holders` are the oldest process that has it open, and this one if it has */
	__u64 sent_us; /* by the clock of `first_tx_mstamp`; 0: not known */
	__u64 listener; /* unix socket: the address that it shares with its listener; UDP: IPPROTO_UDP; a listener itself: its socket */
};

/* Filled in the context of the reading process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_WANTED);
	__type(key, struct other_key);
	__type(value, struct other_end);
} other_ends SEC(".maps");

/* An end that is being built, and its listener's: the walks have no room for them on their stacks. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct other_end);
} new_end SEC(".maps");

static __always_inline struct other_end *fresh(__u32 which)
{
	struct other_end *end = bpf_map_lookup_elem(&new_end, &which);

	if (end)
		__builtin_memset(end, 0, sizeof(*end));
	return end;
}

static __always_inline struct other_end *fresh_end(void)
{
	return fresh(0);
}

/* The same for the key of a file. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct other_key);
} new_key SEC(".maps");

/* How many ends are wanted, and how many could not be noted. */
__u32 wanted;
__u64 unwanted;

/* In ticks: when the closing walk began. Data that are sent while files are walked do not count. */
__u64 ended_at;

/* Walks over files that have begun. */
__u32 walks;

/* Processes that earlier walks found to have been asked: of their unix sockets only requests are noted. Every service has one that leads to
 * the journal, and it does not show whether something was asked.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_WANTED);
	__type(key, __u32);
	__type(value, __u32);
} asked_processes SEC(".maps");

static __always_inline bool is_loopback(const __u8 *address)
{
	const __u64 *half = (const __u64 *)address;

	if (half[0])
		return false;
	return (address[10] == 0xff && address[11] == 0xff && address[12] == 127) || half[1] == 1ULL << 56; /* ::1 */
}

static __always_inline void note_key(struct other_key *key, const struct sched_ends *ends)
{
	key->kind = OTHER_INET;
	__builtin_memcpy(key->local, ends->local, 16);
	__builtin_memcpy(key->peer, ends->peer, 16);
	key->local_port = ends->local_port;
	key->peer_port = ends->peer_port;
	if (is_loopback(key->local) || !__builtin_memcmp(key->local, key->peer, 16))
		key->netns = ends->netns;
}

/* A process that has sent so many segments and received nothing sends news, and makes no request. */
#define SENDS_NEWS 64
/* In ticks; data that seem to be older were sent after the window. */
#define LONGEST (1U << 30)

/* For a TCP connection: has this end sent since data came last? Both may lie in one tick, and then only the first request is known. The
 * values are 32 bits of ticks.
 */
static __always_inline __u32 has_asked(const struct sock *sk)
{
	const struct tcp_sock *tcp = (void *)sk;
	__u32 now = ended_at, sent = now - BPF_CORE_READ(tcp, lsndtime);
	__u32 came = now - BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ack.lrcvtime);

	/* Both are set when the connection is made (net/ipv4/tcp_input.c, tcp_finish_connect), a tick apart if one passes in between. */
	if (!BPF_CORE_READ(tcp, bytes_sent))
		return ASKED_NOT;
	if (!BPF_CORE_READ(tcp, bytes_received))
		return sent > LONGEST || BPF_CORE_READ(tcp, data_segs_out) > SENDS_NEWS ? ASKED_NOT : ASKED_SENT;
	if (sent == came || sent > LONGEST || came > LONGEST)
		return ASKED_UNKNOWN;
	return sent < came ? ASKED_SENT : ASKED_NOT;
}

/* Data that the holder of this end has not read yet. */
static __always_inline bool has_unread(const struct sock *sk, __u32 kind)
{
	if (kind == OTHER_LISTENER && BPF_CORE_READ(sk, sk_protocol) == IPPROTO_UDP && BPF_CORE_READ((struct udp_sock *)sk, reader_queue.qlen))
		return true;
	return kind == OTHER_INET ? has_unread_data(sk) : BPF_CORE_READ(sk, sk_receive_queue.qlen) > 0;
}

static __always_inline bool want_inet(struct other_key *key, struct other_end *end, const struct sock *sk)
{
	struct sched_ends own = {}, other = {};

	note_ends(&own, sk);
	if ((own.protocol != IPPROTO_TCP && own.protocol != IPPROTO_UDP) || !own.peer_port || (own.serves && !end->sends))
		return false;
	__builtin_memcpy(other.local, own.peer, 16);
	__builtin_memcpy(other.peer, own.local, 16);
	other.local_port = own.peer_port;
	other.peer_port = own.local_port;
	other.netns = own.netns;
	note_key(key, &other);
	if (own.protocol == IPPROTO_UDP) { /* all clients send to one socket of the service */
		end->may_be_queued = !!key->netns;
		end->listener = IPPROTO_UDP;
		return key->netns;
	}
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_SYN_SENT) {
		end->connecting = 1;
		end->asked = ASKED_SENT;
		return true;
	}
	end->asked = has_asked(sk);
	end->sent = (__u32)ended_at - BPF_CORE_READ((struct tcp_sock *)sk, lsndtime) + 1;
	if (end->sent > LONGEST)
		end->sent = 0;
	end->sent_us = BPF_CORE_READ((struct tcp_sock *)sk, first_tx_mstamp);
	end->may_be_queued = key->netns && !BPF_CORE_READ((struct tcp_sock *)sk, bytes_received);
	if (end->sends)
		end->asked = ASKED_SENT;
	return true;
}

static __always_inline bool want_unix(struct other_key *key, struct other_end *end, struct unix_sock *sk)
{
	const __u32 dgram = 2; /* SOCK_DGRAM: all clients send to one socket of the service */
	struct unix_sock *peer = (void *)BPF_CORE_READ(sk, peer);

	/* A client's end has no name, and a service's has. A task that cannot send waits for the reader of the other end, also with
	 * datagrams.
	 */
	if (!peer || (!end->sends && BPF_CORE_READ((struct sock *)sk, sk_type) == dgram))
		return false;
	if (!end->sends && (BPF_CORE_READ(sk, addr) || !BPF_CORE_READ(peer, addr)))
		return false;
	key->kind = OTHER_UNIX;
	key->object = (__u64)peer;
	end->asked = has_unread((struct sock *)peer, OTHER_UNIX) ? ASKED_UNREAD : ASKED_UNKNOWN;
	/* accept() gives the socket its sk_socket (net/unix/af_unix.c, sock_graft) */
	end->may_be_queued = !BPF_CORE_READ((struct sock *)peer, sk_socket);
	end->listener = (__u64)BPF_CORE_READ(peer, addr);
	return true;
}

static __always_inline bool want_socket(struct other_key *key, struct other_end *end, struct sock *sk)
{
	__u32 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family == AF_UNIX)
		return want_unix(key, end, (void *)sk);
	return (family == AF_INET || family == AF_INET6) && want_inet(key, end, sk);
}

static __always_inline void note_listener(const struct other_key *key, const struct other_end *end)
{
	long err = bpf_map_update_elem(&other_ends, key, end, BPF_NOEXIST);

	if (err && err != -EEXIST)
		unwanted++;
}

/* The service of a connection that was not accepted yet may listen at the connection's address, or at any. */
static __always_inline void want_listener(const struct other_key *connection, __u64 object)
{
	struct other_key key = { .kind = OTHER_LISTENER, .netns = connection->netns, .object = object };
	struct other_end *end = fresh(1);

	if (!end)
		return;
	end->walk = walks + 1;
	key.local_port = connection->local_port;
	note_listener(&key, end);
	if (connection->kind == OTHER_UNIX)
		return;
	__builtin_memcpy(key.local, connection->local, 16);
	note_listener(&key, end);
}

/* Look for this end: returns its number, 0 if there is no room. */
static __always_inline __u32 note_wanted(const struct other_key *key, struct other_end *end)
{
	end->index = wanted + 1;
	end->walk = walks + 1;
	if (bpf_map_update_elem(&other_ends, key, end, BPF_NOEXIST)) {
		unwanted++;
		return 0;
	}
	wanted++;
	if (end->may_be_queued)
		want_listener(key, end->listener);
	return end->index;
}

/* Look for this socket's other end: returns its number, 0 if it is not looked for. Global: the verifier checks it once, and not on each
 * path through the closing walk.
 */
__noinline __u32 want_end(__u64 sk, __u32 followed, __u32 sends)
{
	struct other_end *end = fresh_end(), *known;
	struct other_key key = {};

	if (!end)
		return 0;
	end->sends = sends;
	if (!want_socket(&key, end, (void *)sk))
		return 0;
	if (!followed && end->asked == ASKED_NOT && !end->may_be_queued)
		return 0;
	known = bpf_map_lookup_elem(&other_ends, &key);
	return known ? known->index : note_wanted(&key, end);
}

static __always_inline bool is_pipe(struct file *file)
{
	return (BPF_CORE_READ(file, f_inode, i_mode) & 0170000) == 0010000;
}

/* The same for a pipe: a task that waits to write waits for a reader; a task that waits to read may wait for something to do. */
__noinline __u32 want_pipe(__u64 at)
{
	struct file *file = (void *)at;
	struct other_key key = { .kind = OTHER_PIPE };
	struct other_end *end = fresh_end(), *known;
	__u32 mode = BPF_CORE_READ(file, f_mode) & (FMODE_READ | FMODE_WRITE);

	if (!end || !is_pipe(file) || (mode != FMODE_READ && mode != FMODE_WRITE))
		return 0;
	end->asked = mode == FMODE_WRITE ? ASKED_UNREAD : ASKED_UNKNOWN;
	key.object = (__u64)BPF_CORE_READ(file, private_data);
	key.local_port = mode ^ (FMODE_READ | FMODE_WRITE);
	known = bpf_map_lookup_elem(&other_ends, &key);
	return known ? known->index : note_wanted(&key, end);
}

/* Whether the walk looks for open files with a lock. */
__u32 files_wanted;

static __always_inline struct other_key *file_key(struct file *file)
{
	__u32 zero = 0;
	struct other_key *key = bpf_map_lookup_elem(&new_key, &zero);

	if (!key)
		return 0;
	key->kind = OTHER_FILE;
	key->object = (__u64)file;
	*(__u64 *)key->peer = (__u64)BPF_CORE_READ(file, f_inode);
	return key;
}

/* The processes that have a file open, and with it a lock that other tasks wait for and `taker` took. */
__noinline __u32 want_file(__u64 file, __u32 taker)
{
	struct other_end *end = fresh_end(), *known;
	struct other_key *key = file_key((void *)file);

	if (!end || !key)
		return 0;
	end->taker = taker;
	files_wanted = 1;
	known = bpf_map_lookup_elem(&other_ends, key);
	return known ? known->index : note_wanted(key, end);
}

/* The end that a row waits at, so far for `ns`. Of many polls the last one may be short. */
static __always_inline void want(struct sched_span *span, struct task_struct *t, __u64 ns, bool followed)
{
	const bool looks = is_poll(span->syscall) || is_epoll(span->syscall);

	if (is_epoll(span->syscall))
		note_epoll(t, span->args[0]);
	if (!followed && !looks && !span->refused && ns < LASTING)
		return;
	if (span->lock_file && !span->waits_at)
		span->other_end = want_file(span->lock_file, span->holder);
	else if (span->waits_at)
		span->other_end = want_end(span->waits_at, followed, is_send(span->syscall));
	else if ((span->mode & 0170000) == 0010000)
		span->other_end = want_pipe((__u64)file_of_task(t, span->args[0]));
}

/* Both have sent in one tick, and are on one host: another clock shows which of them sent last. */
static __always_inline __u32 who_sent_last(const struct other_end *end, const struct sock *service)
{
	__u64 theirs = BPF_CORE_READ((const struct tcp_sock *)service, first_tx_mstamp);

	if (!end->sent_us || !theirs || theirs == end->sent_us)
		return ASKED_UNKNOWN;
	return end->sent_us > theirs ? ASKED_SENT : ASKED_NOT;
}

/* A service that has sent some segments, has received as many, and has read none of them: what a subscriber sends in answer to news
 * (acknowledgements) is no request. A greeting, and a first request, take one or two segments (data_segs_out, data_segs_in).
 */
static __always_inline bool tells_unasked(const struct sock *service)
{
	const struct tcp_sock *tcp = (void *)service;
	__u32 unread = BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq);

	return BPF_CORE_READ(tcp, data_segs_out) > 2 && BPF_CORE_READ(tcp, data_segs_in) > 2 && unread == (__u32)BPF_CORE_READ(tcp, bytes_received);
}

/* The iterator returns the files of one process one after another. */
static __always_inline void found(const struct other_key *key, __u32 process, const struct sock *sk)
{
	struct other_end *end = bpf_map_lookup_elem(&other_ends, key);

	if (!end || end->walk != walks || (end->count && end->holders[(end->count - 1) & (MOST_AT_END - 1)] == process))
		return;
	if (sk && has_unread(sk, key->kind))
		end->asked = key->kind == OTHER_INET && !end->sends && tells_unasked(sk) ? ASKED_NOT : ASKED_UNREAD;
	else if (key->kind == OTHER_INET && end->asked == ASKED_UNKNOWN)
		end->asked = who_sent_last(end, sk);
	end->holders[end->count & (MOST_AT_END - 1)] = process;
	end->count++;
}

/* In ticks, and one: a request that was sent later than this could not be answered in time. */
#define SOON 2
/* include/net/sock.h */
#define RCV_SHUTDOWN 1

/* A request of this process. The first walk notes all requests over TCP. */
static __always_inline void note_request(struct sock *sk, __u32 family, __u32 process)
{
	struct other_end *end = fresh_end(), *known;
	struct other_key key = {};

	if (!end)
		return;
	if (family == AF_UNIX ? !is_followed(process) && !bpf_map_lookup_elem(&asked_processes, &process) : walks != 1)
		return;
	/* A client that shuts its end down for reading awaits no answer: services have the journal open in this way. */
	if (BPF_CORE_READ(sk, sk_shutdown) & RCV_SHUTDOWN)
		return;
	if (!want_socket(&key, end, sk) || (end->asked == ASKED_NOT && !end->may_be_queued) || end->listener == IPPROTO_UDP)
		return;
	if (family != AF_UNIX && !end->connecting && (BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_ESTABLISHED || end->sent <= SOON))
		return;
	known = bpf_map_lookup_elem(&other_ends, &key);
	if (known) {
		if (known->sends) /* whether it made a request is not known */
			return;
		known->asker = !known->asker || known->asker == process ? process : SHARED;
		return;
	}
	end->asker = process;
	note_wanted(&key, end);
}

/* A listening socket with a connection in its queue; for UDP any socket that is not connected. */
static __always_inline void found_listener(struct sock *sk, __u32 family, __u32 process)
{
	struct other_key key = { .kind = OTHER_LISTENER };
	struct other_end *end;

	if (family == AF_UNIX) {
		if (!has_unread(sk, OTHER_UNIX))
			return;
		key.object = (__u64)BPF_CORE_READ((struct unix_sock *)sk, addr);
	} else {
		if (BPF_CORE_READ(sk, sk_protocol) == IPPROTO_UDP)
			key.object = IPPROTO_UDP;
		else if (!BPF_CORE_READ(sk, sk_ack_backlog))
			return;
		key.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
		key.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
		if (family == AF_INET6 || BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr)) /* else any */
			note_address(key.local, family, &sk->__sk_common.skc_rcv_saddr, &sk->__sk_common.skc_v6_rcv_saddr);
	}
	end = bpf_map_lookup_elem(&other_ends, &key);
	if (!end || end->walk != walks)
		return;
	/* Of several processes' sockets at one address (SO_REUSEPORT), it is not known in which queue the connection is. */
	if (end->listener && end->listener != (__u64)sk && (end->count != 1 || end->holders[0] != process))
		end->count = MOST_AT_END + 1;
	end->listener = (__u64)sk;
	found(&key, process, sk);
}

static __always_inline void found_socket(struct sock *sk, struct file *file, __u32 process)
{
	__u32 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	struct other_key key = {};
	struct sched_ends ends = {};
	struct other_end *end;

	if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
		return;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN) {
		found_listener(sk, family, process);
		return;
	}
	note_request(sk, family, process);
	if (family == AF_UNIX) {
		key.kind = OTHER_UNIX;
		key.object = (__u64)sk;
	} else {
		/* Of two ends of which neither was accepted, as far as is known, neither is the service. */
		note_ends(&ends, sk);
		if (ends.protocol == IPPROTO_UDP && ends.local_port && ends.serves)
			found_listener(sk, family, process);
		if (ends.protocol != IPPROTO_TCP || !ends.peer_port)
			return;
		note_key(&key, &ends);
		end = bpf_map_lookup_elem(&other_ends, &key);
		if (!end || (!ends.serves && !end->sends))
			return;
	}
	found(&key, process, sk);
	end = bpf_map_lookup_elem(&other_ends, &key);
	if (end && end->walk == walks && !end->sends)
		end->watch = watch_of(as_number(file));
}

static __always_inline void found_pipe(struct file *file, __u32 process)
{
	struct other_key key = { .kind = OTHER_PIPE };

	key.object = (__u64)BPF_CORE_READ(file, private_data);
	key.local_port = BPF_CORE_READ(file, f_mode) & (FMODE_READ | FMODE_WRITE);
	found(&key, process, 0);
}

/* A lock is held through this file now: its address may be another file's since it was wanted. */
static __always_inline bool is_locked_through(struct file *file)
{
	struct file_lock_context *context = BPF_CORE_READ(file, f_inode, i_flctx);
	struct file_lock_at at;
	__u64 head, next;
	int i;

	if (!context)
		return false;
	file_lock_layout(&at);
	head = (__u64)context + bpf_core_field_offset(context->flc_flock);
	for (int kind = 0; kind < 2; kind++) {
		next = next_of(head);
		for (i = 0; i < MAX_FILE_LOCKS && next && next != head; i++) {
			if (open_file_of(next - at.list) == (__u64)file)
				return true;
			next = next_of(next);
		}
		head = (__u64)context + bpf_core_field_offset(context->flc_posix);
	}
	return false;
}

/* A build inherits the file to all the processes that it starts: of many the oldest counts. */
__noinline int found_file(__u64 at, __u64 task)
{
	struct task_struct *t = (void *)task;
	__u64 born = BPF_CORE_READ(t, group_leader, start_time);
	__u32 process = BPF_CORE_READ(t, tgid);
	struct file *file = (void *)at;
	struct other_key *key = file_key(file);
	struct other_end *end = key ? bpf_map_lookup_elem(&other_ends, key) : 0;

	if (!end || end->walk != walks || !is_locked_through(file))
		return 0;
	if (!end->count || born < end->sent_us) {
		end->holders[0] = process;
		end->sent_us = born;
		if (!end->count)
			end->count = 1;
	}
	if (process == end->taker) {
		end->holders[1] = process;
		end->count = 2;
	}
	return 0;
}

SEC("iter/task_file")
int find_ends(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;

	if (!t || !file)
		return 0;
	if (files_wanted)
		found_file(as_number(file), as_number(t));
	socket = socket_of(file);
	sk = socket ? BPF_CORE_READ(socket, sk) : 0;
	if (sk)
		found_socket(sk, file, t->tgid);
	else if (is_pipe(file))
		found_pipe(file, t->tgid);
	return 0;
}
