//! Makes the tables of the IRQ latency probe: names for addresses, times since the window began.

use std::collections::BTreeMap;

use whyslow_model::table::{CrossCall, Gap, IrqLatency, LateTimer};

use crate::bpf::irq_latency::{LATE_CALL, RUNS, RawIrqLatency, irqlat_gap, irqlat_wakes};
use crate::bpf::text;
use crate::span_table::Window;
use crate::symbols::KernelNames;

/// All tables.
#[derive(Default)]
pub struct Tables {
    /// Calls that came late.
    pub calls: Vec<CrossCall>,
    /// Timers that came late.
    pub timers: Vec<LateTimer>,
    /// Times without interrupts.
    pub gaps: Vec<Gap>,
    /// By CPU and state.
    pub irq_latencies: Vec<IrqLatency>,
}

/// Each gap once: one that a later interrupt reports again, with the same end, is longer than the first one knew.
#[must_use]
pub fn whole(gaps: Vec<irqlat_gap>) -> Vec<irqlat_gap> {
    let mut whole: Vec<irqlat_gap> = Vec::new();
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    for gap in gaps {
        let before = last.get(&gap.cpu).and_then(|at| whole.get_mut(*at)).filter(|one| one.at == gap.at);
        match before {
            // The first interrupt's stack is that of the code which kept interrupts off.
            Some(first) => (first.ns, first.stolen) = (gap.ns, gap.stolen),
            None => {
                last.insert(gap.cpu, whole.len());
                whole.push(gap);
            }
        }
    }
    whole
}

/// Make the tables.
#[must_use]
pub fn tables(seen: &RawIrqLatency, window: Window, kernel: &mut KernelNames) -> Tables {
    let mut tables = Tables { irq_latencies: irq_latencies(&seen.wakes), ..Tables::default() };
    let mut calls: BTreeMap<_, CrossCall> = BTreeMap::new();
    for (key, row) in &seen.rows {
        let function = name(key.function, kernel);
        let (pid, tgid, comm, cpu, state) = (key.pid, row.tgid, text(&row.comm), key.cpu, idle(key.state));
        if key.kind == LATE_CALL {
            let call = calls.entry((pid, cpu, function.clone(), state)).or_default();
            let before = std::mem::take(call);
            *call = CrossCall {
                pid,
                tgid,
                comm,
                cpu,
                function,
                site: Some(row.site).filter(|site| *site != 0).map(|site| name(site, kernel)),
                state,
                count: before.count.saturating_add(row.count),
                total_ns: before.total_ns.saturating_add(row.total_ns),
                paid_ns: before.paid_ns.saturating_add(row.paid_ns),
                worst_ns: before.worst_ns.max(row.worst_ns),
            };
        } else {
            let (count, total_ns, paid_ns, worst_ns) = (row.count, row.total_ns, row.paid_ns, row.worst_ns);
            let timer =
                LateTimer { pid, tgid, comm, cpu, function, state, count, total_ns, paid_ns, worst_ns };
            tables.timers.push(timer);
        }
    }
    tables.calls = calls.into_values().collect();
    tables
        .timers
        .sort_by(|a, b| (a.cpu, a.pid, a.state, &a.function).cmp(&(b.cpu, b.pid, b.state, &b.function)));
    tables.gaps = seen.gaps.iter().map(|(gap, stack)| reported(gap, stack, window, kernel)).collect();
    tables.gaps.sort_by_key(|gap| (gap.at_ns, gap.cpu));
    tables
}

fn reported(gap: &irqlat_gap, stack: &[u64], window: Window, kernel: &mut KernelNames) -> Gap {
    Gap {
        cpu: gap.cpu,
        at_ns: window.at(gap.at),
        ns: gap.ns,
        pid: gap.pid,
        tgid: gap.tgid,
        comm: text(&gap.comm),
        state: idle(gap.state),
        let_in: let_in(gap, stack, kernel),
        stolen_ns: u64::try_from(gap.stolen).ok().map(|ns| ns.min(gap.ns)),
        kernel: kernel.stack(stack),
    }
}

/// Whether the interrupted frame let the interrupt in: the first frame behind the interrupt's entry code, the outermost if several came.
fn let_in(gap: &irqlat_gap, stack: &[u64], kernel: &mut KernelNames) -> Option<bool> {
    if !cfg!(target_arch = "x86_64") {
        return None; // other instructions
    }
    let is_entry = |address: &u64| {
        kernel.stack(&[*address]).iter().any(|name| name.starts_with("asm_") && !name.starts_with("asm_exc_"))
    };
    let entries: Vec<bool> = stack.iter().map(is_entry).collect();
    let at = entries.iter().rposition(|entry| *entry)?.checked_add(1)?;
    Some(lets_in(*gap.before.get(at)?)).filter(|_| at < stack.len())
}

/// x86: STI (0xfb) holds interrupts back for one more instruction, which is often a NOP; POPF (0x9d) does not. So a delayed interrupt
/// has one of the two among the eight bytes before the place at which it came.
fn lets_in(before: u64) -> bool {
    before.to_ne_bytes().iter().any(|byte| [0xfb, 0x9d].contains(byte))
}

fn name(address: u64, kernel: &mut KernelNames) -> String {
    kernel.stack(&[address]).into_iter().next().unwrap_or_default()
}

fn idle(state: u32) -> Option<u32> {
    (state < RUNS).then_some(state)
}

fn irq_latencies(by_cpu: &[Vec<irqlat_wakes>]) -> Vec<IrqLatency> {
    let of = |cpu: u32, state: u32, wakes: &irqlat_wakes| IrqLatency {
        cpu,
        state: idle(state),
        count: wakes.count,
        late: wakes.late,
        late_ns: wakes.late_ns,
        name: None,
        exit_us: None,
        by_delay: wakes.by_delay.to_vec(),
    };
    let cpus = (0u32..).zip(by_cpu);
    let all = cpus.flat_map(|(cpu, states)| (0u32..).zip(states).map(move |(state, w)| of(cpu, state, w)));
    let mut rows: Vec<IrqLatency> = all.filter(|row| row.count > 0).collect();
    rows.iter_mut().filter(|row| row.late >= WORTH_A_NAME).take(MOST_NAMES).for_each(name_state);
    rows
}

/// With fewer late wake-ups than this, no report needs the name of the idle state.
const WORTH_A_NAME: u64 = 3;
/// Two small files each; neither asks another CPU.
const MOST_NAMES: usize = 64;

/// The row with the idle states of all CPUs is read last, and not at all on a host that is too slow: exactly there these names matter.
fn name_state(row: &mut IrqLatency) {
    let Some(state) = row.state else { return };
    let read = |file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{}/cpuidle/state{state}/{file}", row.cpu);
        let text = std::fs::read_to_string(path).ok()?.trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    let (name, exit) = (read("name"), read("latency"));
    (row.name, row.exit_us) = (name, exit.and_then(|us| us.parse().ok()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_is_reported_twice_is_one_with_the_first_stack_and_the_last_length() {
        let gap =
            |cpu, at, ns, stack, stolen| irqlat_gap { cpu, at, ns, stack, stolen, ..irqlat_gap::default() };
        let gaps = vec![
            gap(0, 90, 5, 7, 1),
            gap(1, 90, 6, 8, 0),
            gap(0, 90, 40, -1, 3),
            gap(0, 95, 2, 9, 0),
            gap(0, 95, 3, -1, -1),
        ];
        let told: Vec<_> =
            whole(gaps).iter().map(|one| (one.cpu, one.at, one.ns, one.stack, one.stolen)).collect();
        assert_eq!(told, [(0, 90, 40, 7, 3), (1, 90, 6, 8, 0), (0, 95, 3, 9, -1)]);
    }
}
