/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How long do packets wait behind other packets in the queue of their CPU?
 *
 * That is measured, without work for each packet: a packet that comes to a queue of 700 packets has its turn when 700 have been handled, and
 * each poll says how many it has handled (net/core/dev.c, process_backlog: first in, first out; v5.10 to v6.18). When its turn has come, the
 * next packet is watched: in a queue that stands, their waits follow each other without a gap.
 */
#pragma once

#include "stall.bpf.h"

static __always_inline void has_waited(void *ctx, struct stall_cpu *c, __u64 turn, __u64 now)
{
	struct stall *queue = &c->queue;
	__u64 ns = elapsed(c->watch.mark, turn);

	/* The queue of a CPU that went offline is taken to another (dev_cpu_dead): the mark is old when the CPU comes back. */
	if (ns < stall_ns || ns >= LATEST || !counting)
		return;
	if (!queue->waits) {
		queue->kind = STALL_QUEUED;
		queue->cpu = bpf_get_smp_processor_id();
		queue->since = c->watch.mark;
		queue->ns = queue->worst = 0;
	}
	queue->waits++;
	queue->at = turn;
	queue->ns += ns;
	worsen(&queue->worst, ns);
	note_seen(ctx, &queue->end, now);
}

/* A row is sent when the next packet comes, long or short as that one will wait: ticks of its wait are not of this row. */
static __always_inline void end_row(struct stall *queue, __u64 mark)
{
	if (!queue->waits) {
		queue->rows = 0;
	} else if (row_is_over(queue->since, mark)) {
		send(queue);
		queue->waits = 0;
	}
}

/* A poll of the CPU's queue has ended. What is polled by threads (backlog_napi/N: v6.10, dad6b9770263, with PREEMPT_RT or on demand) is not
 * watched: a thread may wait for the CPU.
 */
static __always_inline void watch_queue(void *ctx, struct stall_cpu *c, struct napi_struct *napi, int work, __u64 now)
{
	__u64 left = packets_queued(napi);
	__u64 turn = watch_polled(&c->watch, c->polls, now, work > 0 ? work : 0, left);

	if (c->watch.mark && !turn)
		return;
	if (turn)
		has_waited(ctx, c, turn, now);
	c->watch.mark = 0;
	if (left && counting && serves_softirq() && watch_next(&c->watch, now, left))
		end_row(&c->queue, now);
}
