// SPDX-License-Identifier: GPL-2.0
/* How long does a thread spin until a CPU has answered, on kernels that do not tell (before v6.4)?
 *
 * The function itself, at both ends: smp_call_function_single() returns when
 * the CPU has done what it was asked. So the time that the work takes there is
 * in it, too; calls of many CPUs at once are not seen.
 */
#include "late.bpf.h"

#define MAX_ASKING 1024

struct ipi_asking {
	__u64 at;
	__u32 state;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ASKING);
	__type(key, __u32);
	__type(value, struct ipi_asking);
} asking SEC(".maps");

SEC("fentry/smp_call_function_single")
int BPF_PROG(asked, int cpu, void *function, void *info, int wait)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct late_cpu *there = late_cpu_at(cpu);
	struct ipi_asking now = {};

	if (!wait || !there || cpu == bpf_get_smp_processor_id())
		return 0;
	now.at = bpf_ktime_get_ns();
	now.state = there->state;
	if (bpf_map_update_elem(&asking, &pid, &now, BPF_ANY))
		__sync_fetch_and_add(&lost, 1);
	return 0;
}

SEC("fexit/smp_call_function_single")
int BPF_PROG(answered, int cpu, void *function, void *info, int wait)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct ipi_asking *asked;
	struct late_key key = { .pid = pid, .cpu = cpu, .kind = LATE_CALL };
	__u64 now, ns;

	if (!wait)
		return 0;
	asked = bpf_map_lookup_elem(&asking, &pid);
	if (!asked)
		return 0;
	now = bpf_ktime_get_ns();
	ns = now - asked->at;
	key.state = asked->state;
	bpf_map_delete_elem(&asking, &pid);
	note_wake(cpu, key.state, ns);
	/* The verifier lets nobody load a pointer to a function: the arguments lie where ctx points to. */
	bpf_probe_read_kernel(&key.function, sizeof(key.function), ctx + 1);
	if (ns >= late_ns)
		note_row(&key, (struct task_struct *)bpf_get_current_task(), 0, now, ns);
	return 0;
}
