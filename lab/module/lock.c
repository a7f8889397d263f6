// SPDX-License-Identifier: GPL-2.0
/* lock: kernel locks by name, kept by kthreads. A lock's symbol is its name: address to symbol works by kallsyms. */
#include <linux/kthread.h>
#include <linux/mutex.h>
#include <linux/percpu-rwsem.h>
#include <linux/rwsem.h>
#include <linux/string.h>

#include "folio.h"

enum kind { MUTEX, RWSEM, PERCPU };

struct shelf {
	const char *name;
	enum kind kind;
	union {
		void *lock;
		struct mutex *mutex;
		struct rw_semaphore *rwsem;
		struct percpu_rw_semaphore *percpu;
	};
};

static DEFINE_MUTEX(atlas);
static DEFINE_MUTEX(codex);
static DEFINE_MUTEX(ledger);
static DEFINE_MUTEX(quire);
static DECLARE_RWSEM(annex);
static DECLARE_RWSEM(foyer);
static DECLARE_RWSEM(gable);
static DECLARE_RWSEM(porch);
/* Not DEFINE_STATIC_PERCPU_RWSEM: its last rcu_sync callback may run after rmmod, percpu_free_rwsem() waits for it. */
static struct percpu_rw_semaphore stove;
static struct percpu_rw_semaphore trough;

/* A thread that waits for a lock while it holds another takes them in this order. */
static struct shelf shelves[] = {
	{ "atlas", MUTEX, { &atlas } },	  { "codex", MUTEX, { &codex } },   { "ledger", MUTEX, { &ledger } },
	{ "quire", MUTEX, { &quire } },	  { "annex", RWSEM, { &annex } },   { "foyer", RWSEM, { &foyer } },
	{ "gable", RWSEM, { &gable } },	  { "porch", RWSEM, { &porch } },   { "stove", PERCPU, { &stove } },
	{ "trough", PERCPU, { &trough } },
};

struct shelf *shelf_find(const char *name)
{
	size_t i;

	for (i = 0; name && i < ARRAY_SIZE(shelves); i++)
		if (!strcmp(shelves[i].name, name))
			return &shelves[i];
	return NULL;
}

const char *shelf_name(const struct shelf *shelf)
{
	return shelf->name;
}

/* NAME or NAME:read or NAME:write; a mutex is only ever written. */
int shelf_parse(const char *text, struct shelf **shelf, bool *shared)
{
	char name[NAME_MAX_LEN];
	char *how = name;

	if (!text || strscpy(name, text, sizeof(name)) < 0)
		return -EINVAL;
	strsep(&how, ":");
	*shelf = shelf_find(name);
	if (!*shelf)
		return -ENOENT;
	*shared = how && !strcmp(how, "read");
	if (how && !*shared && strcmp(how, "write"))
		return -EINVAL;
	return *shared && (*shelf)->kind == MUTEX ? -EINVAL : 0;
}

void shelf_take(struct shelf *shelf, bool shared)
{
	if (shelf->kind == MUTEX)
		mutex_lock(shelf->mutex);
	else if (shelf->kind == RWSEM && shared)
		down_read(shelf->rwsem);
	else if (shelf->kind == RWSEM)
		down_write(shelf->rwsem);
	else if (shared)
		percpu_down_read(shelf->percpu);
	else
		percpu_down_write(shelf->percpu);
}

void shelf_drop(struct shelf *shelf, bool shared)
{
	if (shelf->kind == MUTEX)
		mutex_unlock(shelf->mutex);
	else if (shelf->kind == RWSEM && shared)
		up_read(shelf->rwsem);
	else if (shelf->kind == RWSEM)
		up_write(shelf->rwsem);
	else if (shared)
		percpu_up_read(shelf->percpu);
	else
		percpu_up_write(shelf->percpu);
}

#define TENDERS_MAX 8

static struct tender {
	struct task_struct *task;
	char by[NAME_MAX_LEN];
	struct shelf *shelf, *next; /* next: waited for while shelf is kept */
	bool shared, next_shared;
	enum way way;
	u64 for_us, every_us;
	struct tally tally; /* from acquire to release */
} tenders[TENDERS_MAX];

static noinline void tend_shelf(struct tender *tender)
{
	u64 began;

	shelf_take(tender->shelf, tender->shared);
	began = ktime_get_mono_fast_ns();
	if (tender->next) {
		shelf_take(tender->next, tender->next_shared);
		shelf_drop(tender->next, tender->next_shared);
	}
	spend(tender->way, tender->for_us);
	tally_add(&tender->tally, began);
	shelf_drop(tender->shelf, tender->shared);
}

static int tend_rounds(void *data)
{
	struct tender *tender = data;

	while (!kthread_should_stop()) {
		u64 began = ktime_get_mono_fast_ns();

		tend_shelf(tender);
		rest_until(began, tender->every_us);
	}
	return 0;
}

static void tender_off(struct tender *tender)
{
	if (!tender->task)
		return;
	kthread_stop(tender->task);
	tender->task = NULL;
}

static struct tender *tender_by(const char *by)
{
	size_t i;

	for (i = 0; i < TENDERS_MAX; i++)
		if (tenders[i].task && !strcmp(tenders[i].by, by))
			return &tenders[i];
	return NULL;
}

static struct tender *tender_free(void)
{
	size_t i;

	for (i = 0; i < TENDERS_MAX; i++)
		if (!tenders[i].task)
			return &tenders[i];
	return NULL;
}

static int tender_parse(const struct words *words, struct tender *tender)
{
	const char *meanwhile = words_option(words, "meanwhile");
	int err = shelf_parse(words_plain(words, 1), &tender->shelf, &tender->shared) ?:
		  words_name(words_option(words, "by"), tender->by);

	if (err)
		return err;
	if (meanwhile && !strncmp(meanwhile, "take:", 5)) {
		err = shelf_parse(meanwhile + 5, &tender->next, &tender->next_shared);
		if (!err && tender->next <= tender->shelf)
			err = -EDEADLK;
	} else {
		err = spend_word(meanwhile, &tender->way);
	}
	return err ?: words_number(words, "for", tender->next ? 0 : 1, STAY_MAX_US, &tender->for_us) ?:
	       words_number(words, "every", tender->for_us + 1, 60 * USEC_PER_SEC, &tender->every_us);
}

/* lock off by=NAME | lock LOCK[:read] for=US every=US by=NAME [meanwhile=sleep|spin|take:LOCK[:read]] */
static int shelves_order(const struct words *words)
{
	struct tender asked = {}, *tender;
	struct task_struct *task;
	int err;

	if (words_has(words, "off")) {
		tender = tender_by(words_option(words, "by") ?: "");
		if (!tender)
			return -ENOENT;
		tender_off(tender);
		return 0;
	}
	err = tender_parse(words, &asked);
	if (err)
		return err;
	if (tender_by(asked.by))
		return -EEXIST;
	tender = tender_free();
	if (!tender)
		return -ENOSPC;
	*tender = asked;
	task = kthread_run(tend_rounds, tender, "%s", tender->by);
	if (IS_ERR(task))
		return PTR_ERR(task);
	tender->task = task;
	return 0;
}

static void shelves_off(void)
{
	size_t i;

	for (i = 0; i < TENDERS_MAX; i++)
		tender_off(&tenders[i]);
}

static void shelves_clear(void)
{
	size_t i;

	for (i = 0; i < TENDERS_MAX; i++)
		tally_clear(&tenders[i].tally);
}

static void shelves_show(struct seq_file *seq)
{
	size_t i;

	for (i = 0; i < TENDERS_MAX; i++) {
		const struct tender *tender = &tenders[i];

		if (!tender->task)
			continue;
		seq_printf(seq, "lock %s by=%s how=%s meanwhile=%s%s for=%llu every=%llu", tender->shelf->name,
			   tender->by, tender->shared ? "read" : "write",
			   tender->next ? "take:" : spend_name(tender->way), tender->next ? tender->next->name : "",
			   tender->for_us, tender->every_us);
		tally_show(seq, &tender->tally);
	}
}

static int shelves_start(void)
{
	int err = percpu_init_rwsem(&stove);

	if (err)
		return err;
	err = percpu_init_rwsem(&trough);
	if (err)
		percpu_free_rwsem(&stove);
	return err;
}

static void shelves_finish(void)
{
	percpu_free_rwsem(&stove);
	percpu_free_rwsem(&trough);
}

const struct part shelves_part = {
	.verb = "lock",
	.start = shelves_start,
	.order = shelves_order,
	.off = shelves_off,
	.clear = shelves_clear,
	.show = shelves_show,
	.finish = shelves_finish,
};
