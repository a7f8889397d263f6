//! All BPF probes of a window, together: started, polled, ended, and turned into tables.

mod end;
mod load;
mod probe;
pub mod registry;
mod slots;
mod traced;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use whyslow_model::{Missing, MissingNote};

use crate::bpf::{oncpu, pidns, programs, sched, tasks};
use crate::kallsyms::Kallsyms;
use crate::record::{Follow, Plan};
use crate::speed::{Speeds, which};

use load::Running;
pub use probe::{Ending, Entry, Kernel, KernelTypes, LentMaps, LoadOrder, Probe, Slot, Start, own};
pub use slots::Slots;
pub use traced::Traced;

/// The probes that run. One that could not start is noted as missing.
#[derive(Default)]
pub struct Probes<'slot> {
    tasks: Option<tasks::Tasks<'slot>>,
    sched: Option<sched::Sched<'slot>>,
    /// Those of the registry, in its order.
    running: Vec<Running<'slot>>,
    programs: Option<programs::Programs>,
    speeds: Option<Speeds>,
    /// `None`: ids are those of the initial namespace, or cannot be known.
    pidns: Option<pidns::PidNamespace<'slot>>,
    /// Our ids cannot be translated to those that BPF uses.
    is_untranslated: bool,
    /// Probes that few users need are left out.
    is_thrifty: bool,
    /// A command, process or cgroup is followed.
    follows: bool,
    kallsyms: Kallsyms,
    code: Vec<Range<u64>>,
    /// CPUs that a timer may interrupt to sample what runs there, as long as no process has them for itself.
    sampled: Vec<u32>,
    /// Threads that are followed from the begin of the window on, by the ids that BPF uses.
    followed: Vec<u32>,
    start: tasks::Snapshot,
}

/// The part of the window in which the kernel counts the run time of BPF programs: counting costs, too.
const STATISTICS_FROM: f64 = 0.4;
const STATISTICS_TO: f64 = 0.6;
/// Windows of this length and more have no known end: they last until a command ends.
const OPEN_ENDED: Duration = Duration::from_secs(24 * 3600);
/// In a window without a known end: so much of seconds 0, 1, 2, 4, 8, ...; the last part stands for all later time.
const STATISTICS_OPEN: Duration = Duration::from_millis(200);

/// Whether the run time of BPF programs is counted now.
fn is_sampled(at: Duration, window: Duration) -> bool {
    if window < OPEN_ENDED {
        return at >= window.mul_f64(STATISTICS_FROM) && at < window.mul_f64(STATISTICS_TO);
    }
    let second = at.as_secs();
    (second == 0 || second.is_power_of_two()) && at - Duration::from_secs(second) < STATISTICS_OPEN
}

/// The value, or a note of why there is none.
fn keep<T>(result: Result<T, Missing>, missing: &mut Vec<MissingNote>) -> Option<T> {
    result.map_err(|why| missing.push(why.into())).ok()
}

impl Probes<'_> {
    /// The kernel's symbols.
    #[must_use]
    pub fn kallsyms(&self) -> &Kallsyms {
        &self.kallsyms
    }

    /// The window begins.
    pub fn begin(&mut self, follow: Option<&Follow>, missing: &mut Vec<MissingNote>) {
        if let Some(follow) = follow {
            self.follow(follow, missing);
        }
        if let Some(sched) = &mut self.sched
            && keep(sched.begin(), missing).is_none()
        {
            self.sched = None;
        }
        if let Some(tasks) = &mut self.tasks {
            self.start = keep(tasks.snapshot(), missing).unwrap_or_default();
        }
    }

    /// Set no sampler on a CPU that one process has for itself.
    pub fn spare_owned(&mut self, plan: &Plan, missing: &mut Vec<MissingNote>) {
        let owned =
            if plan.all_cpus { BTreeMap::new() } else { which::owned(&self.start.tasks, &self.sampled) };
        if self.running.is_empty() {
            return;
        }
        let open = which::unowned(&self.sampled, &owned);
        if open.is_empty() {
            let reason =
                "a timer samples them, and each CPU belongs to one process; whyslow cpu --all-cpus sets it";
            missing.push(Missing::skipped("owners of kernel locks while a wait lasts", reason).into());
        }
        let isolated = which::isolated(Path::new("/"));
        let reported: Vec<u32> = owned.keys().copied().filter(|cpu| !isolated.contains_key(cpu)).collect();
        missing.extend(oncpu::spared(&reported, "each used by one process alone"));
        self.tell(missing, |probe| probe.may_interrupt(&open));
    }

    /// The window begins now: all files that are read before it were read. What the probes counted since they were attached does
    /// not belong to it: on a slow host that can be seconds.
    pub fn count(&mut self, missing: &mut Vec<MissingNote>) {
        self.tell(missing, |probe| probe.begin());
    }

    /// Start the threads that measure the CPUs. Not where a command is followed: the measurement would take its CPU time.
    pub fn measure(&mut self, plan: &Plan, missing: &mut Vec<MissingNote>) {
        if plan.root == Path::new("/") && plan.follow.is_none() && (plan.needs_speeds || !self.is_thrifty) {
            let own = self.pidns.as_ref().map_or_else(std::process::id, |pidns| pidns.own());
            let mut tasks = self.start.tasks.clone();
            // The priority that we loaded with (`priority`) is gone.
            tasks.iter_mut().filter(|task| task.tgid == own).for_each(|task| task.policy = 0);
            let tasks = self.shown(&tasks, missing);
            self.speeds = keep(Speeds::begin(plan.window, &tasks, plan.all_cpus), missing);
        }
    }

    /// Our own process, by the id that the recording's tables use.
    #[must_use]
    pub fn own_pid(&self) -> u32 {
        let shown = self.pidns.as_ref().and_then(|pidns| pidns.numbers().ok()?.inside(pidns.own()));
        shown.unwrap_or_else(std::process::id)
    }

    /// These tasks with the ids by which /proc knows them.
    fn shown(&self, tasks: &[tasks::tasks_one], missing: &mut Vec<MissingNote>) -> Vec<tasks::tasks_one> {
        let mut tasks = tasks.to_vec();
        if let Some(numbers) = self.pidns.as_ref().and_then(|pidns| keep(pidns.numbers(), missing)) {
            tasks.iter_mut().for_each(|task| numbers.show([&mut task.pid, &mut task.tgid]));
        }
        tasks
    }

    /// A bounded part of the work within the window. True: there may be more to take.
    pub fn poll(&mut self, at: Duration, window: Duration) -> bool {
        let mut more = false;
        if let Some(programs) = &mut self.programs {
            match (is_sampled(at, window), programs.is_counting()) {
                (false, true) => {
                    programs.disable();
                    programs.knows_entry(|| self.tasks.as_ref()?.entry_cost());
                }
                // If it is refused, the rows say so at the end.
                (true, false) => drop(programs.enable()),
                _ => {}
            }
        }
        if let Some(sched) = &mut self.sched {
            // A ring buffer that cannot be read now is read at the end; if that fails too, an error is reported.
            more |= sched.poll().unwrap_or_default();
        }
        for (_, probe) in &mut self.running {
            more |= probe.poll(at);
        }
        if self.running.iter_mut().any(|(_, probe)| probe.is_felt()) {
            self.running.iter_mut().rev().for_each(|(_, probe)| probe.let_go());
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::locks;

    /// A program that the verifier needs long for delays the begin of each window, and takes CPU time from a host that has none to spare.
    #[test]
    fn root_no_program_keeps_the_verifier_for_long() {
        /// The largest takes some 70,000 on Linux 6.18.
        const MOST: u32 = 120_000;
        let follow = crate::record::Follow {
            slow: Some(Duration::from_millis(5)),
            user_stacks: true,
            ..Default::default()
        };
        let plan = Plan {
            window: Duration::from_secs(1),
            root: "/".into(),
            follow: Some(follow),
            ..Plan::default()
        };
        let (mut slots, mut missing) = (Slots::default(), Vec::new());
        let probes = Probes::load(&mut slots, &plan, &mut missing);
        let ours = load::own_programs();
        assert!(ours.len() > 20, "{missing:?}");
        let all = libbpf_rs::query::ProgInfoIter::default().filter(|program| ours.contains(&program.id));
        let walked: Vec<(u32, String)> = all
            .map(|program| (program.verified_insns, program.name.to_string_lossy().into_owned()))
            .collect();
        assert!(walked.len() > 20, "{walked:?}");
        if walked.iter().all(|(insns, _)| *insns == 0) {
            eprintln!("not run: Linux reports it since 5.16");
            return;
        }
        assert!(
            walked.iter().any(|(_, name)| name == "entered"),
            "system calls of followed tasks: {walked:?}"
        );
        let long: Vec<_> = walked.iter().filter(|(insns, _)| *insns > MOST).collect();
        assert!(long.is_empty(), "{long:?}");
        drop(probes);
    }

    #[test]
    fn root_no_sampler_is_set_on_a_cpu_that_a_process_has_for_itself() {
        let open = which::unisolated(Path::new("/"));
        let [owned, others @ ..] = &open[..] else { panic!("no CPU is online") };
        if others.is_empty() {
            eprintln!("not run: there is only one CPU");
            return;
        }
        let plan = Plan { window: Duration::from_secs(1), root: "/".into(), ..Plan::default() };
        let (mut slots, mut missing) = (Slots::default(), Vec::new());
        let mut probes = Probes::load(&mut slots, &plan, &mut missing);
        let watched = |probes: &Probes<'_>| {
            [locks::ENTRY.capability, oncpu::ENTRY.capability].map(|name| {
                let at = registry::ALL.iter().position(|entry| entry.capability == name);
                let of = probes.running.iter().find(|(of, _)| Some(*of) == at);
                of.expect("root may load it").1.interrupts()
            })
        };
        let first_two = |of: &[u32]| of.iter().copied().take(2).collect::<Vec<_>>();
        assert_eq!(watched(&probes)[0], [0; 0], "the owners of CPUs are not known yet");
        let of = |tgid, cpus: &[u32]| {
            let mut task = tasks::tasks_one { pid: tgid, tgid, ..tasks::tasks_one::default() };
            cpus.iter().for_each(|cpu| task.allowed[*cpu as usize / 64] |= 1 << (cpu % 64));
            task
        };
        probes.start.tasks = vec![of(7, &[*owned]), of(8, others), of(9, others)];
        probes.spare_owned(&plan, &mut missing);
        assert_eq!(watched(&probes), [first_two(others), others.to_vec()]);
        probes.spare_owned(&Plan { all_cpus: true, ..plan }, &mut missing);
        assert_eq!(watched(&probes), [first_two(&open), open]);
    }

    #[test]
    fn run_time_is_counted_in_a_fifth_of_a_window_or_now_and_then_if_it_has_no_known_end() {
        let counted =
            |window, to| (0..to).filter(|ms| is_sampled(Duration::from_millis(*ms), window)).count();
        assert_eq!(counted(Duration::from_secs(10), 10_000), 2_000);
        let open = Duration::from_secs(100 * 365 * 86_400);
        assert!(is_sampled(Duration::ZERO, open), "a command may be short");
        assert_eq!(counted(open, 100_000), 200 * 8);
    }
}
