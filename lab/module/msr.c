// SPDX-License-Identifier: GPL-2.0
/*
 * msr: an emulated P-state MSR, so that acpi-cpufreq's FFixedHW path binds and cpuinfo_cur_freq exists. Under TCG an
 * unknown MSR reads 0 and forgets what is written (no fault), so it is enough to set the CPU's feature bit (HW_PSTATE
 * for AMD and Hygon, EST for Intel), to keep what the driver writes, and to hand it out when it reads. The driver's own
 * calls across CPUs (drv_read(): smp_call_function_any(), drv_write(): smp_call_function_many()) stay as they are.
 */
#include <linux/kprobes.h>
#include <linux/notifier.h>
#include <linux/percpu.h>
#include <linux/string.h>
#include <asm/processor.h>

#include "folio.h"

#define DRIVER "acpi_cpufreq"

static DEFINE_PER_CPU(u32, speeds);
static DEFINE_PER_CPU(struct tally, reads);
static DEFINE_PER_CPU(u64, read_began);
static bool speeds_set, hooks_set, aperf_set;
static struct cpumask marked;

static int note_read(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	this_cpu_write(read_began, ktime_get_mono_fast_ns());
	return 0;
}

static int amend_read(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	regs_set_return_value(regs, this_cpu_read(speeds));
	tally_add(this_cpu_ptr(&reads), this_cpu_read(read_began));
	return 0;
}

/* void cpu_freq_write_*(struct acpi_pct_register *, u32 val), run on the CPU it is for */
static int note_write(struct kprobe *probe, struct pt_regs *regs)
{
	this_cpu_write(speeds, (u32)regs_get_kernel_argument(regs, 1));
	return 0;
}

static struct kretprobe read_hooks[2];
static struct kprobe write_hooks[2];
static const char *const read_names[] = { "cpu_freq_read_amd", "cpu_freq_read_intel" };
static const char *const write_names[] = { "cpu_freq_write_amd", "cpu_freq_write_intel" };

static void hooks_off(void)
{
	size_t i;

	for (i = 0; hooks_set && i < 2; i++) {
		unregister_kretprobe(&read_hooks[i]);
		unregister_kprobe(&write_hooks[i]);
	}
	hooks_set = false;
}

static int hook_on(size_t i)
{
	int err;

	/* A used probe still contains state of its last registration. */
	memset(&read_hooks[i], 0, sizeof(read_hooks[i]));
	memset(&write_hooks[i], 0, sizeof(write_hooks[i]));
	read_hooks[i].kp.symbol_name = read_names[i];
	read_hooks[i].entry_handler = note_read;
	read_hooks[i].handler = amend_read;
	read_hooks[i].maxactive = 4 * num_possible_cpus();
	write_hooks[i].symbol_name = write_names[i];
	write_hooks[i].pre_handler = note_write;
	err = register_kretprobe(&read_hooks[i]);
	if (err)
		return err;
	err = register_kprobe(&write_hooks[i]);
	if (err)
		unregister_kretprobe(&read_hooks[i]);
	return err;
}

static int hooks_on(void)
{
	int err;

	if (hooks_set)
		return 0;
	err = hook_on(0);
	if (err)
		return err;
	err = hook_on(1);
	if (err) {
		unregister_kretprobe(&read_hooks[0]);
		unregister_kprobe(&write_hooks[0]);
	}
	hooks_set = !err;
	return err;
}

/* Before the driver's init, which requests the first frequency. */
static int driver_moved(struct notifier_block *block, unsigned long state, void *data)
{
	struct module *module = data;
	int err = 0;

	if (strcmp(module->name, DRIVER))
		return NOTIFY_DONE;
	if (state == MODULE_STATE_COMING)
		err = hooks_on();
	else if (state == MODULE_STATE_GOING)
		hooks_off();
	if (err)
		pr_err("%s: %d\n", DRIVER, err);
	return NOTIFY_DONE;
}

static struct notifier_block driver_notes = { .notifier_call = driver_moved };

static unsigned int feature(void)
{
	return boot_cpu_data.x86_vendor == X86_VENDOR_INTEL ? X86_FEATURE_EST : X86_FEATURE_HW_PSTATE;
}

static void features_set(void)
{
	int cpu;

	cpumask_clear(&marked);
	for_each_online_cpu(cpu) {
		if (cpu_has(&cpu_data(cpu), feature()))
			continue;
		set_cpu_cap(&cpu_data(cpu), feature());
		cpumask_set_cpu(cpu, &marked);
	}
}

/*
 * With this bit 5.10 queries each CPU for its frequency when /proc/cpuinfo or scaling_cur_freq is read
 * (aperfmperf_get_khz()); the counters read 0 under TCG, and the kernel shows the policy's frequency. 6.1 queries no CPU.
 */
static void aperf_on(void)
{
	if (boot_cpu_has(X86_FEATURE_APERFMPERF))
		return;
	set_cpu_cap(&boot_cpu_data, X86_FEATURE_APERFMPERF);
	aperf_set = true;
}

static void speeds_off(void)
{
	int cpu;

	if (!speeds_set)
		return;
	if (aperf_set)
		clear_bit(X86_FEATURE_APERFMPERF, (unsigned long *)boot_cpu_data.x86_capability);
	aperf_set = false;
	unregister_module_notifier(&driver_notes);
	hooks_off();
	for_each_cpu(cpu, &marked)
		clear_bit(feature(), (unsigned long *)cpu_data(cpu).x86_capability);
	speeds_set = false;
}

static void speeds_clear(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		tally_clear(per_cpu_ptr(&reads, cpu));
}

/* msr on [aperf] | msr off; on before the driver is loaded, off after it is gone */
static int speeds_order(const struct words *words)
{
	int err;

	if (words_has(words, "off")) {
		speeds_off();
		return 0;
	}
	if (!words_has(words, "on"))
		return -EINVAL;
	if (speeds_set)
		return -EEXIST;
	features_set();
	if (words_has(words, "aperf"))
		aperf_on();
	speeds_clear();
	err = register_module_notifier(&driver_notes);
	speeds_set = !err;
	if (!err && hooks_on())
		pr_debug("%s is not there yet\n", DRIVER);
	return err;
}

static void speeds_show(struct seq_file *seq)
{
	int cpu;

	if (!speeds_set)
		return;
	for_each_online_cpu(cpu) {
		seq_printf(seq, "msr cpu=%d bound=%d value=%u", cpu, hooks_set, per_cpu(speeds, cpu));
		tally_show(seq, per_cpu_ptr(&reads, cpu));
	}
}

const struct part speeds_part = {
	.verb = "msr",
	.order = speeds_order,
	.off = speeds_off,
	.clear = speeds_clear,
	.show = speeds_show,
};
