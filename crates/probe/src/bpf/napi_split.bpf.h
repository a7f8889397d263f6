/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Why a run of the receive softirq stopped: the kernel's own test after each poll, repeated here.
 *
 * net_rx_action (net/core/dev.c, since v4.12, 7acf8a1e8a28): budget -= work of the poll; if (budget <= 0 or jiffies are at the limit)
 * time_squeeze++ and out, also where the poll left nothing to do. It does not check need_resched: a stop that softnet_stat counts and
 * neither limit explains is reported as neither. No BPF helper is called here: the tests compile it for the host, too.
 */
#pragma once

struct napi_cpu {
	/* The run that polls belong to now. */
	unsigned long long run;
	unsigned long long done;
	unsigned long long stopped;
	/* Sums. */
	unsigned long long runs;
	unsigned long long polls;
	unsigned long long packets;
	unsigned long long budget_stops;
	unsigned long long budget_ns;
	unsigned long long budget_packets;
	unsigned long long time_stops;
	unsigned long long time_ns;
	unsigned long long time_packets;
	/* Polls of threads and of busy polling: they belong to no run. */
	unsigned long long other_polls;
	unsigned long long other_packets;
	/* Of `packets`: those that came through the queue of the CPU. */
	unsigned long long backlog_packets;
};

enum napi_stop { GOES_ON, BY_BUDGET, BY_TIME };

/* A poll of the run that began at `run` did `work` packets: does the run stop now, and why? */
static inline enum napi_stop napi_polled(struct napi_cpu *cpu, unsigned long long run, unsigned long long work,
					 unsigned long long budget, unsigned long long ticks,
					 unsigned long long tick_limit)
{
	if (cpu->run != run) {
		cpu->run = run;
		cpu->done = cpu->stopped = 0;
		cpu->runs++;
	}
	cpu->polls++;
	cpu->packets += work;
	cpu->done += work;
	if (cpu->stopped)
		return GOES_ON;
	if (cpu->done >= budget)
		cpu->stopped = BY_BUDGET;
	else if (ticks >= tick_limit)
		cpu->stopped = BY_TIME;
	return cpu->stopped;
}

/* The run stopped after `ns`. */
static inline void napi_stopped(struct napi_cpu *cpu, unsigned long long ns)
{
	if (cpu->stopped == BY_BUDGET) {
		cpu->budget_stops++;
		cpu->budget_ns += ns;
		cpu->budget_packets += cpu->done;
	} else {
		cpu->time_stops++;
		cpu->time_ns += ns;
		cpu->time_packets += cpu->done;
	}
}
