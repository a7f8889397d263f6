// SPDX-License-Identifier: GPL-2.0
#include <linux/init.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>

#include "folio.h"

#define WRITE_MAX 4096

static char *dir = "folio";
module_param(dir, charp, 0444);
MODULE_PARM_DESC(dir, "name of the folder in /proc");
static char *control = "index";
module_param(control, charp, 0444);
MODULE_PARM_DESC(control, "name of the control file in it");

struct proc_dir_entry *folio_dir;
static DEFINE_MUTEX(desk);

/*
 * In the order in which they are undone. Pages come first: they release readers at a gate and refuse new readers; readers
 * that still wait for a lock or a work item get it, because holders release the lock at the end of each stay.
 */
static const struct part *const parts[] = {
	&pages_part, &shelves_part, &jobs_part, &turns_part, &paces_part, &rests_part, &speeds_part,
};

static void all_off(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(parts); i++)
		parts[i]->off();
}

static int order_all(const struct words *words)
{
	size_t i;

	if (!strcmp(words->word[0], "off")) {
		all_off();
		return 0;
	}
	if (strcmp(words->word[0], "reset"))
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(parts); i++)
		parts[i]->clear();
	return 0;
}

static int order_line(char *line)
{
	struct words words;
	size_t i;
	int err = words_cut(&words, line);

	if (err || !words.count)
		return err;
	for (i = 0; i < ARRAY_SIZE(parts); i++)
		if (!strcmp(words.word[0], parts[i]->verb))
			return parts[i]->order(&words);
	return order_all(&words);
}

static ssize_t index_write(struct file *file, const char __user *from, size_t len, loff_t *at)
{
	char *text, *rest, *line;
	int err = 0;

	if (len > WRITE_MAX)
		return -E2BIG;
	text = memdup_user_nul(from, len);
	if (IS_ERR(text))
		return PTR_ERR(text);
	rest = text;
	mutex_lock(&desk);
	while (!err && (line = strsep(&rest, "\n")) != NULL)
		err = order_line(line);
	mutex_unlock(&desk);
	kfree(text);
	return err ? err : len;
}

static int index_show(struct seq_file *seq, void *unused)
{
	size_t i;

	mutex_lock(&desk);
	for (i = 0; i < ARRAY_SIZE(parts); i++)
		parts[i]->show(seq);
	mutex_unlock(&desk);
	return 0;
}

static int index_open(struct inode *inode, struct file *file)
{
	return single_open(file, index_show, NULL);
}

static const struct proc_ops index_ops = {
	.proc_open = index_open,
	.proc_read = seq_read,
	.proc_write = index_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

struct sought {
	const char *name;
	struct tracepoint *found;
};

static void seek(struct tracepoint *point, void *data)
{
	struct sought *sought = data;

	if (!strcmp(point->name, sought->name))
		sought->found = point;
}

/* proc_create() warns in the log about a name that is taken. */
bool folio_is_control(const char *name)
{
	return !strcmp(name, control);
}

/* cpu_idle is exported, the interrupt vectors' tracepoints are not: look all of them up by name. */
struct tracepoint *folio_tracepoint(const char *name)
{
	struct sought sought = { .name = name };

	for_each_kernel_tracepoint(seek, &sought);
	return sought.found;
}

static void finish(size_t started)
{
	while (started--)
		if (parts[started]->finish)
			parts[started]->finish();
}

static int __init folio_open(void)
{
	size_t i;
	int err;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		err = parts[i]->start ? parts[i]->start() : 0;
		if (err)
			goto out;
	}
	err = -ENOMEM;
	folio_dir = proc_mkdir(dir, NULL);
	if (folio_dir && proc_create(control, 0600, folio_dir, &index_ops))
		return 0;
	proc_remove(folio_dir);
out:
	finish(i);
	return err;
}

static void __exit folio_close(void)
{
	remove_proc_entry(control, folio_dir); /* waits for orders under way */
	all_off();
	proc_remove(folio_dir);
	finish(ARRAY_SIZE(parts));
}

module_init(folio_open);
module_exit(folio_close);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Folio");
