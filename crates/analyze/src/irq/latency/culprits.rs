//! Threads that keep interrupts off on a CPU: the functions at the end of gaps.
//!
//! A gap alone makes no culprit: firmware and hypervisors stop a CPU at any place. A delayed interrupt comes right
//! behind the instruction that enables interrupts; but on virtual machines (`stolen`) that is no proof. Where the place cannot be
//! known, rates decide: what stops a CPU from outside does so in proportion to time, but where interrupts are off all time is gap. And
//! a function is named only if most of the time seen in it is gaps. A function that spins waits for another CPU itself.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Recording;
use whyslow_model::table::Gap;

use super::interrupted;
use super::stolen::{Stolen, own};
use crate::process_names::ProcessNames;
use crate::stacks::doing::{function_at_work, spins};
use crate::stacks::symbol;

/// Fewer gaps are chance.
const ENOUGH: u64 = 3;
/// The part of all time seen in a function. A delayed interrupt counts one sample at its end: with gaps as long as the
/// time between samples that is half.
const OF_ITS_TIME: f64 = 0.4;
/// ... and, where the instruction is not known, this many times the share that gaps have of all other time of that CPU.
const ABOVE_OTHERS: f64 = 2.0;
/// ... and this part of the time in gaps of that CPU while it ran: a function at the end of some gaps need not cause them.
const OF_ALL_GAPS: f64 = 0.3;

/// A thread begins to run in these functions, with interrupts off until then: the cause of the delay came before it.
const SWITCHED_IN: [&str; 3] = ["__schedule", "finish_task_switch", "schedule_tail"];

/// A thread that keeps interrupts off on one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LatencyCulprit {
    /// The CPU.
    pub cpu: u32,
    /// The function at the end of the gaps.
    pub function: String,
    /// The thread that was there most.
    pub pid: u32,
    pub who: String,
    /// How many times.
    pub count: u64,
    /// The total time: a lower bound, from the moment at which an interrupt was due.
    pub total: Duration,
    /// The longest.
    pub worst: Duration,
    /// The times: (from, to), since the window began.
    pub times: Vec<(u64, u64)>,
}

/// A culprit whose gaps may be the hypervisor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The culprit, if the gaps are the kernel's.
    pub culprit: LatencyCulprit,
    /// Why it cannot be known.
    pub why: String,
}

/// The culprits, the longest first.
pub(crate) fn culprits(rec: &Recording) -> Vec<LatencyCulprit> {
    judged(rec).0
}

/// The culprits, and the doubtful ones; the longest first.
pub(crate) fn judged(rec: &Recording) -> (Vec<LatencyCulprit>, Vec<Doubt>) {
    let stolen = Stolen::of(rec);
    let gaps: Vec<Gap> = rec.tables.gaps.iter().flatten().filter_map(own).collect();
    let mut by_place: BTreeMap<(u32, &str), Vec<&Gap>> = BTreeMap::new();
    let mut all: BTreeMap<u32, u64> = BTreeMap::new();
    for gap in gaps.iter().filter(|gap| gap.state.is_none()) {
        let sum = all.entry(gap.cpu).or_default();
        *sum = sum.saturating_add(gap.ns);
        if let Some(function) = at_end(rec, gap) {
            by_place.entry((gap.cpu, function)).or_default().push(gap);
        }
    }
    let window = rec.meta.window_ns.max(1) as f64;
    let keeps = |(cpu, function): &(u32, &str), gaps: &[&Gap]| {
        let held = total(gaps) as f64;
        let seen = held + sampled(rec, function, gaps) as f64;
        let all = all.get(cpu).copied().unwrap_or(0) as f64;
        let elsewhere = (all - held) / (window - held).max(1.0);
        gaps.len() as u64 >= ENOUGH
            && held > OF_ALL_GAPS * all
            && held > OF_ITS_TIME * seen
            && (gaps.iter().all(|gap| gap.let_in == Some(true)) || held > ABOVE_OTHERS * elsewhere * seen)
    };
    // Few hosts have culprits: the names of all tasks are made only on demand.
    let names = std::cell::LazyCell::new(|| ProcessNames::in_tables(&rec.tables));
    let (mut found, mut doubts) = (Vec::new(), Vec::new());
    for ((cpu, function), gaps) in by_place.into_iter().filter(|(place, gaps)| keeps(place, gaps)) {
        let culprit = culprit(cpu, function, &gaps);
        let culprit = LatencyCulprit { who: names.shown(culprit.pid, &culprit.who), ..culprit };
        match stolen.doubt(cpu, &gaps) {
            Some(why) => doubts.push(Doubt { culprit, why }),
            None => found.push(culprit),
        }
    }
    let longest = |a: &LatencyCulprit, b: &LatencyCulprit| {
        b.total.cmp(&a.total).then_with(|| (a.cpu, &a.function).cmp(&(b.cpu, &b.function)))
    };
    found.sort_by(longest);
    doubts.sort_by(|a, b| longest(&a.culprit, &b.culprit));
    (found, doubts)
}

/// The function at the end of a gap that may have kept interrupts off; `None`: the end shows none, or it is our own.
pub(crate) fn at_end<'g>(rec: &Recording, gap: &'g Gap) -> Option<&'g str> {
    let is_own = rec.meta.is_own(gap.pid, gap.tgid);
    let frames = interrupted(gap).filter(|_| !is_own && gap.let_in != Some(false))?;
    let was_switched_in = frames.first().is_some_and(|frame| SWITCHED_IN.contains(frame));
    function_at_work(&frames).filter(|_| !was_switched_in && !spins(&frames))
}

fn total(gaps: &[&Gap]) -> u64 {
    gaps.iter().fold(0, |sum, gap| sum.saturating_add(gap.ns))
}

/// Time that samples saw in this function, in the threads that were at the end of the gaps.
fn sampled(rec: &Recording, function: &str, gaps: &[&Gap]) -> u64 {
    let is_theirs = |pid: u32| gaps.iter().any(|gap| gap.pid == pid);
    let samples = rec.tables.samples.iter().flatten().filter(|sample| is_theirs(sample.pid));
    let within = samples.filter(|sample| {
        let snapshots: Vec<&str> = sample.kernel.iter().map(|snapshot| symbol(snapshot)).collect();
        function_at_work(&snapshots) == Some(function)
    });
    within.fold(0, |sum, sample| sum.saturating_add(sample.ns))
}

fn culprit(cpu: u32, function: &str, gaps: &[&Gap]) -> LatencyCulprit {
    let mut by_pid: BTreeMap<u32, (u64, &str)> = BTreeMap::new();
    for gap in gaps {
        let sum = by_pid.entry(gap.pid).or_insert((0, &gap.comm));
        sum.0 = sum.0.saturating_add(gap.ns);
    }
    let (pid, who) =
        by_pid.iter().max_by_key(|(_, (ns, _))| *ns).map_or((0, ""), |(pid, (_, who))| (*pid, *who));
    LatencyCulprit {
        cpu,
        function: function.to_owned(),
        pid,
        who: who.to_owned(),
        count: gaps.len() as u64,
        total: Duration::from_nanos(total(gaps)),
        worst: Duration::from_nanos(gaps.iter().map(|gap| gap.ns).max().unwrap_or(0)),
        times: gaps.iter().map(|gap| (gap.at_ns.saturating_sub(gap.ns), gap.at_ns)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use whyslow_model::FileSnapshot;
    use whyslow_model::table::Sample;

    use super::super::fixture::{gap, host};
    use super::*;

    const OFF: [&str; 4] = ["hrtimer_interrupt", "asm_sysvec_apic_timer_interrupt", "sort_rows", "kthread"];

    fn sampled_ms(ms: u64) -> Vec<Sample> {
        let kernel = ["sort_rows", "kthread"].map(str::to_owned).to_vec();
        vec![Sample { pid: 9, count: ms / 10, ns: ms * 1_000_000, kernel, ..Sample::default() }]
    }

    #[test]
    fn function_seen_mostly_in_gaps_keeps_interrupts_off() {
        let mut rec = host();
        rec.tables.gaps = Some(vec![gap(1, 9, &OFF); 5]);
        rec.tables.samples = Some(sampled_ms(50));
        let found = culprits(&rec);
        assert_eq!((found.len(), found[0].cpu, found[0].function.as_str()), (1, 1, "sort_rows"));
        assert_eq!((found[0].pid, found[0].count, found[0].total), (9, 5, Duration::from_millis(100)));
    }

    #[test]
    fn function_seen_mostly_outside_gaps_keeps_no_interrupts_off() {
        let mut rec = host();
        rec.tables.gaps = Some(vec![gap(1, 9, &OFF); 5]);
        rec.tables.samples = Some(sampled_ms(800));
        assert_eq!(culprits(&rec), []);
    }

    #[test]
    fn user_code_the_idle_task_and_a_few_gaps_accuse_nobody() {
        let mut rec = host();
        rec.tables.gaps = Some(
            [vec![gap(1, 9, &OFF[..2]); 9], vec![gap(1, 0, &OFF); 9], vec![gap(1, 9, &OFF); 2]].concat(),
        );
        assert_eq!(culprits(&rec), []);
    }

    #[test]
    fn gap_not_behind_an_interrupt_enabling_instruction_accuses_no_thread() {
        let mut rec = host();
        let reported = |let_in| Gap { let_in: Some(let_in), ..gap(1, 9, &OFF) };
        rec.tables.gaps = Some(vec![reported(false); 9]);
        assert_eq!(culprits(&rec), []);
        // Other places stop, too; these interrupts were let in, and the machine is a real one.
        rec.tables.gaps = Some([vec![reported(true); 5], vec![gap(1, 7, &OFF[..2]); 8]].concat());
        let info = b"processor : 0\nflags : fpu tsc\n".to_vec();
        rec.snapshots.push(FileSnapshot {
            at: Duration::from_secs(1),
            name: "proc/cpuinfo".into(),
            bytes: info,
        });
        assert_eq!(culprits(&rec).len(), 1);
    }

    #[test]
    fn time_stolen_by_the_hypervisor_is_charged_to_no_culprit() {
        let mut rec = host();
        let reported = |stolen_ms: u64| Gap {
            let_in: Some(true),
            stolen_ns: Some(stolen_ms * 1_000_000),
            ..gap(1, 9, &OFF)
        };
        rec.tables.gaps = Some(vec![reported(20); 49]);
        assert_eq!(judged(&rec), (vec![], vec![]));
        // Some gaps were kept off, and one was both.
        rec.tables.gaps = Some([vec![reported(20); 9], vec![reported(0); 3], vec![reported(15)]].concat());
        let (found, doubts) = judged(&rec);
        assert_eq!((found[0].count, found[0].total), (4, Duration::from_millis(65)));
        assert!(found.len() == 1 && doubts.is_empty());
    }

    #[test]
    fn where_it_may_have_been_the_hypervisor_nobody_is_accused() {
        let mut rec = host();
        let kept = Gap { let_in: Some(true), ..gap(1, 9, &OFF) };
        rec.tables.gaps = Some([vec![kept; 5], vec![gap(1, 7, &OFF[..2]); 8]].concat());
        let (found, doubts) = judged(&rec);
        assert_eq!((found, doubts.len()), (vec![], 1));
        assert_eq!((doubts[0].culprit.function.as_str(), doubts[0].culprit.count), ("sort_rows", 5));
    }

    #[test]
    fn thread_just_switched_in_keeps_no_interrupts_off() {
        let mut rec = host();
        let switched =
            ["hrtimer_interrupt", "asm_sysvec_apic_timer_interrupt", "__schedule", "rcu_gp_kthread"];
        rec.tables.gaps = Some(vec![Gap { let_in: Some(true), ..gap(1, 9, &switched) }; 9]);
        assert_eq!(culprits(&rec), []);
    }

    #[test]
    fn spinning_thread_keeps_no_interrupts_off() {
        let mut rec = host();
        let spins = ["asm_sysvec_apic_timer_interrupt", "smp_call_function_single", "vfs_read"];
        rec.tables.gaps = Some(vec![gap(1, 9, &spins); 9]);
        assert_eq!(culprits(&rec), []);
    }

    #[test]
    fn where_all_stand_still_nobody_does_it() {
        let mut rec = host();
        rec.tables.gaps = Some([vec![gap(1, 7, &OFF[..2]); 20], vec![gap(1, 9, &OFF); 3]].concat());
        rec.tables.samples = Some(sampled_ms(30));
        assert_eq!(culprits(&rec), []);
    }
}
