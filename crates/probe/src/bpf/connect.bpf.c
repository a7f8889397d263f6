// SPDX-License-Identifier: GPL-2.0
/* Which processes opened TCP connections, and whose SYN had to be retransmitted?
 *
 * A connect begins in the client's context (CLOSE -> SYN_SENT) and ends in softirq. Prompt ones are summed per client and peer. The rare
 * ones with a retransmitted SYN go out one by one, because only their intervals say how long a task with several of them waited. At each
 * retry the socket's wait queue says whether a task waits: connect() and poll() sleep there, epoll watches there, and a socket that was
 * fired and forgotten has an empty queue.
 *
 * The iterator finds sockets that have no event: those that were in SYN_SENT before we attached, and listening sockets with their accept
 * queue and drops. It walks the file tables of all tasks, so it sees every network namespace and the owner.
 */
#include "kernel.bpf.h"
#include "away.bpf.h"

#define MAX_PEERS 8192
#define MAX_PENDING 16384
#define RING_BYTES (1 << 20)
/* The first retransmission of data comes after 200 ms (TCP_RTO_MIN), and a bit. */
#define FIRST_TIMEOUT_NS 250000000ULL

/* How a client waits. */
enum { SLEEPS = 1, WATCHES = 2 };

struct connect_sums {
	__u64 count;
	__u64 done;
	__u64 prompt;
	__u64 prompt_ns;
	__u64 worst_ns;
	__u64 refused;
	__u64 naps; /* between a refusal and the next attempt */
	__u64 slept_ns;
	__u64 rests; /* between a connection that was made and the next attempt */
	__u64 rested_ns;
	__u64 own; /* the peer's address is one of its own network namespace */
	char comm[16];
};

/* A socket in SYN_SENT; sent to user space when it ends, if its SYN was retransmitted. */
struct connect_pending {
	struct connect_key key;
	__u64 start_ns;
	__u64 end_ns; /* 0: still pending */
	__u64 looked_ns; /* time of the last retry; before it, of the start */
	__u64 task; /* only compared, and read with checks: it may be gone */
	__u64 switches; /* the task's voluntary switches at the start */
	__u64 wakes; /* ... since then, at the last retry */
	__u32 retries;
	__u32 how;
	__u32 seeded; /* was there before we attached: its start is the window's */
	__u32 done;
	__u32 unanswered; /* connected, and the first data are retransmitted */
	__u32 unused;
	__u64 gap_ns; /* between the last two retries */
	char comm[16];
};

/* Read by connect.rs, one after another from the iterator. */
struct connect_listener {
	__u64 sk;
	__u64 drops;
	__u8 addr[16];
	__u32 netns;
	__u32 port;
	__u32 queue;
	__u32 limit;
	__u32 tgid;
	__u32 family;
	char comm[16];
};

/* Connects that we saw but could not note. */
__u64 lost;
/* Set by user space: the next walk notes sockets in SYN_SENT that are not known. */
__u32 seed;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PEERS);
	__type(key, struct connect_key);
	__type(value, struct connect_sums);
} peers SEC(".maps");

/* By address of the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PENDING);
	__type(key, __u64);
	__type(value, struct connect_pending);
} pending SEC(".maps");

/* By address of the socket: connected, as far as the client knows. A third ACK that meets a full queue is dropped like a SYN. With SYN
 * cookies the server then knows nothing of the connection until the client's data, retransmitted, carry the ACK once more. The oldest make
 * room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_PEERS);
	__type(key, __u64);
	__type(value, struct connect_pending);
} fresh SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} retried SEC(".maps");

/* For the skeleton: the iterator's record. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct connect_listener);
} shape SEC(".maps");

static void address(__u8 *to, __u32 family, const __be32 *v4, const struct in6_addr *v6)
{
	if (family == AF_INET6) {
		bpf_probe_read_kernel(to, 16, v6);
		return;
	}
	to[10] = to[11] = 0xff;
	bpf_probe_read_kernel(to + 12, 4, v4);
}

static void name_peer(struct connect_key *key, const struct sock *sk)
{
	const struct sock_common *c = &sk->__sk_common;

	address(key->addr, BPF_CORE_READ(c, skc_family), &c->skc_daddr, &c->skc_v6_daddr);
	key->port = __builtin_bswap16(BPF_CORE_READ(c, skc_dport));
	key->netns = BPF_CORE_READ(c, skc_net.net, ns.inum);
}

static void note(__u64 sk, struct connect_pending *p)
{
	struct connect_sums *sums = bpf_map_lookup_elem(&peers, &p->key);

	if (!sums) {
		struct connect_sums none = {};

		__builtin_memcpy(none.comm, p->comm, sizeof(none.comm));
		bpf_map_update_elem(&peers, &p->key, &none, BPF_NOEXIST);
		sums = bpf_map_lookup_elem(&peers, &p->key);
	}
	if (!sums || bpf_map_update_elem(&pending, &sk, p, BPF_ANY)) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	__sync_fetch_and_add(&sums->count, 1);
}

static void slept(const struct connect_key *key)
{
	__u32 pid = key->pid;
	struct last_attempt *a = bpf_map_lookup_elem(&attempts, &pid);
	struct connect_sums *sums;
	__u64 ns;

	if (!a)
		return;
	ns = slept_since(key, a);
	sums = ns ? bpf_map_lookup_elem(&peers, &a->key) : 0;
	if (sums && a->refused) {
		__sync_fetch_and_add(&sums->naps, 1);
		__sync_fetch_and_add(&sums->slept_ns, ns);
	} else if (sums) {
		__sync_fetch_and_add(&sums->rests, 1);
		__sync_fetch_and_add(&sums->rested_ns, ns);
	}
}

static void opened(const struct sock *sk)
{
	struct task_struct *t = current_task();
	struct connect_pending p = {};

	p.start_ns = p.looked_ns = bpf_ktime_get_ns();
	p.key.pid = of_current(t, pid);
	p.key.tgid = of_current(t, tgid);
	p.task = (__u64)t;
	p.switches = of_current(t, nvcsw);
	bpf_get_current_comm(p.comm, sizeof(p.comm));
	name_peer(&p.key, sk);
	slept(&p.key);
	note((__u64)sk, &p);
}

static void send(struct connect_pending *p)
{
	if (p->retries && bpf_ringbuf_output(&retried, p, sizeof(*p), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

/* Which task is on the socket's wait queue? The first entry will do: a connecting socket has one user. */
static __u32 how_waited_for(const struct sock *sk, struct connect_pending *p)
{
	struct list_head *head = &BPF_CORE_READ(sk, sk_wq)->wait.head;
	struct list_head *first = BPF_CORE_READ(head, next);
	struct wait_queue_entry *entry;
	struct task_struct *sleeper;
	void *private;

	if (!first || first == head)
		return 0;
	entry = (void *)first - bpf_core_field_offset(struct wait_queue_entry, entry);
	private = BPF_CORE_READ(entry, private);
	if (!private)
		return WATCHES; /* epoll */
	if (p->task && private == (void *)p->task)
		return SLEEPS; /* connect(): the entry names its task */
	sleeper = BPF_CORE_READ((struct poll_wqueues *)private, polling_task);
	if (sleeper && p->task && sleeper == (void *)p->task)
		return SLEEPS;
	if (p->task)
		return WATCHES; /* another thread */
	/* Seeded: which thread of the owner? */
	if (BPF_CORE_READ((struct task_struct *)private, tgid) == p->key.tgid)
		sleeper = private;
	if (BPF_CORE_READ(sleeper, tgid) != p->key.tgid)
		return WATCHES;
	p->task = (__u64)sleeper;
	p->key.pid = BPF_CORE_READ(sleeper, pid);
	p->switches = BPF_CORE_READ(sleeper, nvcsw);
	return SLEEPS;
}

static __u32 retransmitted(const struct sock *sk)
{
	return BPF_CORE_READ((struct tcp_sock *)sk, total_retrans);
}

/* Some kernels hide tasks from BPF; a softirq on top of such a task is not seen. The socket itself counts how often its SYN was
 * retransmitted, and a task that waits until it is connected is still on its queue.
 */
static void look(const struct sock *sk, struct connect_pending *p, __u64 now)
{
	__u32 retries = p->unanswered ? 0 : retransmitted(sk);
	struct task_struct *t;

	p->retries = retries > p->retries ? retries : p->retries;
	p->looked_ns = now;
	p->how |= how_waited_for(sk, p);
	t = (void *)p->task;
	if (t && BPF_CORE_READ(t, pid) == p->key.pid)
		p->wakes = BPF_CORE_READ(t, nvcsw) - p->switches;
}

/* A client that connects to an address of its own network namespace does so from that address, or from loopback. */
static bool is_to_itself(const struct sock *sk)
{
	const struct sock_common *c = &sk->__sk_common;
	__u32 family = BPF_CORE_READ(c, skc_family);
	__u64 from[2] = {}, to[2] = {};

	address((__u8 *)from, family, &c->skc_rcv_saddr, &c->skc_v6_rcv_saddr);
	address((__u8 *)to, family, &c->skc_daddr, &c->skc_v6_daddr);
	return (from[0] == to[0] && from[1] == to[1]) || (family == AF_INET && ((__u8 *)to)[12] == 127);
}

static void ended(const struct sock *sk, bool done)
{
	__u64 at = (__u64)sk, ns;
	struct connect_pending *p = bpf_map_lookup_elem(&pending, &at);
	struct connect_sums *sums;

	if (!p)
		return;
	p->end_ns = bpf_ktime_get_ns();
	p->done = done;
	ns = elapsed(p->start_ns, p->end_ns);
	sums = bpf_map_lookup_elem(&peers, &p->key);
	if (retransmitted(sk) > p->retries)
		look(sk, p, p->end_ns);
	/* The kernel says why before it closes the socket (net/ipv4/tcp_input.c, tcp_reset). */
	if (!done && BPF_CORE_READ(sk, sk_err) == ECONNREFUSED) {
		if (sums && began) {
			__sync_fetch_and_add(&sums->refused, 1);
			sums->own = is_to_itself(sk);
		}
		note_attempt(&p->key, p->task, 1);
	} else if (done) {
		note_attempt(&p->key, p->task, 0);
	}
	if (sums) {
		if (done)
			__sync_fetch_and_add(&sums->done, 1);
		if (done && !p->retries && !p->seeded) {
			__sync_fetch_and_add(&sums->prompt, 1);
			__sync_fetch_and_add(&sums->prompt_ns, ns);
		}
		if (ns > sums->worst_ns)
			sums->worst_ns = ns;
	}
	send(p);
	if (done) {
		struct connect_pending f = *p;

		f.start_ns = f.looked_ns = p->end_ns;
		f.end_ns = f.retries = f.how = f.wakes = f.seeded = 0;
		f.unanswered = 1;
		bpf_map_update_elem(&fresh, &at, &f, BPF_ANY);
	}
	bpf_map_delete_elem(&pending, &at);
}

static bool answered(const struct sock *sk)
{
	return BPF_CORE_READ((struct tcp_sock *)sk, bytes_acked) > 1; /* more than the SYN */
}

/* The client's end is closed; data that were still unanswered were so until now. */
static void closed(const struct sock *sk)
{
	__u64 at = (__u64)sk;
	struct connect_pending *f = bpf_map_lookup_elem(&fresh, &at);

	if (!f)
		return;
	f->end_ns = answered(sk) ? f->looked_ns : bpf_ktime_get_ns();
	send(f);
	bpf_map_delete_elem(&fresh, &at);
}

static void listens(struct task_struct *t, const struct sock *sk, bool is_new)
{
	const struct sock_common *c = &sk->__sk_common;
	struct connect_door *d;
	struct door_key key = {};

	address(key.addr, BPF_CORE_READ(c, skc_family), &c->skc_rcv_saddr, &c->skc_v6_rcv_saddr);
	key.netns = BPF_CORE_READ(c, skc_net.net, ns.inum);
	key.port = BPF_CORE_READ(c, skc_num);
	note_listening((__u64)sk, &key, t, is_new);
	d = bpf_map_lookup_elem(&doors, &key);
	if (d)
		d->v6only = BPF_CORE_READ_BITFIELD_PROBED(c, skc_ipv6only);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(moved, const struct sock *sk, int from, int to)
{
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (from == TCP_CLOSE && to == TCP_SYN_SENT)
		opened(sk);
	else if (from == TCP_SYN_SENT && to != TCP_SYN_SENT)
		ended(sk, to == TCP_ESTABLISHED || to == TCP_SYN_RECV);
	else if (from == TCP_ESTABLISHED)
		closed(sk);
	else if (to == TCP_LISTEN)
		listens(current_task(), sk, true);
	else if (from == TCP_LISTEN && to == TCP_CLOSE) /* an accepted connection begins as a copy */
		note_closed((__u64)sk);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(sent_again, const struct sock *sk, const struct sk_buff *skb)
{
	__u64 at = (__u64)sk;
	struct connect_pending *p;
	__u64 now;

	if (sk->__sk_common.skc_state == TCP_SYN_SENT)
		p = bpf_map_lookup_elem(&pending, &at);
	else
		p = bpf_map_lookup_elem(&fresh, &at);
	if (!p || (p->unanswered && answered(sk)))
		return 0;
	now = bpf_ktime_get_ns();
	p->retries++;
	p->gap_ns = elapsed(p->looked_ns, now);
	if (p->unanswered && p->retries == 1 && p->gap_ns > FIRST_TIMEOUT_NS)
		p->start_ns = now - FIRST_TIMEOUT_NS; /* the client had nothing to say at first */
	look(sk, p, now);
	return 0;
}

static void found_connecting(struct task_struct *t, const struct sock *sk)
{
	struct connect_pending p = {}, *known;
	__u64 at = (__u64)sk;

	known = bpf_map_lookup_elem(&pending, &at);
	if (known)
		look(sk, known, bpf_ktime_get_ns());
	if (known || !seed)
		return;
	p.seeded = 1;
	p.start_ns = p.looked_ns = bpf_ktime_get_ns();
	p.key.pid = p.key.tgid = t->tgid;
	p.retries = BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_retransmits);
	bpf_probe_read_kernel(p.comm, sizeof(p.comm), t->comm);
	name_peer(&p.key, sk);
	p.how = how_waited_for(sk, &p);
	note((__u64)sk, &p);
}

/* A full buffer loses nothing: the iterator comes back to this file with the next read. */
static void found_listening(struct seq_file *seq, struct task_struct *t, const struct sock *sk)
{
	const struct sock_common *c = &sk->__sk_common;
	struct connect_listener l = {};

	l.sk = (__u64)sk;
	l.drops = (__u32)BPF_CORE_READ(sk, sk_drops.counter);
	l.family = BPF_CORE_READ(c, skc_family);
	address(l.addr, l.family, &c->skc_rcv_saddr, &c->skc_v6_rcv_saddr);
	l.netns = BPF_CORE_READ(c, skc_net.net, ns.inum);
	l.port = BPF_CORE_READ(c, skc_num);
	l.queue = BPF_CORE_READ(sk, sk_ack_backlog);
	l.limit = BPF_CORE_READ(sk, sk_max_ack_backlog);
	l.tgid = t->tgid;
	bpf_probe_read_kernel(l.comm, sizeof(l.comm), t->comm);
	bpf_seq_write(seq, &l, sizeof(l));
}

SEC("iter/task_file")
int walk(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;
	__u8 state;

	if (!t || !file)
		return 0;
	socket = socket_of(file);
	if (!socket)
		return 0;
	sk = BPF_CORE_READ(socket, sk);
	if (!sk || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (state == TCP_LISTEN) {
		if (seed)
			listens(t, sk, false);
		found_listening(ctx->meta->seq, t, sk);
	}
	if (state == TCP_SYN_SENT)
		found_connecting(t, sk);
	return 0;
}
