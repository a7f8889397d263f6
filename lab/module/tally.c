// SPDX-License-Identifier: GPL-2.0
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "folio.h"

void tally_add(struct tally *tally, u64 began)
{
	s64 took = ktime_get_mono_fast_ns() - began;
	s64 seen = atomic64_read(&tally->longest);

	atomic64_inc(&tally->count);
	atomic64_add(took, &tally->total);
	while (took > seen && !atomic64_try_cmpxchg(&tally->longest, &seen, took))
		;
}

void tally_clear(struct tally *tally)
{
	atomic64_set(&tally->count, 0);
	atomic64_set(&tally->total, 0);
	atomic64_set(&tally->longest, 0);
}

void tally_show(struct seq_file *seq, const struct tally *tally)
{
	seq_printf(seq, " count=%lld total_ns=%lld max_ns=%lld\n", atomic64_read(&tally->count),
		   atomic64_read(&tally->total), atomic64_read(&tally->longest));
}

/* The fast clock may be read with interrupts off and needs no tick to advance (NMI safe). */
noinline void count_rows(u64 us)
{
	u64 until = ktime_get_mono_fast_ns() + us * NSEC_PER_USEC;

	while (ktime_get_mono_fast_ns() < until)
		cpu_relax();
}

/* In pieces of 1 ms where rescheduling is allowed, so that a long stay is neither a lockup nor a stall. */
static noinline void read_rows(u64 us)
{
	u64 until = ktime_get_mono_fast_ns() + us * NSEC_PER_USEC;
	u64 now;

	while ((now = ktime_get_mono_fast_ns()) < until) {
		count_rows(min_t(u64, div_u64(until - now, NSEC_PER_USEC) + 1, USEC_PER_MSEC));
		cond_resched();
	}
}

void spend(enum way way, u64 us)
{
	if (!us)
		return;
	if (way == WAY_SPIN)
		read_rows(us);
	else
		usleep_range(us, us);
}

int spend_word(const char *word, enum way *way)
{
	*way = WAY_SLEEP;
	if (!word || !strcmp(word, "sleep"))
		return 0;
	*way = WAY_SPIN;
	return strcmp(word, "spin") ? -EINVAL : 0;
}

const char *spend_name(enum way way)
{
	return way == WAY_SPIN ? "spin" : "sleep";
}

/* A kthread's pause until its next round; kthread_stop() ends it at once. */
void rest_until(u64 began, u64 every_us)
{
	s64 left = began + every_us * NSEC_PER_USEC - ktime_get_mono_fast_ns();
	ktime_t pause = ns_to_ktime(max_t(s64, left, NSEC_PER_USEC));

	set_current_state(TASK_INTERRUPTIBLE);
	if (!kthread_should_stop())
		schedule_hrtimeout(&pause, HRTIMER_MODE_REL);
	__set_current_state(TASK_RUNNING);
}
