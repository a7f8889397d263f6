// SPDX-License-Identifier: GPL-2.0
/*
 * idle: waking from a deep idle state takes long. A real CPU takes the time between the wake-up and the first
 * instruction of the interrupt's handler. HLT leaves idle with interrupts on, so that the handler runs before the
 * idle loop goes on (acpi_safe_halt(): STI; HLT): the time is spent at the first event of the first interrupt that
 * ends the state, before its work is done, and at the end of the state where none was seen.
 */
#include <linux/interrupt.h>
#include <linux/percpu.h>
#include <linux/tracepoint.h>
#include <trace/events/power.h>

#include "folio.h"

/* Runs before other probes of the same tracepoint: they must see the late moment. */
#define FIRST_PRIO (TRACEPOINT_DEFAULT_PRIO + 100)

struct rest {
	bool due;
	struct tally tally;
};

static DEFINE_PER_CPU(struct rest, rests);
static struct cpumask rest_cpus;
static u64 rest_from, rest_us;
static bool rest_on;

static noinline void mark_page(void)
{
	struct rest *rest = this_cpu_ptr(&rests);
	unsigned long flags;
	u64 began;

	local_irq_save(flags);
	if (rest->due) {
		rest->due = false;
		began = ktime_get_mono_fast_ns();
		count_rows(rest_us);
		tally_add(&rest->tally, began);
	}
	local_irq_restore(flags);
}

static void mark_state(void *data, unsigned int state, unsigned int cpu)
{
	if (state == PWR_EVENT_EXIT)
		mark_page();
	else
		this_cpu_write(rests.due, state >= rest_from && cpumask_test_cpu(cpu, &rest_cpus));
}

static void mark_vector(void *data, int vector)
{
	if (this_cpu_read(rests.due))
		mark_page();
}

static void mark_line(void *data, int irq, struct irqaction *action)
{
	if (this_cpu_read(rests.due))
		mark_page();
}

struct hook {
	const char *name;
	void *probe;
	struct tracepoint *point;
	bool on;
};

static struct hook hooks[] = {
	{ "cpu_idle", mark_state },
	{ "call_function_single_entry", mark_vector },
	{ "call_function_entry", mark_vector },
	{ "reschedule_entry", mark_vector },
	{ "irq_work_entry", mark_vector },
	{ "local_timer_entry", mark_vector },
	{ "irq_handler_entry", mark_line },
};

static void rests_off(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (hooks[i].on)
			tracepoint_probe_unregister(hooks[i].point, hooks[i].probe, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		hooks[i].on = false;
	tracepoint_synchronize_unregister();
	rest_on = false;
}

static int rests_on(void)
{
	size_t i;
	int err;

	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		hooks[i].point = folio_tracepoint(hooks[i].name);
		err = !hooks[i].point ? -ENOENT :
		      tracepoint_probe_register_prio(hooks[i].point, hooks[i].probe, NULL, FIRST_PRIO);
		if (err) {
			rests_off();
			return err;
		}
		hooks[i].on = true;
	}
	rest_on = true;
	return 0;
}

static void rests_clear(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		tally_clear(&per_cpu_ptr(&rests, cpu)->tally);
}

/* idle off | idle cpus=LIST from=STATE for=US */
static int rests_order(const struct words *words)
{
	static struct cpumask cpus;
	u64 from, us;
	int err;

	if (words_has(words, "off")) {
		rests_off();
		return 0;
	}
	err = words_cpus(words, "cpus", &cpus) ?: words_number(words, "from", 0, 64, &from) ?:
	      words_number(words, "for", 1, IRQS_MAX_US, &us);
	if (err)
		return err;
	rests_off();
	rest_from = from;
	rest_us = us;
	cpumask_copy(&rest_cpus, &cpus);
	rests_clear();
	return rests_on();
}

static void rests_show(struct seq_file *seq)
{
	int cpu;

	for_each_cpu(cpu, &rest_cpus) {
		if (!rest_on)
			continue;
		seq_printf(seq, "idle cpu=%d from=%llu for=%llu", cpu, rest_from, rest_us);
		tally_show(seq, &per_cpu_ptr(&rests, cpu)->tally);
	}
}

const struct part rests_part = {
	.verb = "idle",
	.order = rests_order,
	.off = rests_off,
	.clear = rests_clear,
	.show = rests_show,
};
