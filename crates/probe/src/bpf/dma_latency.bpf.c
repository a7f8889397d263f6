// SPDX-License-Identifier: GPL-2.0
/* Which processes have /dev/cpu_dma_latency open, and how quick do they want wake-ups to be?
 *
 * A read of that file returns the smallest of all requests and not which process made it. Each open file holds its own request. One walk
 * over all open files, at the end of a window; the walk takes no lock of the observed tasks (RCU only).
 */
#include "kernel.bpf.h"

/* Read by latency.rs, one after another from the iterator. */
struct latency_holder {
	__s32 value_us;
	__u32 pid;
	__u32 tgid;
	char comm[16];
};

/* The device, as the kernel numbers it: it registers itself as a misc device, under any minor. */
const volatile __u32 device = 0;

/* Makes the type known to user space. */
struct latency_holder latency_holder_type;

SEC("iter/task_file")
int holders(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *file = ctx->file;
	struct latency_holder h = {};
	struct pm_qos_request *request;

	if (!t || !file || !device || BPF_CORE_READ(file, f_inode, i_rdev) != device)
		return 0;
	/* kernel/power/qos.c: cpu_latency_qos_open() keeps its request there. */
	request = BPF_CORE_READ(file, private_data);
	if (!request)
		return 0;
	h.value_us = BPF_CORE_READ(request, node.prio);
	h.pid = t->pid;
	h.tgid = t->tgid;
	bpf_probe_read_kernel(h.comm, sizeof(h.comm), t->comm);
	bpf_seq_write(ctx->meta->seq, &h, sizeof(h));
	return 0;
}
