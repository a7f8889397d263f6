// SPDX-License-Identifier: GPL-2.0
/* file: proc files whose read does one thing and returns one byte. */
#include <linux/completion.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "folio.h"

enum act { ACT_SPEND, ACT_TAKE, ACT_FLUSH, ACT_AWAIT, ACT_GATE };

struct page_file {
	struct list_head node;
	struct proc_dir_entry *entry;
	char name[NAME_MAX_LEN];
	enum act act;
	enum way way;
	u64 us;
	struct shelf *shelf;
	bool shared;
	struct job *job;
	struct completion gate;
	atomic_t readers;
	struct tally tally; /* time of reads, including waits */
};

static LIST_HEAD(pages);

static noinline void page_text(struct page_file *page)
{
	switch (page->act) {
	case ACT_SPEND:
		spend(page->way, page->us);
		break;
	case ACT_TAKE:
		shelf_take(page->shelf, page->shared);
		spend(page->way, page->us);
		shelf_drop(page->shelf, page->shared);
		break;
	case ACT_FLUSH:
		job_flush(page->job);
		break;
	case ACT_AWAIT:
		job_await(page->job);
		break;
	case ACT_GATE:
		wait_for_completion(&page->gate);
		break;
	}
}

/* Each read at offset 0 acts once; the next one returns end of file, so that `cat` acts once. */
static ssize_t page_read(struct file *file, char __user *to, size_t len, loff_t *at)
{
	struct page_file *page = file->private_data;
	u64 began;

	if (*at || !len)
		return 0;
	began = ktime_get_mono_fast_ns();
	atomic_inc(&page->readers);
	page_text(page);
	atomic_dec(&page->readers);
	tally_add(&page->tally, began);
	if (put_user('\n', to))
		return -EFAULT;
	*at = 1;
	return 1;
}

static int page_open(struct inode *inode, struct file *file)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 17, 0)
	file->private_data = PDE_DATA(inode); /* renamed by 359745d78351 */
#else
	file->private_data = pde_data(inode);
#endif
	return 0;
}

static const struct proc_ops page_ops = {
	.proc_open = page_open,
	.proc_read = page_read,
	.proc_lseek = default_llseek,
};

static struct page_file *page_find(const char *name)
{
	struct page_file *page;

	list_for_each_entry(page, &pages, node)
		if (name && !strcmp(page->name, name))
			return page;
	return NULL;
}

/* proc_remove() waits for readers: let the readers at a gate through first. */
static void page_off(struct page_file *page)
{
	complete_all(&page->gate);
	page->us = 0;
	proc_remove(page->entry);
	list_del(&page->node);
	kfree(page);
}

static int page_parse(const struct words *words, struct page_file *page)
{
	const char *take = words_option(words, "take");
	const char *flush = words_option(words, "flush"), *await = words_option(words, "await");
	const char *way = words_option(words, "sleep") ? "sleep" : "spin";

	if (take) {
		page->act = ACT_TAKE;
		return shelf_parse(take, &page->shelf, &page->shared) ?:
		       spend_word(words_option(words, "meanwhile"), &page->way) ?:
		       words_option(words, "for") ? words_number(words, "for", 0, STAY_MAX_US, &page->us) : 0;
	}
	if (flush || await) {
		page->act = flush ? ACT_FLUSH : ACT_AWAIT;
		page->job = job_find(flush ?: await);
		return page->job ? 0 : -ENOENT;
	}
	if (words_has(words, "gate")) {
		page->act = ACT_GATE;
		return 0;
	}
	page->act = ACT_SPEND;
	return spend_word(way, &page->way) ?: words_number(words, way, 1, STAY_MAX_US, &page->us);
}

static int page_on(const struct words *words)
{
	struct page_file *page = kzalloc(sizeof(*page), GFP_KERNEL);
	int err;

	if (!page)
		return -ENOMEM;
	init_completion(&page->gate);
	err = words_name(words_plain(words, 1), page->name) ?: page_parse(words, page);
	if (!err && folio_is_control(page->name))
		err = -EEXIST;
	if (!err) {
		page->entry = proc_create_data(page->name, 0444, folio_dir, &page_ops, page);
		err = page->entry ? 0 : -EEXIST;
	}
	if (err) {
		kfree(page);
		return err;
	}
	list_add_tail(&page->node, &pages);
	return 0;
}

/*
 * file NAME off | file NAME open | file NAME gate | file NAME sleep=US | file NAME spin=US
 * file NAME take=LOCK[:read] [for=US [meanwhile=sleep|spin]] | file NAME flush=WORK | file NAME await=WORK
 */
static int pages_order(const struct words *words)
{
	struct page_file *page = page_find(words_plain(words, 1));
	bool off = words_has(words, "off"), open = words_has(words, "open");

	if (!off && !open)
		return page ? -EEXIST : page_on(words);
	if (!page)
		return -ENOENT;
	if (off)
		page_off(page);
	else
		complete_all(&page->gate);
	return 0;
}

static void pages_off(void)
{
	struct page_file *page, *next;

	list_for_each_entry_safe(page, next, &pages, node)
		page_off(page);
}

static void pages_clear(void)
{
	struct page_file *page;

	list_for_each_entry(page, &pages, node)
		tally_clear(&page->tally);
}

static void pages_show(struct seq_file *seq)
{
	struct page_file *page;

	list_for_each_entry(page, &pages, node) {
		seq_printf(seq, "file %s inside=%d", page->name, atomic_read(&page->readers));
		if (page->act == ACT_SPEND)
			seq_printf(seq, " act=%s for=%llu", spend_name(page->way), page->us);
		else if (page->act == ACT_TAKE)
			seq_printf(seq, " act=take lock=%s how=%s for=%llu", shelf_name(page->shelf),
				   page->shared ? "read" : "write", page->us);
		else if (page->act == ACT_GATE)
			seq_puts(seq, " act=gate");
		else
			seq_printf(seq, " act=%s work=%s", page->act == ACT_FLUSH ? "flush" : "await",
				   job_name(page->job));
		tally_show(seq, &page->tally);
	}
}

const struct part pages_part = {
	.verb = "file",
	.order = pages_order,
	.off = pages_off,
	.clear = pages_clear,
	.show = pages_show,
};
