use whyslow_model::Kind;
use whyslow_model::table::{Cgroup, CgroupCpu, Met, Run, Sample, Spin};

use super::*;
use crate::evidence::fixture::Fixture;

/// `1: pause; mov eax, [rip+...]; test eax, eax; je 1b`
const PAUSE: &str = "f3908b05682c000085c074f4c3";
/// `1: imul rax, rcx; add rax, rdx; cmp rax, 12345; jne 1b`
const LCG: &str = "480fafc14801d0483d3930000075f1";

struct Busy {
    code: &'static str,
    threads: u32,
    policy: u32,
    /// CPU time that process 7 got.
    got_ms: u64,
    /// The wait of each of twenty other tasks.
    others_wait_ms: u64,
}

const ONE: Busy = Busy { code: PAUSE, threads: 1, policy: 0, got_ms: 10_000, others_wait_ms: 0 };
/// All 21 tasks have the same share of the two CPUs.
const CROWDED: Busy = Busy { got_ms: 950, others_wait_ms: 8_950, ..ONE };

/// Two CPUs for 10 s. Process 7 has busy threads, from pid 8 on, and 10 % of their samples are elsewhere. There are 20 other tasks.
fn host(busy: &Busy) -> Fixture {
    let mut tasks = vec![Task { pid: 7, tgid: 7, comm: "beam.smp".into(), ..Task::default() }];
    let (mut samples, mut met) = (Vec::new(), Vec::new());
    let window = 10_000_000_000;
    let each = busy.got_ms / 10 / u64::from(busy.threads);
    let others_ns = if busy.others_wait_ms > 0 { 950_000_000 } else { 500_000_000 };
    let weight = 1024;
    for at in 0..busy.threads {
        let (pid, comm) = (8 + at, format!("{}_scheduler", at + 1));
        tasks.push(Task {
            pid,
            tgid: 7,
            comm: comm.clone(),
            exec_ns: each * 10_000_000,
            lived_ns: window,
            runnable_ns: window - each * 10_000_000,
            policy: busy.policy,
            weight,
            ..Task::default()
        });
        samples.push(Sample { pid, tgid: 7, comm, count: each, ns: each * 10_000_000, ..Sample::default() });
        met.push(Met { pid, offset: 2, count: each * 9 / 10, ..Met::default() });
    }
    for pid in 100..120 {
        tasks.push(Task {
            pid,
            tgid: pid,
            comm: "worker".into(),
            exec_ns: others_ns,
            lived_ns: window,
            runnable_ns: busy.others_wait_ms * 1_000_000,
            sleep_ns: window - others_ns - busy.others_wait_ms * 1_000_000,
            weight,
            ..Task::default()
        });
    }
    let row = Spin {
        tgid: 7,
        code: busy.code.into(),
        arch: "x86_64".into(),
        place: "beam.smp+0x1234 (build id 001122334455)".into(),
        module: "beam.smp".into(),
        met,
        ..Spin::default()
    };
    Fixture::window(Duration::from_nanos(window)).with(|t| {
        t.tasks = Some(tasks);
        t.cgroups = Some(Vec::new());
        t.samples = Some(samples);
        t.spins = Some(vec![row]);
    })
}

fn found(busy: &Busy) -> Vec<Finding> {
    check(&host(busy).ev()).unwrap()
}

#[test]
fn fires_with_threads_place_runtime_price_and_knob() {
    let found = &found(&Busy { threads: 4, ..ONE })[0];
    assert_eq!((found.kind, found.lost), (Kind::Risk, None));
    assert!(found.title.starts_with("4 threads *_scheduler spin: 9.0 s (90 %"), "{}", found.title);
    let culprit = found.culprit.as_ref().unwrap();
    assert_eq!(
        (culprit.kind, culprit.id.as_str(), culprit.name.as_str()),
        (SubjectKind::Task, "7", "beam.smp")
    );
    assert_eq!(culprit.function.as_deref(), Some("beam.smp+0x1234 (build id 001122334455)"));
    let (low, high) = found.cpu_range.unwrap();
    let cpu = found.cpu.unwrap();
    assert!(low < cpu && cpu < high && (high - low).as_secs_f64() < 4.0, "{low:?} {cpu:?} {high:?}");
    assert!(found.fixes[0].text.contains("+sbwt none") && found.fixes[0].text.contains("answer times"));
}

#[test]
fn is_a_cause_where_others_wait_for_these_cpus() {
    let found = &found(&CROWDED)[0];
    assert_eq!(found.kind, Kind::Cause, "{found:?}");
    let whose = "thread 1_scheduler of beam.smp (pid 7) spins: ";
    assert!(found.title.starts_with(whose), "{}", found.title);
    // The others gain 0.7 s of CPU time, 3.6 % of the time that they had: 20 x 10 s x 3.5 %.
    let lost = found.lost.unwrap().as_secs_f64();
    assert!((5.0..9.0).contains(&lost), "{lost}");
    assert!(found.chain[0].who.to_string().contains("worker"));
}

/// The tasks' own quota ran out in each period: that is what they waited for.
#[test]
fn quota_throttling_is_not_blamed_on_spinners() {
    let kinds = |throttled_periods| {
        let mut host = host(&CROWDED).with(|t| {
            let cpu = CgroupCpu {
                weight: 1024,
                quota_ns: Some(20_000_000),
                period_ns: 100_000_000,
                periods: 100,
                throttled_periods,
                ..CgroupCpu::default()
            };
            let outer = Cgroup { id: 4, path: "/web".into(), cpu: Some(cpu), ..Cgroup::default() };
            let inner = Cgroup { id: 5, parent: 4, path: "/web/in".into(), ..Cgroup::default() };
            t.cgroups = Some(vec![outer, inner]);
        });
        for task in host.0.tables.tasks.iter_mut().flatten().filter(|task| task.pid >= 100) {
            task.cpu_cgroup = 5;
        }
        let found = check(&host.ev()).unwrap();
        found.into_iter().map(|found| found.kind).collect::<Vec<_>>()
    };
    // With 5 throttled periods at most 0.6 s of 9 s of the wait are throttling, with 90 all 9 s.
    assert_eq!([kinds(0), kinds(5), kinds(90)], [vec![Kind::Cause], vec![Kind::Cause], vec![Kind::Risk]]);
}

#[test]
fn spinning_with_real_time_priority_is_a_risk_by_configuration() {
    let found = &found(&Busy { policy: 1, ..CROWDED })[0];
    assert_eq!(found.kind, Kind::Risk);
    assert!(found.title.contains("by configuration (real-time priority)"), "{}", found.title);
}

#[test]
fn spinning_on_isolated_cpus_is_by_configuration() {
    let on = |isolated: &str| {
        let mut host = host(&ONE).end("sys/devices/system/cpu/isolated", isolated);
        for task in host.0.tables.tasks.iter_mut().flatten() {
            task.allowed = "2-3".into();
        }
        check(&host.ev()).unwrap().remove(0).title
    };
    assert!(on("1-7\n").contains("by configuration (isolated CPUs)"), "{}", on("1-7\n"));
    assert!(!on("3\n").contains("by configuration") && !on("\n").contains("by configuration"));
}

#[test]
fn is_quiet_about_work() {
    let host = host(&Busy { code: LCG, ..CROWDED });
    assert_eq!(check(&host.ev()), Ok(vec![]));
    assert_eq!(rules_out(&host.ev()).unwrap().unwrap().what, "busy waiting");
}

#[test]
fn is_quiet_about_locks_that_spin_a_moment_and_about_itself() {
    let mut busy = host(&ONE);
    for met in busy.0.tables.spins.iter_mut().flatten().flat_map(|row| &mut row.met) {
        met.count = 50; // of 1000
    }
    assert_eq!(check(&busy.ev()), Ok(vec![]));
    let mut own = host(&ONE);
    own.0.meta.own_pids = vec![7];
    assert_eq!(check(&own.ev()), Ok(vec![]));
}

#[test]
fn a_polling_thread_of_io_uring_is_by_configuration() {
    let mut host = host(&Busy { code: LCG, ..ONE });
    for sample in host.0.tables.samples.iter_mut().flatten() {
        sample.kernel = vec!["io_sq_thread".into(), "ret_from_fork".into()];
    }
    let found = check(&host.ev()).unwrap();
    assert!(found[0].title.contains("by configuration (SQPOLL)"), "{}", found[0].title);
    assert!(found[0].fixes[0].text.contains("sq_thread_idle"));
    for sample in host.0.tables.samples.iter_mut().flatten() {
        sample.kernel = vec!["io_submit_sqes".into(), "io_sq_thread".into()];
    }
    assert_eq!(check(&host.ev()), Ok(vec![]), "the thread submits requests");
}

#[test]
fn says_so_when_it_cannot_tell() {
    let why = check(&Fixture::second().ev()).unwrap_err();
    assert_eq!(why.to_string(), "on-CPU samples was not recorded");
}

/// Adds a thread of process 7 that fills its CPU, but works.
fn with_a_worker(mut host: Fixture) -> Fixture {
    let tasks = host.0.tables.tasks.as_mut().unwrap();
    let full = tasks.iter().find(|task| task.pid == 8).cloned().unwrap();
    tasks.push(Task { pid: 20, comm: "worker".into(), ..full });
    host
}

/// A host of eight CPUs. One thread fills its CPU and spins for nine tenths of its time; 20 other tasks have little to do.
fn full() -> Fixture {
    let mut host = host(&ONE);
    host.0.meta.cpus = 8;
    host
}

fn reported(host: &Fixture) -> Vec<(String, Finding)> {
    let all = crate::rules::ask_all(&host.ev()).findings;
    let ours = all.into_iter().filter(|f| f.kind != Kind::CannotTell);
    ours.map(|found| (found.rule.clone(), found))
        .filter(|(rule, _)| ["spin", "full-thread"].contains(&rule.as_str()))
        .collect()
}

fn rules_reported(host: &Fixture) -> Vec<String> {
    reported(host).into_iter().map(|(rule, _)| rule).collect()
}

#[test]
fn a_full_thread_that_spins_is_one_finding() {
    let mut host = full();
    host.0.tables.runs = Some(vec![Run { cpu: 3, pid: 8, from_ns: 0, to_ns: 10_000_000_000 }]);
    let reported = reported(&host);
    assert_eq!(reported.len(), 1, "{reported:?}");
    let (rule, found) = &reported[0];
    let hop = found.chain.last().unwrap();
    assert_eq!(
        (rule.as_str(), hop.who.to_string().as_str(), hop.lost),
        ("spin", "1_scheduler (pid 8)", Duration::from_secs(9))
    );
    let words = "CPU 3, which it had all the time, while 75 % of the host's CPU time was left over";
    assert_eq!(hop.detail.to_string(), words);
}

#[test]
fn a_full_thread_that_works_beside_one_that_spins_is_a_finding_of_its_own() {
    let mut reported = rules_reported(&with_a_worker(full()));
    reported.sort();
    assert_eq!(reported, ["full-thread", "spin"]);
}

#[test]
fn a_full_thread_that_spins_a_small_part_of_its_time_is_a_finding_of_its_own() {
    let mut host = full();
    for met in host.0.tables.spins.iter_mut().flatten().flat_map(|row| &mut row.met) {
        met.count = 300; // of 1000
    }
    let mut reported = rules_reported(&host);
    reported.sort();
    assert_eq!(reported, ["full-thread", "spin"]);
}

#[test]
fn a_full_thread_that_others_lose_time_to_is_a_finding_of_its_own() {
    let host = full();
    let mut findings = vec![
        Finding::risk(RULE.id, Subject::host()).by(Culprit::new(SubjectKind::Task, "7", "beam.smp")),
        Finding::cause("full-thread", Subject::new(SubjectKind::Task, "7", "x"), Duration::from_secs(5)),
        Finding::risk("full-thread", Subject::new(SubjectKind::Task, "9", "x")),
    ];
    let before = findings.clone();
    full::fold(&host.ev(), &mut findings);
    assert_eq!(findings, before);
}
