/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Names of functions and locks are neutral on purpose: they are seen in stacks by the tool under test and must
 * not give the answer away (files are called after the orders that they obey). What each does is said in README.md.
 */
#ifndef FOLIO_H
#define FOLIO_H

#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/timekeeping.h>

#define NAME_MAX_LEN 32
/* Longest single stay of any kind: half of the soft-lockup threshold's 20 s (watchdog_thresh 10). */
#define STAY_MAX_US (10 * 1000 * 1000ULL)
/* Longest stay with interrupts off: far below the hard-lockup and RCU stall limits (10 s, 21 s). */
#define IRQS_MAX_US (1000 * 1000ULL)

/* words.c: one line of the protocol, cut at blanks; options are key=value. */
#define WORDS_MAX 12
struct words {
	char *word[WORDS_MAX];
	int count;
};

int words_cut(struct words *words, char *line);
const char *words_plain(const struct words *words, int place);
const char *words_option(const struct words *words, const char *key);
bool words_has(const struct words *words, const char *word);
int words_number(const struct words *words, const char *key, u64 least, u64 most, u64 *value);
int words_cpus(const struct words *words, const char *key, struct cpumask *cpus);
int words_name(const char *from, char *to);

/* tally.c: the module's own clock and its counters, the ground truth. */
struct tally {
	atomic64_t count;
	atomic64_t total;
	atomic64_t longest;
};

void tally_add(struct tally *tally, u64 began);
void tally_clear(struct tally *tally);
void tally_show(struct seq_file *seq, const struct tally *tally);
void count_rows(u64 us);

enum way { WAY_SLEEP, WAY_SPIN };
void spend(enum way way, u64 us);
int spend_word(const char *word, enum way *way);
const char *spend_name(enum way way);
void rest_until(u64 began, u64 every_us);

/* lock.c: locks by name. */
struct shelf;
struct shelf *shelf_find(const char *name);
const char *shelf_name(const struct shelf *shelf);
int shelf_parse(const char *text, struct shelf **shelf, bool *shared);
void shelf_take(struct shelf *shelf, bool shared);
void shelf_drop(struct shelf *shelf, bool shared);

/* work.c: work items by name. */
struct job;
struct job *job_find(const char *name);
const char *job_name(const struct job *job);
void job_flush(struct job *job);
void job_await(struct job *job);

/* One kind of thing the control file can do; called with the control file's mutex held. */
struct part {
	const char *verb;
	int (*start)(void);
	int (*order)(const struct words *words);
	void (*off)(void);
	void (*clear)(void);
	void (*show)(struct seq_file *seq);
	void (*finish)(void);
};

extern const struct part turns_part, rests_part, shelves_part, jobs_part, pages_part, speeds_part, paces_part;
extern struct proc_dir_entry *folio_dir;
bool folio_is_control(const char *name);

struct tracepoint;
struct tracepoint *folio_tracepoint(const char *name);

#endif
