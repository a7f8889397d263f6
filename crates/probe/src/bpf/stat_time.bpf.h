/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which samples of a thread are of one read, and how long that read is. No BPF helper is called here: the tests compile it for the host, too.
 *
 * The time in which the reader does not run is no part of a read: it keeps no CPU from others.
 */
#pragma once

/* A read that a thread is in, or was in at its last sample. */
struct stat_reader {
	unsigned long long born; /* its thread: numbers are used again */
	unsigned long long count; /* of read calls, before it */
	unsigned long long switches; /* of the thread: from one to the next it has a CPU */
	unsigned long long last; /* its last sample */
	unsigned long long ns; /* so far: a first sample stands for the time between two of them */
	unsigned long long least_ns; /* ... without doubt */
	unsigned long long late_ns; /* the sampler's timer was late */
};

/* `now` is a sample in a read, `before` the last one of a thread with this number, or 0; `late`: how long after its time the timer came.
 * Returns whether both are of one read.
 */
static inline int stat_goes_on(struct stat_reader *now, const struct stat_reader *before, unsigned long long period,
			       unsigned long long late)
{
	int is_same = before && before->born == now->born && before->count == now->count;
	unsigned long long passed = is_same && now->last > before->last ? now->last - before->last : 0;

	now->ns = is_same ? before->ns : 0;
	now->least_ns = is_same ? before->least_ns : 0;
	now->late_ns = (is_same ? before->late_ns : 0) + late;
	if (is_same && before->switches == now->switches) {
		now->ns += passed;
		now->least_ns += passed;
	} else {
		/* While interrupts are off, no other task can take the CPU: all of that time is its. */
		now->ns += period + late;
		now->least_ns += late;
	}
	return is_same;
}
