/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* When a watched packet has its turn, and when a stall is told. No BPF helper is called here: the tests compile it for the host, too. */
#pragma once

/* One packet in the queue of a CPU. */
struct stall_watch {
	unsigned long long mark; /* it came to the queue then; 0: none is watched */
	unsigned long long before; /* packets whose turn is before its turn */
	unsigned long long drained; /* the packets that a stall kept back have been handled then */
};

/* The first poll of a run may have no packet, and a later one of the same run may: the queue for what was sent of virtio_net
 * (virtnet_poll_tx) has none, and stands before the backlog. Returns whether the stall is told.
 */
static inline int stall_is_told(unsigned int *pending, int work, int in_run)
{
	if (!*pending || work <= 0 || !in_run)
		return 0;
	*pending = 0;
	return 1;
}

/* The turn of the watched packet came within this poll, which took `work`, as evenly as it took each. Where packets were removed because their
 * device was (flush_backlog), the queue is empty before its turn.
 */
static inline unsigned long long its_turn(const struct stall_watch *w, unsigned long long began, unsigned long long now,
					  unsigned long long work)
{
	unsigned long long took = now > began ? now - began : 0;

	return work >= w->before && work ? began + took * w->before / work : now;
}

/* A poll, which began at `began`, has handled packets of the queue and left others there. Returns when the watched packet had its turn; 0: it
 * still waits, or none is watched.
 */
static inline unsigned long long watch_polled(struct stall_watch *w, unsigned long long began, unsigned long long now,
					      unsigned long long handled, unsigned long long left)
{
	if (!w->mark)
		return 0;
	if (left && handled < w->before) {
		w->before -= handled;
		return 0;
	}
	return its_turn(w, began, now, handled);
}

/* The packet that comes next is watched, unless it waits behind those that a stall kept back. */
static inline int watch_next(struct stall_watch *w, unsigned long long now, unsigned long long left)
{
	if (!left || now < w->drained)
		return 0;
	w->mark = now;
	w->before = left;
	return 1;
}

/* Packets that came during a stall of `ns` now wait behind each other: that belongs to the stall. A CPU that is busy for less than half of its
 * time has handled them after as long again.
 */
static inline void watch_stalled(struct stall_watch *w, unsigned long long now, unsigned long long ns)
{
	w->mark = 0;
	w->drained = now + ns;
}

/* Waits of so long are one row: a queue may stand all the time. */
#define ROW_NS 1000000000ULL

/* A row whose first wait began at `since` ends before the packet that came at `mark`: a row that were open until the next wait, minutes later,
 * would have the time of none of its waits.
 */
static inline int row_is_over(unsigned long long since, unsigned long long mark)
{
	return mark > since && mark - since >= ROW_NS;
}
