/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How long do packets wait behind other packets in the queue of their CPU?
 *
 * That is measured, without work for each packet: a packet that comes to a queue of 700 packets has its turn when 700 have been handled, and
 * each poll says how many it has handled (net/core/dev.c, process_backlog: first in, first out; v5.10 to v6.18). When its turn has come, the
 * next packet is watched: in a queue that stands, their waits follow each other without a gap.
 */
#pragma once

#include "stall.bpf.h"

/* Waits of so long are one row: a queue may stand all the time. */
#define ROW_NS 1000000000ULL

/* The turn of the watched packet came within this poll, which took `work`, as evenly as it took each. Where packets were removed because their
 * device was (flush_backlog), the queue is empty before its turn.
 */
static __always_inline __u64 its_turn(struct stall_cpu *c, __u64 work, __u64 now)
{
	return work >= c->before && work ? c->polls + elapsed(c->polls, now) * c->before / work : now;
}

static __always_inline void has_waited(void *ctx, struct stall_cpu *c, __u64 turn, __u64 now)
{
	struct stall *queue = &c->queue;
	__u64 ns = elapsed(c->mark, turn);

	/* The queue of a CPU that went offline is taken to another (dev_cpu_dead): the mark is old when the CPU comes back. */
	if (ns >= stall_ns && ns < LATEST && counting) {
		if (!queue->waits) {
			queue->kind = STALL_QUEUED;
			queue->cpu = bpf_get_smp_processor_id();
			queue->since = c->mark;
			queue->ns = queue->worst = 0;
		}
		queue->waits++;
		queue->at = turn;
		queue->ns += ns;
		worsen(&queue->worst, ns);
	}
	if (!queue->waits) {
		queue->rows = 0;
	} else if (elapsed(queue->since, now) >= ROW_NS && counting) {
		note_seen(ctx, &queue->end, now);
		send(queue);
		queue->waits = 0;
	}
}

/* A poll of the CPU's queue has ended. What is polled by threads (backlog_napi/N: v6.10, dad6b9770263, with PREEMPT_RT or on demand) is not
 * watched: a thread may wait for the CPU.
 */
static __always_inline void watch_queue(void *ctx, struct stall_cpu *c, struct napi_struct *napi, int work, __u64 now)
{
	__u64 queued = packets_queued(napi), handled = work > 0 ? work : 0;

	if (c->mark && queued && handled < c->before) {
		c->before -= handled;
		return;
	}
	if (c->mark)
		has_waited(ctx, c, its_turn(c, handled, now), now);
	c->mark = 0;
	if (queued && counting && now >= c->drained && serves_softirq()) {
		c->mark = now;
		c->before = queued;
	}
}
