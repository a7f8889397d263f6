// SPDX-License-Identifier: GPL-2.0
/* Which packets waited for their CPU, and what ran there meanwhile?
 *
 * Four things keep packets from a CPU. Interrupts are off: the softirq is raised late, right behind a gap that the IRQ latency object has just
 * reported, with the stack at its end. The receive softirq is raised and not entered: bottom halves are off, other softirqs run, or ksoftirqd
 * waits for the CPU. One poll of the softirq takes long. Or packets wait behind each other, by many polls of which none is long.
 *
 * Nothing here runs for each packet: a raise, an entry and a poll note a time. Stacks are taken by the timers of the CPU itself, as soon as
 * packets have waited for a millisecond. What was no wait of a packet is not told: a run that handles none.
 */
#include "stall_queue.bpf.h"

/* include/linux/interrupt.h: the order has not changed since v2.6.31. */
#define NET_RX 3
/* Packets are handled so soon behind a gap that delayed their interrupt. */
#define JUST_BEHIND 1000000ULL
/* A stall is watched from here on. */
#define WATCHED_FROM 1000000ULL

/* The gap at whose end the CPU is now, or whose end it has just passed. */
static __always_inline bool is_just_behind(struct irqlat_cpu *here, __u64 now)
{
	return here && elapsed(here->reported, now) < JUST_BEHIND;
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(raised, unsigned int vector)
{
	struct stall_cpu *c;
	__u32 count;

	if (vector != NET_RX)
		return 0;
	c = stall_here();
	/* A softirq that was raised before all hooks were attached may have been entered unseen. */
	if (!c || c->raised || !counting)
		return 0;
	c->raised = bpf_ktime_get_ns();
	c->ticks = bpf_jiffies64();
	c->by_irq = 1;
	/* To read the count takes as long as all else here: few raises need it. */
	if (!c->stall.rows && !c->pending && !is_just_behind(irqlat_cpu_at(bpf_get_smp_processor_id()), c->raised))
		return 0;
	count = preempt_count();
	c->by_irq = !preempt_count_at || count & IN_IRQ || is_irq_thread();
	/* Within a run, a long poll's ticks stay, and what waits for a packet of the run. */
	if (!(count & SERVES_SOFTIRQ)) {
		c->stall.rows = 0;
		c->pending &= !preempt_count_at;
	}
	return 0;
}

/* Whether a tick has passed since the softirq was raised: a stall is longer. The verifier makes a load of this helper; the clock is a call. If
 * the CPU that counts the ticks takes none meanwhile, only its own stall is seen.
 */
static __always_inline bool has_ticked(struct stall_cpu *c)
{
	return !longer_than_a_tick || bpf_jiffies64() != c->ticks;
}

/* The gap behind whose end an interrupt raised the softirq, unless it was looked at before: when the gap began. What a task sends to itself
 * behind a gap of its own has not waited. The gap may be reported after the raise: interrupts that were held up come by their priority, and a
 * call of another CPU before the timer.
 */
static __always_inline __u64 gap_before(struct stall_cpu *c, struct irqlat_cpu *here)
{
	if (!here || !here->reported || here->reported == c->gap)
		return 0;
	c->gap = here->reported;
	return c->by_irq && is_just_behind(here, c->raised) ? here->reported - here->gap_ns : 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(began, unsigned int vector)
{
	struct irqlat_cpu *here;
	struct stall_cpu *c;
	__u64 now, since, gap;
	bool late;

	if (vector != NET_RX)
		return 0;
	c = stall_here();
	if (!c)
		return 0;
	if (polls_seen)
		c->polls = bpf_ktime_get_ns();
	c->pending = 0;
	since = c->raised;
	if (!since)
		return 0;
	here = irqlat_cpu_at(bpf_get_smp_processor_id());
	gap = gap_before(c, here);
	c->raised = 0;
	/* What the end of the window cuts off is told by stall.rs. */
	if (!counting || (!gap && !has_ticked(c))) {
		c->stall.rows = 0;
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (gap && gap < since)
		since = gap;
	if (elapsed(since, now) < stall_ns) {
		c->stall.rows = 0;
		return 0;
	}
	/* While interrupts were off, or the hypervisor did not run the CPU, a softirq could not begin, whoever had raised it. */
	late = gap && here && here->gap_ns * 2 >= elapsed(since, now);
	note(ctx, c, late ? STALL_IRQS_OFF : STALL_DEFERRED, since, now);
	c->pending = 1;
	if (!polls_seen)
		tell(c, now);
	return 0;
}

/* A poll has ended. Threads (threaded NAPI) and busy polling poll outside the softirq. Packets that were announced during a long poll waited
 * for its end: that is one stall.
 */
SEC("tp_btf/napi_poll")
int BPF_PROG(polled, struct napi_struct *napi, int work, int weight)
{
	struct stall_cpu *c = stall_here();
	struct irqlat_cpu *here;
	__u64 now;

	if (!c || !c->polls)
		return 0;
	now = bpf_ktime_get_ns();
	if (c->pending && stall_is_told(&c->pending, work, !preempt_count_at || serves_softirq()))
		tell(c, now);
	if (elapsed(c->polls, now) >= stall_ns && work > 0 && counting && serves_softirq()) {
		note(ctx, c, STALL_POLL, c->polls, now);
		tell(c, now);
		if (c->raised)
			c->raised = now;
		/* A gap within the poll is a part of it. */
		here = irqlat_cpu_at(bpf_get_smp_processor_id());
		if (here)
			c->gap = here->reported;
	}
	if (is_backlog(napi))
		watch_queue(ctx, c, napi, work, now);
	c->polls = now;
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(ticked)
{
	struct stall_cpu *c = stall_here();
	__u64 now, since;

	if (!c || !(since = c->raised ?: c->polls))
		return 0;
	now = bpf_ktime_get_ns();
	if (c->watch.mark && polls_seen && elapsed(c->watch.mark, now) >= stall_ns)
		look(ctx, &c->queue, now);
	if (elapsed(since, now) < WATCHED_FROM)
		return 0;
	if (c->pending && preempt_count_at && !serves_softirq())
		c->pending = 0;
	/* The run has ended, and this is the first timer since. */
	if (!c->raised && !serves_softirq())
		c->polls = 0;
	else if (!c->pending)
		look(ctx, &c->stall, now);
	return 0;
}
