//! The hypervisor did not run this guest while it had work to do.
//!
//! Signal: the steal column of `/proc/stat`, by CPU, over the window. Lost: the time stolen from CPUs that had work. The runnable
//! tasks that wait for such a CPU lose more, which is the upper bound. Not this rule: CPUs that are slow for other reasons.
//!
//! Without steal each CPU would have worked for busy + stolen instead of busy time. Only CPUs count of which at least 5 % of the window
//! was stolen. The upper bound adds the runnable time of all tasks x stolen / (busy + stolen).

use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Kind, Missing, RuledOut, Share, Subject, SubjectKind, seconds};

use super::Rule;
use crate::{CpuTime, Evidence};

pub const RULE: Rule = Rule {
    id: "steal",
    question: "Did the hypervisor take CPU time from this guest while it had work?",
    what: "This host is a virtual machine. Its CPUs had work, but the hypervisor ran other guests of an overcommitted machine, or \
           enforced a limit on this guest (CPU credits, a quota on its threads).",
    how: "The steal column of /proc/stat over the window, CPU by CPU: the time that a virtual CPU was ready and did not run. Time lost = \
          time stolen, on CPUs of which at least 5 % of the window was stolen; less than 5 % of the time that all CPUs had work for is a \
          risk. Counterfactual: each CPU works for busy + stolen instead of busy time; the upper bound adds the time that tasks were ready for a CPU x stolen / (busy + stolen).",
    limits: "Only what the hypervisor reports: VMware and some others report nothing, and steal is 0. The victim is the host, because the \
             tasks that ran when time was stolen are not known. A test cannot make a hypervisor steal, so this cause is tested on \
             recorded hosts only.",
    sources: "kernel/sched/cputime.c (steal_account_process_time); arch/x86/kernel/kvm.c (kvm_steal_clock); proc(5).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Less is the noise of any shared machine, and users do not notice it in response times.
const NOTICEABLE: Share = Share::percent(5);

/// One tick is 5 % of this many ticks: in a shorter window a single tick too many makes a finding, and a single tick too few hides one.
const TICKS: u32 = 20;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.steal()?; // an error where the kernel has no such column
    ev.has_ticks(TICKS, "stolen CPU time")?;
    let all: Vec<(u32, CpuTime)> =
        ev.cpu_time_by_cpu()?.into_iter().map(|(cpu, time)| (cpu, of_window(ev, time))).collect();
    let wanted =
        |cpus: &[(u32, CpuTime)]| cpus.iter().map(|(_, time)| time.busy() + time.steal).sum::<Duration>();
    let robbed: Vec<(u32, CpuTime)> = all.iter().copied().filter(|(_, time)| is_robbed(time)).collect();
    let stolen: Duration = robbed.iter().map(|(_, time)| time.steal).sum();
    if stolen.is_zero() {
        return Ok(Vec::new());
    }
    let worst = robbed.iter().max_by_key(|(_, time)| time.steal).map_or(0, |(cpu, _)| *cpu);
    let found = finding(ev, robbed.len(), stolen, wanted(&robbed), worst).share_of(wanted(&all));
    // The share is of the work of all CPUs together: a CPU that had hardly any work may have lost half of it.
    let of_all = Share::of(stolen.as_secs_f64(), wanted(&all).as_secs_f64());
    let is_felt = of_all >= NOTICEABLE;
    Ok(vec![if is_felt {
        found
    } else {
        Finding { kind: Kind::Risk, lost: None, share: None, lost_range: None, ..found }
    }])
}

/// The files are read a moment before the window and a moment after it: no CPU lost more than the window.
fn of_window(ev: &Evidence<'_>, time: CpuTime) -> CpuTime {
    CpuTime { steal: time.steal.min(ev.window()), ..time }
}

/// Whether time was stolen from this CPU. The hypervisor can only steal from a CPU that has work: steal proves demand.
fn is_robbed(time: &CpuTime) -> bool {
    Share::of(time.steal.as_secs_f64(), time.total().as_secs_f64()) >= NOTICEABLE
}

fn finding(ev: &Evidence<'_>, cpus: usize, stolen: Duration, wanted: Duration, worst: u32) -> Finding {
    let share = Share::of(stolen.as_secs_f64(), wanted.as_secs_f64());
    let queued =
        ev.tasks().unwrap_or_default().iter().map(|task| task.runnable_ns).fold(0, u64::saturating_add);
    let behind = Duration::from_nanos(queued).mul_f64(share.ratio().clamp(0.0, 1.0));
    let which =
        if cpus == 1 { format!("CPU {worst}") } else { format!("{cpus} CPUs (the most from CPU {worst})") };
    let waits_for = "a physical CPU of the hypervisor's machine".to_owned();
    Finding::cause(RULE.id, Subject::host(), stolen)
        .titled(format!(
            "the hypervisor took {share} of the time that {which} had work for"
        ))
        .between(stolen, stolen + behind)
        .raw_wait(stolen)
        .by(Culprit::new(SubjectKind::Hypervisor, "hypervisor", "the hypervisor: other guests, or this guest's CPU limit"))
        .hop(Hop::new(Reason::Steal, "virtual CPUs with work", waits_for, TaskState::Runnable, stolen))
        .check("column st: the percentage of time stolen", "vmstat 1 5")
        .advice(
            "nothing inside this guest helps: ask the operator of the hypervisor for dedicated CPUs or a less loaded machine (costs \
             money), or raise this guest's CPU limit there (undo: the old limit); on instances with CPU credits, check the balance",
        )
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let stolen = ev.steal()?;
    ev.has_ticks(TICKS, "stolen CPU time")?;
    let share = Share::of(stolen.as_secs_f64(), ev.cpu_time()?.total().as_secs_f64());
    let evidence = match stolen {
        Duration::ZERO => "no CPU time was stolen".to_owned(),
        some => format!("{} of CPU time was stolen, {share} of all", seconds(some)),
    };
    Ok(Some(RuledOut { what: "the hypervisor".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::Task;

    use super::*;
    use crate::evidence::fixture::Fixture;

    /// Ten seconds: CPU 0 was busy for `busy` ticks, and `stolen` ticks were stolen from it. CPU 1 was idle.
    fn host(busy: u64, stolen: u64) -> Fixture {
        let idle = 1000 - busy - stolen;
        let end = format!(
            "cpu  {busy} 0 0 {} 0 0 0 {stolen}\ncpu0 {busy} 0 0 {idle} 0 0 0 {stolen}\ncpu1 0 0 0 1000 0 0 0 0\n",
            idle + 1000
        );
        Fixture::window(Duration::from_secs(10))
            .start("proc/stat", "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n")
            .end("proc/stat", &end)
    }

    #[test]
    fn fires_when_a_busy_cpu_is_robbed() {
        let queued = Task { runnable_ns: 10_000_000_000, ..Task::default() };
        let host = host(750, 250).with(|t| t.tasks = Some(vec![queued]));
        let found = check(&host.ev()).unwrap();
        assert_eq!((found[0].kind, found[0].lost), (Kind::Cause, Some(Duration::from_millis(2500))));
        assert_eq!(found[0].lost_range, Some((Duration::from_millis(2500), Duration::from_millis(5000))));
        assert_eq!(found[0].title, "the hypervisor took 25 % of the time that CPU 0 had work for");
        assert_eq!(found[0].share, Some(Share::of(1.0, 4.0)));
    }

    /// Half of the work time is stolen from a CPU that hardly works, beside a CPU that works all the time.
    #[test]
    fn little_of_what_all_cpus_did_is_a_risk() {
        let stat = |busy: u64, stolen: u64, idle: u64| {
            format!(
                "cpu  {} 0 0 {idle} 0 0 0 {stolen}\ncpu0 {stolen} 0 0 {idle} 0 0 0 {stolen}\ncpu1 {busy} 0 0 0 0 0 0 0\n",
                busy + stolen
            )
        };
        let found = |stolen: u64| {
            let host = Fixture::window(Duration::from_secs(10));
            let host = host
                .start("proc/stat", &stat(0, 0, 0))
                .end("proc/stat", &stat(1000, stolen, 1000 - 2 * stolen));
            check(&host.ev()).unwrap().remove(0)
        };
        assert_eq!((found(50).kind, found(50).lost), (Kind::Risk, None));
        assert_eq!((found(60).kind, found(60).lost), (Kind::Cause, Some(Duration::from_millis(600))));
    }

    #[test]
    fn is_quiet_below_the_noise_and_says_how_little_it_was() {
        assert_eq!(check(&host(900, 40).ev()), Ok(vec![]));
        let not = rules_out(&host(900, 40).ev()).unwrap().unwrap();
        assert_eq!(not.evidence, "400 ms of CPU time was stolen, 2 % of all");
    }

    #[test]
    fn a_window_of_a_few_ticks_cannot_tell_and_nobody_loses_more_than_it() {
        // The last process of a trace ended after 9 ms. The kernel counted a tick of each CPU as stolen.
        let host = |ms, busy, stolen| {
            let end = format!("cpu  {busy} 0 0 0 0 0 0 {stolen}\ncpu0 {busy} 0 0 0 0 0 0 {stolen}\n");
            Fixture::window(Duration::from_millis(ms))
                .start("proc/stat", "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n")
                .end("proc/stat", &end)
        };
        for asked in [check(&host(9, 1, 2).ev()).map(drop), rules_out(&host(9, 1, 2).ev()).map(drop)] {
            let said = asked.unwrap_err().to_string();
            assert_eq!(
                said,
                "cannot tell stolen CPU time: it is counted in ticks of 10 ms, and the window was 9 ms"
            );
        }
        let found = check(&host(300, 1, 32).ev()).unwrap();
        assert_eq!(found[0].lost, Some(Duration::from_millis(300)));
    }

    #[test]
    fn is_quiet_on_metal() {
        assert_eq!(check(&host(1000, 0).ev()), Ok(vec![]));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let nothing = check(&Fixture::second().ev()).unwrap_err();
        assert_eq!(nothing.to_string(), "proc/stat was not recorded");
        let old = Fixture::second()
            .start("proc/stat", "cpu  0 0 0 0 0 0 0\n")
            .end("proc/stat", "cpu  1 1 1 1 1 1 1\n");
        assert_eq!(
            check(&old.ev()).unwrap_err().to_string(),
            "this kernel has no steal time; it needs Linux 2.6.11"
        );
        let once = Fixture::second().end("proc/stat", "cpu  1 1 1 1 1 1 1 900\n");
        assert!(check(&once.ev()).is_err(), "a total since boot is no rate");
    }
}
