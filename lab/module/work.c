// SPDX-License-Identifier: GPL-2.0
/* work: work items on system_wq. The function's symbol is the item's name; its label is the worker's description. */
#include <linux/completion.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "folio.h"

struct job {
	const char *name;
	work_func_t function;
	struct work_struct work;
	bool on;
	enum way way;
	u64 us;
	char label[NAME_MAX_LEN];
	struct tally tally;
	spinlock_t lock;
	struct list_head readers;
};

struct reader {
	struct list_head node;
	struct completion done;
};

static void job_done(struct job *job, struct list_head *readers)
{
	struct reader *reader, *next;

	list_for_each_entry_safe(reader, next, readers, node)
		complete(&reader->done);
}

/* The end of this run serves waiters that came before it began; a waiter that comes later has queued the next run. */
static __always_inline void job_run(struct work_struct *work)
{
	struct job *job = container_of(work, struct job, work);
	u64 began = ktime_get_mono_fast_ns();
	LIST_HEAD(readers);

	spin_lock(&job->lock);
	list_splice_init(&job->readers, &readers);
	spin_unlock(&job->lock);
	set_worker_desc("%s", job->label);
	spend(job->way, job->us);
	tally_add(&job->tally, began);
	job_done(job, &readers);
}

#define JOB(title)                                             \
	static noinline void title(struct work_struct *work) \
	{                                                      \
		job_run(work);                                 \
	}
JOB(bind_pages)
JOB(merge_notes)
JOB(print_cards)
JOB(stamp_rows)

static struct job jobs[] = {
	{ "bind_pages", bind_pages },
	{ "merge_notes", merge_notes },
	{ "print_cards", print_cards },
	{ "stamp_rows", stamp_rows },
};

struct job *job_find(const char *name)
{
	size_t i;

	for (i = 0; name && i < ARRAY_SIZE(jobs); i++)
		if (!strcmp(jobs[i].name, name))
			return &jobs[i];
	return NULL;
}

const char *job_name(const struct job *job)
{
	return job->name;
}

void job_flush(struct job *job)
{
	queue_work(system_wq, &job->work);
	flush_work(&job->work);
}

void job_await(struct job *job)
{
	struct reader reader;

	init_completion(&reader.done);
	spin_lock(&job->lock);
	list_add_tail(&reader.node, &job->readers);
	spin_unlock(&job->lock);
	queue_work(system_wq, &job->work);
	wait_for_completion(&reader.done);
}

/* work NAME off | work NAME for=US [meanwhile=sleep|spin] [label=TEXT] */
static int jobs_order(const struct words *words)
{
	struct job *job = job_find(words_plain(words, 1));
	const char *label = words_option(words, "label");
	char name[NAME_MAX_LEN];
	enum way way;
	u64 us;
	int err;

	if (!job)
		return -ENOENT;
	if (words_has(words, "off")) {
		job->us = 0;
		job->on = false;
		flush_work(&job->work);
		return 0;
	}
	err = words_number(words, "for", 1, STAY_MAX_US, &us) ?: spend_word(words_option(words, "meanwhile"), &way) ?:
	      words_name(label ?: job->name, name);
	if (err)
		return err;
	flush_work(&job->work);
	strscpy(job->label, name, sizeof(job->label));
	job->way = way;
	job->us = us;
	job->on = true;
	tally_clear(&job->tally);
	return 0;
}

/* Items are not cancelled: a reader may wait for them. Without a time to spend they end at once. */
static void jobs_off(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(jobs); i++) {
		jobs[i].us = 0;
		jobs[i].on = false;
		flush_work(&jobs[i].work);
	}
}

static void jobs_clear(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(jobs); i++)
		tally_clear(&jobs[i].tally);
}

static void jobs_show(struct seq_file *seq)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(jobs); i++) {
		if (!jobs[i].on)
			continue;
		seq_printf(seq, "work %s label=%s meanwhile=%s for=%llu", jobs[i].name, jobs[i].label,
			   spend_name(jobs[i].way), jobs[i].us);
		tally_show(seq, &jobs[i].tally);
	}
}

static int jobs_start(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(jobs); i++) {
		INIT_WORK(&jobs[i].work, jobs[i].function);
		spin_lock_init(&jobs[i].lock);
		INIT_LIST_HEAD(&jobs[i].readers);
		strscpy(jobs[i].label, jobs[i].name, NAME_MAX_LEN);
	}
	return 0;
}

static void jobs_finish(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(jobs); i++)
		cancel_work_sync(&jobs[i].work);
}

const struct part jobs_part = {
	.verb = "work",
	.start = jobs_start,
	.order = jobs_order,
	.off = jobs_off,
	.clear = jobs_clear,
	.show = jobs_show,
	.finish = jobs_finish,
};
