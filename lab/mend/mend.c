/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Mends the emulator, not the kernel: a CPU that meets a breakpoint which is no longer in memory executes that place again.
 * 6.12 dies of it otherwise; a 6.1 meets it again and again. On hardware text_poke_sync() makes it impossible.
 */
#include <linux/kdebug.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/uaccess.h>
#include <asm/processor-flags.h>
#include <asm/special_insns.h>

/*
 * The emulator may have kept its translation of the breakpoint, and would then run it for ever. It drops what it has
 * translated of a place that is written to: with the byte that is there, and atomically, for the kernel may be patching
 * this very place. Called with interrupts off.
 */
static void touch(u8 *place)
{
	unsigned long cr0 = read_cr0();

	asm volatile("mov %0, %%cr0" : : "r"(cr0 & ~X86_CR0_WP) : "memory");
	asm volatile("lock orb $0, %0" : "+m"(*place) : : "memory");
	asm volatile("mov %0, %%cr0" : : "r"(cr0) : "memory");
}

static int again(struct notifier_block *nb, unsigned long what, void *data)
{
	struct die_args *args = data;
	u8 now;

	if (what != DIE_INT3 || !args->regs || user_mode(args->regs))
		return NOTIFY_DONE;
	if (copy_from_kernel_nofault(&now, (void *)(args->regs->ip - 1), 1) || now == 0xcc)
		return NOTIFY_DONE;
	args->regs->ip--;
	touch((u8 *)args->regs->ip);
	return NOTIFY_STOP;
}

static struct notifier_block block = { .notifier_call = again, .priority = INT_MAX };

static int __init begin(void)
{
	return register_die_notifier(&block);
}

static void __exit end(void)
{
	unregister_die_notifier(&block);
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
