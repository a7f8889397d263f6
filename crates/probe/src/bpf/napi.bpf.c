// SPDX-License-Identifier: GPL-2.0
/* How many packets does a run of the receive softirq take, and which limit stops it? Which sockets have full receive queues?
 *
 * Sums per CPU, of polls, not of packets. The irq object notes when a run began. Sockets are read by a walk over the files of all tasks, a
 * few times in a window: that names their owners, in all network namespaces.
 */
#include "soft.bpf.h"
#include "napi_split.bpf.h"

/* Set by napi.rs: net.core.netdev_budget, and netdev_budget_usecs in ticks. */
const volatile __u64 budget = 300;
const volatile __u64 tick_limit = 2;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct napi_cpu);
} cpus SEC(".maps");

/* Read by napi/sockets.rs, one after another from the iterator. */
struct napi_socket {
	__u64 sk;
	__u8 local[16];
	__u8 peer[16];
	__u32 netns;
	__u32 tgid;
	__u32 local_port;
	__u32 peer_port;
	__u32 tcp;
	__u32 used;
	__u32 room;
	__u32 window;
	__u32 drops;
	__u32 held;
	__u32 queued; /* packets in the queue of its device; 0: none of this socket */
	__u32 unused;
	char comm[16];
	char device[16];
	char qdisc[16]; /* kind of queue */
};

/* For the skeleton: the iterator's record. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct napi_socket);
} shape SEC(".maps");

SEC("tp_btf/napi_poll")
int BPF_PROG(polled, struct napi_struct *napi, int work, int weight)
{
	__u32 zero = 0;
	struct irq_soft *now = bpf_map_lookup_elem(&soft, &zero);
	struct napi_cpu *cpu = bpf_map_lookup_elem(&cpus, &zero);
	__u64 run;

	if (!now || !cpu)
		return 0;
	run = now->entered[NET_RX];
	if (work < 0)
		work = 0;
	if (!run) {
		cpu->other_polls++;
		cpu->other_packets += work;
		return 0;
	}
	if (is_backlog(napi))
		cpu->backlog_packets += work;
	if (napi_polled(cpu, run, work, budget, bpf_jiffies64() - now->net_rx_tick, tick_limit))
		napi_stopped(cpu, elapsed(run, bpf_ktime_get_ns()));
	return 0;
}

static __always_inline void address(__u8 *to, __u32 family, const __be32 *v4, const struct in6_addr *v6)
{
	if (family == AF_INET6) {
		bpf_probe_read_kernel(to, 16, v6);
		return;
	}
	to[10] = to[11] = 0xff;
	bpf_probe_read_kernel(to + 12, 4, v4);
}

static void tell(struct seq_file *seq, struct task_struct *t, const struct sock *sk, struct napi_socket *s)
{
	const struct sock_common *c = &sk->__sk_common;
	__u32 family = BPF_CORE_READ(c, skc_family);

	s->sk = (__u64)sk;
	address(s->local, family, &c->skc_rcv_saddr, &c->skc_v6_rcv_saddr);
	address(s->peer, family, &c->skc_daddr, &c->skc_v6_daddr);
	s->netns = BPF_CORE_READ(c, skc_net.net, ns.inum);
	s->local_port = BPF_CORE_READ(c, skc_num);
	s->peer_port = __builtin_bswap16(BPF_CORE_READ(c, skc_dport));
	s->tgid = t->tgid;
	bpf_probe_read_kernel(s->comm, sizeof(s->comm), t->comm);
	bpf_seq_write(seq, s, sizeof(*s));
}

/* A queue with a rate or a delay of its own (net/sched/sch_tbf.c, sch_htb.c, sch_hfsc.c, sch_netem.c). All other queues fill because
 * senders send much.
 */
static bool is_shaper(const char *id)
{
	return !__builtin_memcmp(id, "tbf", 4) || !__builtin_memcmp(id, "htb", 4) || !__builtin_memcmp(id, "hfsc", 5) ||
	       !__builtin_memcmp(id, "netem", 6);
}

static void note_queue(struct napi_socket *s, const struct sock *sk)
{
	struct net_device *dev = device_that_queues(sk);

	if (!dev)
		return;
	bpf_probe_read_kernel_str(s->qdisc, sizeof(s->qdisc), BPF_CORE_READ(dev, qdisc, ops, id));
	if (!is_shaper(s->qdisc))
		return;
	s->queued = BPF_CORE_READ(dev, qdisc, q.qlen);
	bpf_probe_read_kernel_str(s->device, sizeof(s->device), dev->name);
}

/* Sockets with something to report: a queue that is half full, packets dropped, a sender held up, by its peer or by the queue of its own
 * device.
 */
SEC("iter/task_file")
int queues(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *file = ctx->file;
	struct napi_socket s = {};
	struct socket *socket;
	struct sock *sk;
	__u32 protocol;
	__u8 state;

	if (!t || !file)
		return 0;
	socket = socket_of(file);
	if (!socket)
		return 0;
	sk = BPF_CORE_READ(socket, sk);
	if (!sk)
		return 0;
	protocol = BPF_CORE_READ(sk, sk_protocol);
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return 0;
	state = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (state != AF_INET && state != AF_INET6)
		return 0;
	s.tcp = protocol == IPPROTO_TCP;
	if (s.tcp) {
		state = BPF_CORE_READ(sk, __sk_common.skc_state);
		if (state == TCP_LISTEN || state == TCP_SYN_SENT || state == TCP_CLOSE)
			return 0;
		s.window = window_open(sk);
		s.held = held_ticks(sk, bpf_jiffies64());
		note_queue(&s, sk);
	}
	s.used = queue_used(sk);
	s.room = queue_room(sk);
	s.drops = packets_dropped(sk);
	if (s.drops || s.held || s.queued || (s.used && s.used >= s.room / 2) || (s.used && s.tcp && !s.window))
		tell(ctx->meta->seq, t, sk, &s);
	return 0;
}
