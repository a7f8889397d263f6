/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Works around a bug of the emulator, not of the kernel: a CPU may meet a breakpoint that is no longer in memory, and keep
 * its translation of it. On hardware text_poke_sync() makes this impossible. 6.12 dies of it; 6.1 (kprobe_int3_handler(),
 * "the breakpoint instruction was removed right after we hit it") executes the place again and again forever, with
 * interrupts off.
 */
#include <linux/ftrace.h>
#include <linux/kdebug.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <asm/processor-flags.h>
#include <asm/special_insns.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 11, 0)
#define ftrace_regs pt_regs /* a type of its own since d19ad0775dcd */
#define ftrace_get_regs(regs) (regs)
#endif

static bool is_gone(const struct pt_regs *regs)
{
	u8 now;

	return !user_mode((struct pt_regs *)regs) &&
	       !copy_from_kernel_nofault(&now, (void *)(regs->ip - 1), 1) && now != 0xcc;
}

/*
 * A write makes the emulator drop its translation of this place. Writes the byte that is there, atomically, because the
 * kernel may be patching this very place. Called with interrupts off.
 */
static void touch(u8 *place)
{
	unsigned long cr0 = read_cr0();

	asm volatile("mov %0, %%cr0" : : "r"(cr0 & ~X86_CR0_WP) : "memory");
	asm volatile("lock orb $0, %0" : "+m"(*place) : : "memory");
	asm volatile("mov %0, %%cr0" : : "r"(cr0) : "memory");
}

/* Called before kprobe_int3_handler(regs), which the kernel asks first about a breakpoint that it is not patching. */
static void notrace met(unsigned long ip, unsigned long parent, struct ftrace_ops *ops, struct ftrace_regs *at)
{
	struct pt_regs *call = ftrace_get_regs(at), *regs = call ? (struct pt_regs *)call->di : NULL;

	if (regs && is_gone(regs))
		touch((u8 *)(regs->ip - 1));
}

/* 6.1 does this by itself, 6.12 does not. */
static int again(struct notifier_block *nb, unsigned long what, void *data)
{
	struct die_args *args = data;

	if (what != DIE_INT3 || !args->regs || !is_gone(args->regs))
		return NOTIFY_DONE;
	args->regs->ip--;
	return NOTIFY_STOP;
}

static struct ftrace_ops ops = { .func = met, .flags = FTRACE_OPS_FL_SAVE_REGS };
static struct notifier_block block = { .notifier_call = again, .priority = INT_MAX };
static char handler[] = "kprobe_int3_handler";

static int __init begin(void)
{
	int err = ftrace_set_filter(&ops, handler, sizeof(handler) - 1, 1);

	if (!err)
		err = register_ftrace_function(&ops);
	if (err)
		return err;
	err = register_die_notifier(&block);
	if (err)
		unregister_ftrace_function(&ops);
	return err;
}

static void __exit end(void)
{
	unregister_die_notifier(&block);
	unregister_ftrace_function(&ops);
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
