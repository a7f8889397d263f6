//! Why the IRQ latency of a CPU is high: the idle state that it wakes from, a thread that keeps interrupts off, or neither.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Recording;
use whyslow_model::table::{Gap, IrqLatency};

use crate::parse;
use crate::stacks::symbol;

mod culprits;
mod file;
#[cfg(test)]
pub(crate) mod fixture;
mod stolen;
mod victims;

pub(crate) use culprits::{Doubt, LatencyCulprit, at_end, culprits, judged};
pub(crate) use file::asked_through;
use file::spun_in;
pub(crate) use stolen::{Stolen, own_ns};
pub(crate) use victims::{LatencyVictim, LatencyVictims, VictimWait};

/// An idle state as its driver describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdleState {
    /// "C3"; without a driver its number: "1".
    pub name: String,
    /// The exit latency that the driver states.
    pub exit: Option<Duration>,
}

/// Idle state `state` of CPU `cpu`.
pub(crate) fn idle_state(rec: &Recording, cpu: u32, state: u32) -> IdleState {
    let read = |file: &str| {
        let name = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/{file}");
        let text = parse::text(&rec.last(&name).ok()?.bytes).trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    let rows = rec.tables.irq_latencies.iter().flatten();
    let row = rows.into_iter().find(|row| (row.cpu, row.state) == (cpu, Some(state)));
    let exit = row.and_then(|row| row.exit_us).or_else(|| read("latency")?.parse().ok());
    let name = row.and_then(|row| row.name.clone()).or_else(|| read("name"));
    IdleState {
        name: name.unwrap_or_else(|| format!("number {state}")),
        exit: exit.map(Duration::from_micros),
    }
}

impl IdleState {
    /// "idle state C3 (its driver says 800 us)".
    pub fn words(&self) -> String {
        match self.exit {
            Some(exit) => format!("idle state {} ({} us by its driver)", self.name, exit.as_micros()),
            None => format!("idle state {}", self.name),
        }
    }
}

/// A hundredth of what a user notices: most wake-ups from a state must take longer than this before the state is to blame.
const SLOW: Duration = Duration::from_millis(2);
/// The shallowest state in which a CPU sleeps. On x86 a CPU spins in state 0 (POLL): if it comes late from there, something outside stopped it.
const SLEEPS: u32 = 1;
/// At most this part may be quick: a slow state is slow every time, a host that is busy elsewhere only at times.
const OF_ALL: f64 = 0.25;
/// ... and fewer wake-ups than this prove nothing.
const ENOUGH: u64 = 5;

/// Whether waking from this state is slow, and not just late now and then.
pub(crate) fn is_slow(row: &IrqLatency) -> bool {
    let counted: u64 = row.by_delay.iter().fold(0, |sum, n| sum.saturating_add(*n));
    row.state.is_some_and(|state| state >= SLEEPS)
        && counted >= ENOUGH
        && u128::from(row.quantile_ns(OF_ALL)) >= SLOW.as_nanos()
}

/// Idle states from which CPUs wake slowly: (CPU, state). States whose latency may be the hypervisor's are left out.
pub(crate) fn slow_states(rec: &Recording) -> Vec<(u32, u32)> {
    let rows = rec.tables.irq_latencies.as_deref().unwrap_or_default();
    let stolen = Stolen::of(rec);
    let slow = rows.iter().filter(|row| is_slow(row) && !stolen.took_as_much(row.cpu, row.late_ns));
    slow.filter_map(|row| Some((row.cpu, row.state?))).collect()
}

/// Whether an interrupt enters the kernel by this function. Faults and FRED's system calls do by others (arch/x86/entry).
pub(crate) fn is_interrupt_entry(frame: &str) -> bool {
    frame.starts_with("asm_") && !frame.starts_with("asm_exc_") && frame != "asm_fred_entrypoint_user"
}

/// What was interrupted at the end of a gap, innermost first; `None`: the frames do not show it, or belong to the idle task.
pub(crate) fn interrupted(gap: &Gap) -> Option<Vec<&str>> {
    let frames: Vec<&str> = gap.kernel.iter().map(|frame| symbol(frame)).collect();
    // The entry code of the interrupt is the outermost of its frames.
    let entry = frames.iter().rposition(|frame| is_interrupt_entry(frame))?;
    (gap.pid != 0).then(|| frames.get(entry + 1..).unwrap_or_default().to_vec())
}

/// Why each CPU was late for the tasks that waited for it, in words: "which wakes from idle state C3 ...".
pub(crate) struct Reasons<'r> {
    rec: &'r Recording,
    slow: Vec<(u32, u32)>,
    culprits: BTreeMap<u32, LatencyCulprit>,
}

impl<'r> Reasons<'r> {
    /// Of this recording.
    pub fn of(rec: &'r Recording) -> Self {
        let mut by_cpu: BTreeMap<u32, LatencyCulprit> = BTreeMap::new();
        for culprit in culprits(rec) {
            by_cpu.entry(culprit.cpu).or_insert(culprit); // the culprit with the most time comes first
        }
        Reasons { rec, slow: slow_states(rec), culprits: by_cpu }
    }

    /// For a CPU that was needed while it was in this state.
    pub fn words(&self, cpu: u32, state: Option<u32>) -> String {
        match (state, self.culprits.get(&cpu)) {
            (Some(state), _) if self.slow.contains(&(cpu, state)) => {
                format!("CPU {cpu}, which wakes slowly from {}", idle_state(self.rec, cpu, state).words())
            }
            (Some(state), _) => {
                format!("CPU {cpu}, which was in {}", idle_state(self.rec, cpu, state).words())
            }
            (None, Some(culprit)) => {
                format!("CPU {cpu}, where {} keeps interrupts off in {}", culprit.who, culprit.function)
            }
            (None, None) => format!("CPU {cpu}, which ran"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{gap, irq_latency};
    use super::*;

    #[test]
    fn a_state_is_slow_if_most_wakes_are() {
        assert!(is_slow(&irq_latency(1, Some(2), &[0, 0, 0, 0, 0, 0, 9])));
        assert!(!is_slow(&irq_latency(1, Some(2), &[9, 0, 0, 0, 0, 0, 9])), "half of them are quick");
        assert!(!is_slow(&irq_latency(1, Some(2), &[0, 0, 0, 0, 0, 0, 4])), "four say nothing");
        assert!(!is_slow(&irq_latency(1, None, &[0, 0, 0, 0, 0, 0, 9])), "it ran");
        assert!(!is_slow(&irq_latency(1, Some(0), &[0, 0, 0, 0, 0, 0, 9])), "it spins there");
        assert!(!is_slow(&irq_latency(1, Some(1), &[])));
    }

    #[test]
    fn interrupted_frames_lie_behind_the_interrupt_entry_code() {
        let timer = ["hrtimer_interrupt", "asm_sysvec_apic_timer_interrupt", "sort_rows", "kthread"];
        assert_eq!(interrupted(&gap(1, 9, &timer)), Some(vec!["sort_rows", "kthread"]));
        assert_eq!(interrupted(&gap(1, 9, &timer[..2])), Some(vec![]), "user code");
        assert_eq!(interrupted(&gap(1, 9, &timer[..1])), None);
        assert_eq!(interrupted(&gap(1, 0, &timer)), None, "idle");
        let fault = ["asm_sysvec_apic_timer_interrupt", "clear_page", "asm_exc_page_fault"];
        assert_eq!(interrupted(&gap(1, 9, &fault)), Some(vec!["clear_page", "asm_exc_page_fault"]));
    }
}
