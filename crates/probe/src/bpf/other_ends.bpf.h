/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Who holds the other end of what a task waits at, when the window ends and nothing has ended that wait.
 *
 * What ended a wait says who was waited for; of one that lasts only the connection itself tells. The walk over tasks notes what is
 * wanted: of those who are followed any connection or pipe, of the others a client's that has asked. The walk over
 * files finds who has its other end open. Nothing is written, no lock is taken but those of the iterators.
 */
#pragma once

#include "rows.bpf.h"

#define MAX_WANTED 4096
/* Of processes that share one. */
#define MOST_HOLDERS 4

enum other_kind { OTHER_INET, OTHER_UNIX, OTHER_PIPE_READER, OTHER_PIPE_WRITER };

/* One end, as its holder has it. Of a unix socket its address, of a pipe that of its inode: compared, and never told. */
struct other_key {
	__u8 local[16];
	__u8 peer[16];
	__u16 local_port;
	__u16 peer_port;
	__u32 netns; /* of a loopback address: each network namespace has its own */
	__u64 object;
	__u32 kind;
	__u32 unused;
};

struct other_end {
	__u32 index; /* of the rows that want it, from 1 */
	__u32 count; /* of `holders`, and more */
	__u32 holders[MOST_HOLDERS];
	__u32 client; /* the end that waits is a client's */
	__u32 asked;  /* ... and it has sent since data came last, or what it sent is not read yet */
};

/* Filled in the context of the reading process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_WANTED);
	__type(key, struct other_key);
	__type(value, struct other_end);
} other_ends SEC(".maps");

/* How many are wanted, and how many could not be noted. */
__u32 wanted;
__u64 unwanted;

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
	if (is_loopback(key->local))
		key->netns = ends->netns;
}

/* Of a connection of TCP: has this end sent since data came last? In ticks both may be one, and then only the first request is known. */
static __always_inline bool has_asked(const struct sock *sk)
{
	const struct tcp_sock *tcp = (void *)sk;
	__s32 later = BPF_CORE_READ(tcp, lsndtime) - BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ack.lrcvtime);

	if (later)
		return later > 0;
	return BPF_CORE_READ(tcp, bytes_sent) && !BPF_CORE_READ(tcp, bytes_received);
}

/* Not read yet by who has this end. */
static __always_inline bool has_unread(const struct sock *sk, __u32 kind)
{
	const struct tcp_sock *tcp = (void *)sk;

	if (kind == OTHER_UNIX)
		return BPF_CORE_READ(sk, sk_receive_queue.qlen) > 0;
	return (__s32)(BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq)) > 0;
}

static __always_inline bool want_inet(struct other_key *key, struct other_end *end, const struct sock *sk)
{
	struct sched_ends own = {}, other = {};

	note_ends(&own, sk);
	if (own.protocol != IPPROTO_TCP || !own.peer_port)
		return false;
	__builtin_memcpy(other.local, own.peer, 16);
	__builtin_memcpy(other.peer, own.local, 16);
	other.local_port = own.peer_port;
	other.peer_port = own.local_port;
	other.netns = own.netns;
	note_key(key, &other);
	end->client = !own.serves;
	end->asked = end->client && has_asked(sk);
	return true;
}

static __always_inline bool want_unix(struct other_key *key, struct other_end *end, struct unix_sock *sk)
{
	struct unix_sock *peer = (void *)BPF_CORE_READ(sk, peer);

	if (!peer)
		return false;
	key->kind = OTHER_UNIX;
	key->object = (__u64)peer;
	end->client = !BPF_CORE_READ(sk, addr) && BPF_CORE_READ(peer, addr);
	end->asked = end->client && has_unread((struct sock *)peer, OTHER_UNIX);
	return true;
}

static __always_inline bool want_socket(struct other_key *key, struct other_end *end, struct sock *sk)
{
	__u32 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family == AF_UNIX)
		return want_unix(key, end, (void *)sk);
	return (family == AF_INET || family == AF_INET6) && want_inet(key, end, sk);
}

/* What a row waits at is to be looked for. */
static __noinline int want(struct sched_span *span, bool followed)
{
	struct other_key key = {};
	struct other_end end = {}, *known;
	const bool is_pipe = (span->mode & 0170000) == 0010000;

	if (!span->waits_at)
		return 0;
	if (is_pipe) {
		/* x86-64: write, writev. */
		key.kind = span->syscall == 1 || span->syscall == 20 ? OTHER_PIPE_READER : OTHER_PIPE_WRITER;
		key.object = span->waits_at;
	} else if (!want_socket(&key, &end, (void *)span->waits_at)) {
		return 0;
	}
	if (!followed && !(end.client && end.asked))
		return 0;
	known = bpf_map_lookup_elem(&other_ends, &key);
	if (known) {
		span->other_end = known->index;
		return 0;
	}
	end.index = wanted + 1;
	if (bpf_map_update_elem(&other_ends, &key, &end, BPF_NOEXIST)) {
		unwanted++;
		return 0;
	}
	wanted++;
	span->other_end = end.index;
	return 0;
}

static __always_inline void found(const struct other_key *key, __u32 process, const struct sock *sk)
{
	struct other_end *end = bpf_map_lookup_elem(&other_ends, key);

	if (!end)
		return;
	if (sk && end->client && has_unread(sk, key->kind))
		end->asked = 1;
	end->holders[end->count & (MOST_HOLDERS - 1)] = process;
	end->count++;
}

static __always_inline void found_pipe(struct file *file, struct inode *inode, __u32 process)
{
	const __u32 reads = 1, writes = 2; /* include/linux/fs.h: FMODE_READ, FMODE_WRITE */
	__u32 mode = BPF_CORE_READ(file, f_mode);
	struct other_key key = {};

	key.object = (__u64)inode;
	key.kind = OTHER_PIPE_READER;
	if (mode & reads)
		found(&key, process, 0);
	key.kind = OTHER_PIPE_WRITER;
	if (mode & writes)
		found(&key, process, 0);
}

static __always_inline void found_socket(struct sock *sk, __u32 process)
{
	__u32 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	struct other_key key = {};
	struct sched_ends ends = {};

	if (family == AF_UNIX) {
		key.kind = OTHER_UNIX;
		key.object = (__u64)sk;
	} else {
		note_ends(&ends, sk);
		if (ends.protocol != IPPROTO_TCP || !ends.peer_port)
			return;
		note_key(&key, &ends);
	}
	found(&key, process, sk);
}

SEC("iter/task_file")
int find_ends(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct inode *inode;
	struct sock *sk;
	__u32 kind;

	if (!t || !file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	kind = BPF_CORE_READ(inode, i_mode) & 0170000;
	if (kind == 0010000)
		found_pipe(file, inode, t->tgid);
	if (kind != 0140000)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	if (sk)
		found_socket(sk, t->tgid);
	return 0;
}
