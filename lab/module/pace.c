// SPDX-License-Identifier: GPL-2.0
/*
 * pace: a CPU that delivers less: a share of the time is burned in a timer's interrupt, always or while the
 * frequency of the CPU's policy is the lowest it can have (emulated CPUs do not slow down with their P-state).
 */
#include <linux/cpufreq.h>
#include <linux/hrtimer.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "folio.h"

/* If the time between two turns is longer than this and twice the pause, the emulated CPU was not on its host's CPU all the time. */
#define RAN_MAX_NS (2 * NSEC_PER_MSEC)
/* Between two reads of the clock with interrupts off: a longer gap is caused by the host, not by this loop. */
#define STEP_MAX_NS (20 * NSEC_PER_USEC)

struct pace {
	struct hrtimer timer;
	unsigned int khz, lowest; /* 0: no policy */
	u64 last; /* end of the last turn */
	struct tally tally;
};

static DEFINE_PER_CPU(struct pace, paces);
static struct cpumask pace_cpus;
static u64 pace_share, pace_every_us;
static bool pace_on, pace_always;
static struct tracepoint *speed_point;

/* For each CPU of the policy, from both ways to set a frequency (cpufreq_notify_transition(), fast switch). */
static void note_speed(void *data, unsigned int khz, unsigned int cpu)
{
	WRITE_ONCE(per_cpu(paces, cpu).khz, khz);
}

/* Burns the CPU's own time: time that the host takes away meanwhile does not count. */
static noinline void fold_rows(u64 ns)
{
	u64 last = ktime_get_mono_fast_ns();
	u64 spent = 0;

	while (spent < ns) {
		u64 now = ktime_get_mono_fast_ns();

		spent += min_t(u64, now - last, STEP_MAX_NS);
		last = now;
		cpu_relax();
	}
}

/* The share is a share of the elapsed time, not of the period: under TCG a timer fires late when the host is busy. */
static enum hrtimer_restart fold_page(struct hrtimer *timer)
{
	struct pace *pace = container_of(timer, struct pace, timer);
	unsigned int khz = READ_ONCE(pace->khz);
	u64 pause = div_u64(pace_every_us * NSEC_PER_USEC * (100 - pace_share), 100);
	u64 began = ktime_get_mono_fast_ns();
	u64 ran = min_t(u64, began - pace->last, max_t(u64, 2 * pause, RAN_MAX_NS));

	if (pace_always || (khz && khz <= pace->lowest)) {
		fold_rows(div_u64(ran * pace_share, 100 - pace_share));
		tally_add(&pace->tally, began);
	}
	pace->last = ktime_get_mono_fast_ns();
	hrtimer_set_expires(timer, ktime_add_ns(ktime_get(), pause));
	return HRTIMER_RESTART;
}

static void start_folds(void *data)
{
	struct pace *pace = this_cpu_ptr(&paces);

	pace->last = ktime_get_mono_fast_ns();
	hrtimer_start(&pace->timer, ns_to_ktime(pace_every_us * NSEC_PER_USEC), HRTIMER_MODE_REL_PINNED_HARD);
}

static void pace_learn(int cpu)
{
	struct pace *pace = per_cpu_ptr(&paces, cpu);
	struct cpufreq_policy *policy = cpufreq_cpu_get(cpu);

	pace->khz = policy ? policy->cur : 0;
	pace->lowest = policy ? policy->cpuinfo.min_freq : 0;
	if (policy)
		cpufreq_cpu_put(policy);
	hrtimer_init(&pace->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	pace->timer.function = fold_page;
	tally_clear(&pace->tally);
}

static void paces_off(void)
{
	int cpu;

	if (!pace_on)
		return;
	tracepoint_probe_unregister(speed_point, note_speed, NULL);
	tracepoint_synchronize_unregister();
	for_each_cpu(cpu, &pace_cpus)
		hrtimer_cancel(&per_cpu_ptr(&paces, cpu)->timer);
	pace_on = false;
}

static int paces_on(void)
{
	int cpu, err;

	speed_point = folio_tracepoint("cpu_frequency");
	if (!speed_point)
		return -ENOENT;
	err = tracepoint_probe_register(speed_point, note_speed, NULL);
	if (err)
		return err;
	for_each_cpu(cpu, &pace_cpus)
		pace_learn(cpu);
	pace_on = true;
	for_each_cpu(cpu, &pace_cpus)
		smp_call_function_single(cpu, start_folds, NULL, 1);
	return 0;
}

/* pace off | pace cpus=LIST share=PERCENT [every=US] [when=lowest|always] */
static int paces_order(const struct words *words)
{
	const char *when = words_option(words, "when") ?: "lowest";
	static struct cpumask cpus;
	u64 share, every_us = 500;
	int err;

	if (words_has(words, "off")) {
		paces_off();
		return 0;
	}
	if (strcmp(when, "lowest") && strcmp(when, "always"))
		return -EINVAL;
	err = words_cpus(words, "cpus", &cpus) ?: words_number(words, "share", 1, 90, &share);
	if (!err && words_option(words, "every"))
		err = words_number(words, "every", 200, 100 * USEC_PER_MSEC, &every_us);
	if (err)
		return err;
	paces_off();
	cpumask_copy(&pace_cpus, &cpus);
	pace_share = share;
	pace_every_us = every_us;
	pace_always = !strcmp(when, "always");
	return paces_on();
}

static void paces_clear(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		tally_clear(&per_cpu_ptr(&paces, cpu)->tally);
}

static void paces_show(struct seq_file *seq)
{
	int cpu;

	for_each_cpu(cpu, &pace_cpus) {
		const struct pace *pace = per_cpu_ptr(&paces, cpu);

		if (!pace_on)
			continue;
		seq_printf(seq, "pace cpu=%d share=%llu every=%llu when=%s khz=%u lowest=%u", cpu, pace_share,
			   pace_every_us, pace_always ? "always" : "lowest", pace->khz, pace->lowest);
		tally_show(seq, &pace->tally);
	}
}

const struct part paces_part = {
	.verb = "pace",
	.order = paces_order,
	.off = paces_off,
	.clear = paces_clear,
	.show = paces_show,
};
