//! The cause of a gap: the kernel, which kept interrupts off, or the hypervisor, which did not run the CPU.
//!
//! A hypervisor takes a virtual CPU most of all where the guest exits to it: writing a register of a timer or an interrupt
//! controller, which kernels do with interrupts off. So an interrupt that was delayed meanwhile comes right behind the instruction
//! that enables interrupts, as if these functions had kept it off: on a virtual machine that place is no proof.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::Gap;
use whyslow_model::{Recording, Share, seconds, times};

use super::interrupted;
use crate::Evidence;
use crate::parse::{self, stat};

/// A gap without its stolen part must still be as long as the shortest gap.
const LEAST: u64 = 1_000_000;
/// The part of a culprit's gaps that may be the hypervisor's: with half or more the one is as likely as the other.
const COMPARABLE: u64 = 2;
/// Fewer stops from outside are chance.
const ENOUGH: u64 = 3;

/// What hypervisor and firmware took from each CPU.
pub(crate) struct Stolen {
    /// By CPU, in the window; none where the hypervisor does not report it.
    steal: BTreeMap<u32, Duration>,
    /// By CPU: how often, and how long, it stood still where no kernel keeps interrupts off.
    outside: BTreeMap<u32, (u64, u64)>,
    /// ... of these, the times when it was not idle.
    running: BTreeMap<u32, (u64, u64)>,
    window: Duration,
    is_real: bool,
}

impl Stolen {
    /// In this recording.
    pub fn of(rec: &Recording) -> Self {
        let ev = Evidence::of(rec);
        let times = if tells(rec) { ev.cpu_time_by_cpu().unwrap_or_default() } else { Vec::new() };
        let (mut outside, mut running) = (BTreeMap::new(), BTreeMap::new());
        for gap in rec.tables.gaps.iter().flatten().filter(|gap| is_outside(gap)) {
            add(&mut outside, gap);
            if gap.state.is_none() {
                add(&mut running, gap);
            }
        }
        Stolen {
            steal: times.into_iter().map(|(cpu, time)| (cpu, time.steal)).collect(),
            outside,
            running,
            window: rec.window(),
            is_real: ev.cpu_info().is_ok_and(|info| !info.flags.is_empty() && !info.has("hypervisor")),
        }
    }

    /// Why these gaps of `cpu` may not be the kernel's; `None`: they are the kernel's.
    pub fn doubt(&self, cpu: u32, gaps: &[&Gap]) -> Option<String> {
        let sum = |gaps: &mut dyn Iterator<Item = &&Gap>| {
            gaps.fold(0u64, |sum, gap| sum.saturating_add(own_ns(gap)))
        };
        let held = sum(&mut gaps.iter());
        let untold = sum(&mut gaps.iter().filter(|gap| gap.stolen_ns.is_none()));
        if untold.saturating_mul(COMPARABLE) < held {
            return None;
        }
        let is_comparable = |ns: u64| ns.saturating_mul(COMPARABLE) >= held;
        if let Some(steal) = self.steal.get(&cpu) {
            let ns = u64::try_from(steal.as_nanos()).unwrap_or(u64::MAX);
            let share = Share::of(steal.as_secs_f64(), self.window.as_secs_f64());
            return is_comparable(ns).then(|| {
                format!("the hypervisor took {share} of CPU {cpu} in the window, and when is not known")
            });
        }
        let (count, ns) = self.outside.get(&cpu).copied().unwrap_or_default();
        let stops = !self.is_real && count >= ENOUGH && is_comparable(ns);
        stops.then(|| {
            let (often, all) = (times(count), seconds(Duration::from_nanos(ns)));
            format!(
                "CPU {cpu} stood still where interrupts are on, too, {often}, {all} in all: firmware or a \
                 hypervisor that reports no steal time stops it"
            )
        })
    }

    /// Whether what the hypervisor took of `cpu` is comparable with these `ns` of late wake-ups from idle states: by its own report,
    /// else by how long that CPU stood still while it ran.
    pub fn took_as_much(&self, cpu: u32, ns: u64) -> bool {
        let took = match self.steal.get(&cpu) {
            Some(steal) => u64::try_from(steal.as_nanos()).unwrap_or(u64::MAX),
            None if self.is_real => 0,
            None => self.running.get(&cpu).filter(|(count, _)| *count >= ENOUGH).map_or(0, |(_, ns)| *ns),
        };
        took > 0 && took.saturating_mul(COMPARABLE) >= ns
    }

    /// Whether that is so of a CPU, whichever it is.
    pub fn took_somewhere(&self, ns: u64) -> bool {
        self.steal.keys().chain(self.running.keys()).any(|cpu| self.took_as_much(*cpu, ns))
    }
}

fn add(sums: &mut BTreeMap<u32, (u64, u64)>, gap: &Gap) {
    let (times, ns) = sums.entry(gap.cpu).or_default();
    (*times, *ns) = (times.saturating_add(1), ns.saturating_add(own_ns(gap)));
}

/// The part of a gap that was not stolen, as far as that is known.
pub(crate) fn own_ns(gap: &Gap) -> u64 {
    gap.ns.saturating_sub(gap.stolen_ns.unwrap_or(0))
}

/// A gap without its stolen part; `None`: all of it was stolen. The end stays: what is left lies before it.
pub(super) fn own(gap: &Gap) -> Option<Gap> {
    let ns = own_ns(gap);
    (ns >= LEAST.min(gap.ns)).then(|| Gap { ns, ..gap.clone() })
}

/// Places where no kernel keeps interrupts off: user code, behind an instruction that does not enable interrupts, or idle.
fn is_outside(gap: &Gap) -> bool {
    gap.state.is_some()
        || gap.let_in == Some(false)
        || interrupted(gap).is_some_and(|frames| frames.is_empty())
}

/// Whether the hypervisor reports what it takes: if it does, each CPU has some since boot.
fn tells(rec: &Recording) -> bool {
    let stat = rec.last("proc/stat").ok().and_then(|frame| stat::parse(&parse::text(&frame.bytes)).ok());
    stat.is_some_and(|stat| stat.all.steal.is_some_and(|ticks| ticks > 0))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::gap;
    use super::*;
    use crate::evidence::fixture::Fixture;

    const MS: u64 = 1_000_000;
    const KEPT: [&str; 3] = ["hrtimer_interrupt", "asm_sysvec_apic_timer_interrupt", "sort_rows"];
    /// Ticks: user nice system idle iowait irq softirq steal.
    const BEFORE: &str = "cpu 0 0 0 0 0 0 0 10\ncpu1 0 0 0 0 0 0 0 10\n";

    fn host(stolen_ticks: u64) -> Fixture {
        let after = format!("cpu 0 0 0 50 0 0 0 {0}\ncpu1 0 0 0 50 0 0 0 {0}\n", 10 + stolen_ticks);
        Fixture::second().start("proc/stat", BEFORE).end("proc/stat", &after)
    }

    fn kept() -> Vec<Gap> {
        vec![Gap { let_in: Some(true), ..gap(1, 9, &KEPT) }; 5]
    }

    fn doubt(host: &Fixture, gaps: &[Gap]) -> Option<String> {
        Stolen::of(&host.0).doubt(1, &gaps.iter().collect::<Vec<_>>())
    }

    #[test]
    fn steal_that_could_have_made_half_of_the_gaps_is_a_doubt() {
        assert_eq!(doubt(&host(4), &kept()), None, "40 of 100 ms");
        let why = doubt(&host(5), &kept()).unwrap();
        assert!(why.starts_with("the hypervisor took 5 % of CPU 1"), "{why}");
    }

    #[test]
    fn where_each_gap_is_reported_there_is_no_doubt() {
        let reported: Vec<Gap> = kept().into_iter().map(|gap| Gap { stolen_ns: Some(0), ..gap }).collect();
        assert_eq!(doubt(&host(60), &reported), None);
        let robbed = Gap { stolen_ns: Some(18 * MS), ..kept().remove(0) };
        assert_eq!(own(&robbed).map(|gap| (gap.ns, gap.at_ns)), Some((2 * MS, 500 * MS)));
        assert_eq!(own(&Gap { stolen_ns: Some(25 * MS), ..kept().remove(0) }), None);
    }

    #[test]
    fn a_silent_hypervisor_shows_in_user_code_in_idle_and_where_interrupts_are_on() {
        let silent = |outside: Vec<Gap>, flags: &str| {
            let info = format!("processor : 0\nflags : fpu {flags}\n");
            let host = Fixture::second().end("proc/cpuinfo", &info);
            doubt(&host.with(|tables| tables.gaps = Some([kept(), outside].concat())), &kept())
        };
        let user = gap(1, 7, &KEPT[..2]);
        let idle = Gap { state: Some(1), ..gap(1, 0, &KEPT) };
        let open = Gap { let_in: Some(false), ..gap(1, 8, &KEPT) };
        assert!(silent(vec![user.clone(), idle.clone(), open], "hypervisor").is_some());
        assert_eq!(silent(vec![user.clone(); 2], "hypervisor"), None, "two are chance");
        assert_eq!(silent(vec![Gap { ns: 5 * MS, ..user.clone() }; 9], "hypervisor"), None, "45 of 100 ms");
        assert_eq!(silent(vec![gap(0, 7, &KEPT[..2]); 9], "hypervisor"), None, "another CPU");
        assert_eq!(silent(vec![idle; 9], ""), None, "a real machine: the place is a proof");
    }

    #[test]
    fn late_wakes_on_a_cpu_that_is_stopped_while_it_runs_are_no_slow_idle_state() {
        let took = |host: Fixture, gap: Gap| {
            Stolen::of(&host.with(|tables| tables.gaps = Some(vec![gap; 5])).0).took_as_much(1, 200 * MS)
        };
        let user = gap(1, 7, &KEPT[..2]);
        assert!(took(Fixture::second(), user.clone()), "100 ms of stops, 200 ms of late wakes");
        assert!(!took(Fixture::second(), Gap { ns: 19 * MS, ..user.clone() }));
        assert!(
            !took(Fixture::second(), Gap { state: Some(1), pid: 0, ..user.clone() }),
            "in idle only: its state"
        );
        let real = Fixture::second().end("proc/cpuinfo", "processor : 0\nflags : fpu\n");
        assert!(!took(real, user.clone()));
        assert!(took(host(10), Gap { stolen_ns: Some(20 * MS), ..user.clone() }) && !took(host(9), user));
    }

    #[test]
    fn without_files_nothing_is_known_of_the_machine() {
        let mut host = Fixture::second();
        assert_eq!(doubt(&host, &kept()), None);
        host.0.tables.gaps = Some([kept(), vec![gap(1, 7, &KEPT[..2]); 5]].concat());
        assert!(doubt(&host, &kept()).is_some());
    }
}
