// SPDX-License-Identifier: GPL-2.0
/* irqs: interrupts off on one CPU, by a kthread bound to it or by a timer on it; or only bottom halves, by a kthread. */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/percpu.h>
#include <linux/smp.h>

#include "folio.h"

struct turn {
	bool on, halves;
	struct task_struct *task; /* NULL: the timer does it */
	struct hrtimer timer;
	u64 for_us, every_us;
	char by[NAME_MAX_LEN];
	struct tally tally;
};

static DEFINE_PER_CPU(struct turn, turns);

static noinline void sort_rows(struct turn *turn)
{
	u64 began;

	local_irq_disable();
	began = ktime_get_mono_fast_ns();
	count_rows(turn->for_us);
	tally_add(&turn->tally, began);
	local_irq_enable();
}

/* Interrupts come, and the softirqs that they raise wait for the end. */
static noinline void sort_cards(struct turn *turn)
{
	u64 began;

	local_bh_disable();
	began = ktime_get_mono_fast_ns();
	count_rows(turn->for_us);
	tally_add(&turn->tally, began);
	local_bh_enable();
}

static int sort_rounds(void *data)
{
	struct turn *turn = data;

	while (!kthread_should_stop()) {
		u64 began = ktime_get_mono_fast_ns();

		if (turn->halves)
			sort_cards(turn);
		else
			sort_rows(turn);
		rest_until(began, turn->every_us);
	}
	return 0;
}

/* The timer's function runs in the interrupt itself, where interrupts are off. */
static enum hrtimer_restart sort_batch(struct hrtimer *timer)
{
	struct turn *turn = container_of(timer, struct turn, timer);
	u64 began = ktime_get_mono_fast_ns();

	count_rows(turn->for_us);
	tally_add(&turn->tally, began);
	hrtimer_forward_now(timer, ns_to_ktime(turn->every_us * NSEC_PER_USEC));
	return HRTIMER_RESTART;
}

static void start_batch(void *data)
{
	struct turn *turn = data;

	hrtimer_start(&turn->timer, ns_to_ktime(turn->every_us * NSEC_PER_USEC), HRTIMER_MODE_REL_PINNED_HARD);
}

static void turn_off(struct turn *turn)
{
	if (!turn->on)
		return;
	if (turn->task)
		kthread_stop(turn->task);
	else
		hrtimer_cancel(&turn->timer);
	turn->task = NULL;
	turn->on = false;
}

static int turn_on(struct turn *turn, int cpu, bool timer)
{
	struct task_struct *task;

	if (timer) {
		hrtimer_init(&turn->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
		turn->timer.function = sort_batch;
		turn->on = true;
		return smp_call_function_single(cpu, start_batch, turn, 1);
	}
	task = kthread_create(sort_rounds, turn, "%s", turn->by);
	if (IS_ERR(task))
		return PTR_ERR(task);
	kthread_bind(task, cpu);
	turn->task = task;
	turn->on = true;
	wake_up_process(task);
	return 0;
}

/* irqs cpu=N off | irqs cpu=N for=US every=US [form=thread|halves|timer] [by=NAME] */
static int turns_order(const struct words *words)
{
	const char *form = words_option(words, "form");
	const char *by = words_option(words, "by");
	u64 cpu, for_us, every_us;
	char name[NAME_MAX_LEN];
	struct turn *turn;
	int err = words_number(words, "cpu", 0, nr_cpu_ids - 1, &cpu);

	if (err)
		return err;
	if (!cpu_online(cpu))
		return -ENXIO;
	turn = per_cpu_ptr(&turns, cpu);
	if (words_has(words, "off")) {
		turn_off(turn);
		return 0;
	}
	err = words_number(words, "for", 1, IRQS_MAX_US, &for_us) ?:
	      words_number(words, "every", for_us + 1, 60 * USEC_PER_SEC, &every_us) ?:
	      words_name(by ?: "folio", name);
	if (err)
		return err;
	if (form && strcmp(form, "thread") && strcmp(form, "halves") && strcmp(form, "timer"))
		return -EINVAL;
	turn_off(turn);
	turn->for_us = for_us;
	turn->every_us = every_us;
	turn->halves = form && !strcmp(form, "halves");
	strscpy(turn->by, name, sizeof(turn->by));
	tally_clear(&turn->tally);
	return turn_on(turn, cpu, form && !strcmp(form, "timer"));
}

static void turns_off(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		turn_off(per_cpu_ptr(&turns, cpu));
}

static void turns_clear(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		tally_clear(&per_cpu_ptr(&turns, cpu)->tally);
}

static void turns_show(struct seq_file *seq)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		const struct turn *turn = per_cpu_ptr(&turns, cpu);

		if (!turn->on)
			continue;
		seq_printf(seq, "irqs cpu=%d form=%s by=%s for=%llu every=%llu", cpu,
			   turn->halves ? "halves" : turn->task ? "thread" : "timer",
			   turn->by, turn->for_us, turn->every_us);
		tally_show(seq, &turn->tally);
	}
}

const struct part turns_part = {
	.verb = "irqs",
	.order = turns_order,
	.off = turns_off,
	.clear = turns_clear,
	.show = turns_show,
};
