/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How long a time without interrupts was, by the interrupts at its end. No BPF helper is called here: the tests compile it for the host, too. */
#pragma once

/* A CPU that runs has a tick each 10 ms at least (100 Hz), at which the stolen time is read: what was read longer before a gap may have been
 * taken before it.
 */
#define OLD_READ 10000000ULL

/* The last gap that a CPU reported: its end, and how long it was. */
struct irqlat_told {
	unsigned long long at;
	unsigned long long ns;
	unsigned long long woke; /* when the CPU last left an idle state */
};

/* All interrupts that fell due in a gap come at its end, and the first one reports it. Calls of other CPUs come before the timer (their vectors
 * are higher) and may have been queued near the end: the tick that comes with them and was due long before, at `begin`, tells when the gap
 * began. Other timers do not: a thread that is late sets its timer for a time in the past, and when it did so is not known; the kernel sets
 * the tick for the future only (hrtimer_forward, tick_nohz_restart; v5.10 to v6.18). A tick that was due in an idle state is no part of what
 * ran since.
 */
static inline int gap_is_longer(const struct irqlat_told *told, int is_tick, unsigned long long begin, unsigned long long now,
				unsigned long long least)
{
	return is_tick && begin >= told->woke && now - told->at < least && begin + least <= told->at - told->ns;
}

/* The hypervisor's part of a gap that two interrupts report, one after the other; -1: not known. */
static inline long long stolen_of_both(long long first, long long second)
{
	return first < 0 || second < 0 ? -1 : first + second;
}

/* ... of a gap since `begin`: what was taken since it was read before, at `read`. */
static inline long long stolen_since(long long stolen, unsigned long long read, unsigned long long begin)
{
	return read + OLD_READ < begin ? -1 : stolen;
}
