//! A document with everything in it. Names are as hostile as a process may choose them.

use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::*;

pub mod blocked;
pub mod waits;

/// Seconds.
pub fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A document that says nothing.
pub fn empty() -> Document {
    Document {
        schema: SCHEMA,
        whyslow: "0.1.0".into(),
        host: "web-3".into(),
        boot_id: None,
        kernel: "6.18.44".into(),
        started_at: "2026-11-21T13:03:34Z".into(),
        window: s(10.0),
        findings: Vec::new(),
        ruled_out: Vec::new(),
        contradictions: Vec::new(),
        resources: Vec::new(),
        account: Account { cpu: Some(s(0.0)), off_cpu: Some(s(0.0)), ..Account::default() },
        wall: None,
        chains: Vec::new(),
        locks: Vec::new(),
        works: Vec::new(),
        jobs: Vec::new(),
        churn: Vec::new(),
        blocked: None,
        grace_periods: Vec::new(),
        stalls: Vec::new(),
        pings: None,
        calls: Vec::new(),
        slow_calls: Vec::new(),
        about: None,
        cpus: Vec::new(),
        missing: Vec::new(),
        own_cost: OwnCost::default(),
    }
}

/// A document of a host on which no BPF program may be loaded.
pub fn unseen() -> Document {
    let refused = |probe: Probe| Missing::NotAllowed {
        what: probe.word().into(),
        way_out: "run as root, or grant CAP_BPF and CAP_PERFMON".into(),
    };
    Document {
        account: Account::default(),
        findings: vec![Finding::cannot_tell("cpu-quota", "may not read task list")],
        missing: [Probe::OffCpuStacks, Probe::TaskList].map(|probe| refused(probe).into()).into(),
        ..empty()
    }
}

fn hop(who: &str, waits_for: &str) -> Hop {
    Hop {
        per_call: Some(s(0.17)),
        grows_with: Some("threads".into()),
        ..Hop::new(Reason::CpuQuota, who, waits_for, TaskState::Runnable, s(13.7)).times(80, s(0.09))
    }
}

fn quota() -> Finding {
    let mut victim = Subject::new(SubjectKind::Cgroup, "/system.slice/web.service", "web.service");
    victim.unit = Some("web.service".into());
    victim.container = Some("shop-frontend".into());
    victim.description = Some("The shop's front end".into());
    victim.pod = Some("shop/web-0".into());
    victim.image = Some("web:1".into());
    let culprit =
        Culprit::new(SubjectKind::Quota, "/system.slice/web.service", "the CPU quota of web.service")
            .at_file("/sys/fs/cgroup/cpu/system.slice/web.service/cpu.cfs_quota_us")
            .in_function("throttle_cfs_rq");
    let mut finding = Finding::cause("cpu-quota", victim, s(13.7))
        .titled("its quota ran out in 80 % of its 100 periods")
        .raw_wait(s(15.2))
        .share_of(s(40.0))
        .between(s(12.9), s(14.1))
        .by(culprit)
        .hop(hop("4 tasks of web.service", "the CPU quota of web.service"))
        .check("nr_throttled grows", "cat /sys/fs/cgroup/cpu/system.slice/web.service/cpu.stat")
        .fix(
            "raise the quota; it costs the others up to 2 CPUs; undo by writing 50000 again",
            "echo 200000 > /sys/fs/cgroup/cpu/system.slice/web.service/cpu.cfs_quota_us",
        )
        .advice("run fewer threads; no undo is needed");
    finding.cpu = Some(s(0.5));
    finding.cpu_range = Some((s(0.4), s(0.6)));
    finding.overlaps = vec!["run-queue".into()];
    finding
}

/// One as it should be, one that is slow, one that was left alone.
fn cpus() -> Vec<CpuAccount> {
    let well = CpuAccount {
        cpu: 0,
        node: Some(0),
        million: Some(s(0.000_233)),
        ratio: Some(1.0),
        taken: Some(Share::percent(1)),
        mhz: Some(4300.0),
        nominal_mhz: Some(2600.0),
        busy_mhz: Some(4211.0),
        busy: Some(Share::percent(35)),
        idle_state: Some("C1E".into()),
        hardirq: Some(Share::percent(0)),
        softirq: Some(Share::percent(2)),
        steal: Some(Share::percent(0)),
        governor: Some("performance".into()),
        driver: Some("acpi-cpufreq".into()),
        ..CpuAccount::default()
    };
    let slow = CpuAccount {
        cpu: 1,
        million: Some(s(0.000_986)),
        ratio: Some(4.23),
        slow: Some(4.23),
        slow_against: Some("the median CPU".into()),
        reasons: vec!["governor powersave of acpi-cpufreq keeps it at 1200 of 2000 MHz".into()],
        governor: Some("powersave".into()),
        ..well.clone()
    };
    let why = "it is isolated; --all-cpus measures it".to_owned();
    let left = CpuAccount { cpu: 2, not_measured: Some(why), ..CpuAccount::default() };
    vec![well, slow, left]
}

fn account() -> Account {
    let state = |of: &str, state: &str, t: f64| StateShare { of: of.into(), state: state.into(), time: s(t) };
    let group = |name: &str, cpu: f64, runnable: f64| CgroupShare {
        id: format!("/{name}"),
        name: name.into(),
        tasks: 4,
        cpu: s(cpu),
        runnable: Some(s(runnable)),
        uninterruptible: Some(s(0.02)),
    };
    let mut by_cgroup = vec![group("web.service", 5.0, 15.2), group("evil\x1b[2J\nname\u{202e}", 1.0, 0.0)];
    let long = "kubepods.slice/kubepods-burstable.slice/cri-containerd-0123456789.scope";
    by_cgroup.extend((0..8).map(|n| group(&format!("{long}{n}"), 0.1, 0.0)));
    Account {
        wall: s(20.0),
        cpu: Some(s(6.1)),
        off_cpu: Some(s(15.4)),
        unexplained: Some(s(0.2)),
        by_state: vec![
            state("cpu", "idle", 13.0),
            state("cpu", "user", 6.0),
            state("cpu", "system", 0.9),
            state("cpu", "steal", 0.1),
            state("wait", "runnable", 15.2),
            state("wait", "io-wait", 0.2),
        ],
        by_cgroup,
        notes: vec!["The CPUs were idle for 65 % of the time: waiting is not for lack of CPUs.".into()],
        doubts: vec![
            "Our tracer and the kernel differ on CPU time by 9 %: splits are that uncertain.".into(),
        ],
    }
}

fn resources() -> Vec<resource::Resource> {
    let cpus = resource::Resource {
        name: resource::CPUS.into(),
        amount: "1.9 of 2".into(),
        used: Some(Share::percent(96)),
        saturated: Some("tasks were ready and had none for 7.1 s in all".into()),
        errors: None,
        by: Some("xz (7.5 s)".into()),
        paid_by: Some("shop".into()),
    };
    let eth0 = resource::Resource {
        name: "eth0".into(),
        amount: "12 MiB/s in, 3.1 MiB/s out".into(),
        saturated: Some("7 packets broken, dropped or of no use".into()),
        errors: Some(7),
        ..resource::Resource::default()
    };
    vec![cpus, eth0]
}

/// A document with everything in it.
pub fn full() -> Document {
    let evil = Subject::new(SubjectKind::Task, "4242", "sh\x1b]0;owned\x07\n");
    let mut doc = empty();
    doc.boot_id = Some("5b3c".into());
    doc.findings = vec![
        quota(),
        Finding {
            failed_calls: 12,
            ..Finding::cause("cpu-pinned", evil, s(3.0))
                .titled("16 tasks share CPU 1 while CPU 0 is idle")
                .on("CPUs")
        },
        Finding::risk("clocksource", Subject::host())
            .titled("the clock is hpet: each reading costs 1 us")
            .check("which clock", "cat /sys/devices/system/clocksource/clocksource0/current_clocksource"),
        Finding::cannot_tell("irq-imbalance", Missing::not_recorded("interrupts")),
    ];
    doc.ruled_out = vec![RuledOut { what: "the disk".into(), evidence: "no task waited for one".into() }];
    doc.account = account();
    doc.resources = resources();
    let absent = Missing::NotInKernel { what: "irq pressure".into(), needs: "Linux 6.1".into() };
    doc.missing = vec![absent.into(), Missing::not_recorded("interrupts").into()];
    doc.missing.extend((0..4).map(|n| Missing::skipped(format!("file {n}"), "it took 6 ms").into()));
    doc.chains = waits::chains();
    doc.cpus = cpus();
    doc.own_cost = OwnCost {
        cpu: s(0.31),
        rss_bytes: 38 << 20,
        bpf_s: Some(0.12),
        blocked: Some(s(0.0)),
        lost_events: 3,
    };
    doc
}
