// SPDX-License-Identifier: GPL-2.0
/* How long does a thread spin until a CPU has answered, on kernels that have no event for it (before v6.4)?
 *
 * The function itself, at both ends: smp_call_function_single() returns when the CPU has done the requested work. So the time that the work
 * takes there is included, too; calls of many CPUs at once are not seen.
 *
 * A caller that does not wait for the answer waits for the call before: the data of such calls has one place for each CPU that sends
 * (csd_data in kernel/smp.c), which is free when the last call that was sent from there has arrived.
 */
#include "irq_latency.bpf.h"

#define MAX_ASKING 1024

/* The CPU that a call was sent to, the state that it was in then, and the function to run. */
struct ipi_sent {
	__u64 function;
	__u32 cpu;
	__u32 state;
};

struct ipi_asking {
	__u64 at;
	struct ipi_sent waits_for;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ASKING);
	__type(key, __u32);
	__type(value, struct ipi_asking);
} asking SEC(".maps");

/* The last call that its sender does not wait for; without a function: none yet. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ipi_sent);
} sent SEC(".maps");

SEC("fentry/smp_call_function_single")
int BPF_PROG(asked, int cpu, void *function, void *info, int wait)
{
	__u32 zero = 0, pid = bpf_get_current_pid_tgid();
	struct irqlat_cpu *there = irqlat_cpu_at(cpu);
	struct ipi_sent *before = bpf_map_lookup_elem(&sent, &zero);
	bool is_own = cpu == bpf_get_smp_processor_id();
	struct ipi_asking now = {};

	if (!there || !before || (wait && is_own))
		return 0;
	now.waits_for.cpu = cpu;
	now.waits_for.state = there->state;
	/* The verifier lets no program load a pointer to a function: the arguments lie where ctx points to. */
	bpf_probe_read_kernel(&now.waits_for.function, sizeof(now.waits_for.function), ctx + 1);
	if (!wait) {
		struct ipi_sent last = *before;

		if (!is_own)
			*before = now.waits_for;
		if (!last.function)
			return 0;
		now.waits_for = last;
	}
	now.at = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&asking, &pid, &now, BPF_ANY))
		__sync_fetch_and_add(&lost, 1);
	return 0;
}

SEC("fexit/smp_call_function_single")
int BPF_PROG(answered, int cpu, void *function, void *info, int wait)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct ipi_asking *asked;
	struct irqlat_key key = { .pid = pid, .kind = LATE_CALL };
	__u64 now, ns;

	asked = bpf_map_lookup_elem(&asking, &pid);
	if (!asked)
		return 0;
	now = bpf_ktime_get_ns();
	ns = elapsed(asked->at, now);
	key.cpu = asked->waits_for.cpu;
	key.state = asked->waits_for.state;
	key.function = asked->waits_for.function;
	bpf_map_delete_elem(&asking, &pid);
	/* A call that finds the place free says nothing about how quickly it became free. */
	if (wait)
		note_wake(key.cpu, key.state, ns);
	if (ns >= late_ns)
		note_row(&key, (struct task_struct *)bpf_get_current_task(), 0, now, ns);
	return 0;
}
