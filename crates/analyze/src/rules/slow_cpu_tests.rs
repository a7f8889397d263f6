//! Hosts with a slow CPU, and hosts without one.

use whyslow_model::Kind;
use whyslow_model::table::{Speed, Task};

use super::*;
use crate::cpu::speed::measured_tests::{WINDOW, speed};
use crate::evidence::fixture::Fixture;

/// A host with the CPUs of `rows`. A thread is bound to CPU 1 and ran all the time.
fn host(rows: Vec<Speed>) -> Fixture {
    let window = Duration::from_nanos(WINDOW);
    let busy = Task {
        pid: 7,
        tgid: 7,
        comm: "sink".into(),
        exec_ns: WINDOW,
        traced_ns: WINDOW,
        allowed: "1".into(),
        ..Task::default()
    };
    let idle = "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n";
    let ran = "cpu  1000 0 0 0 0 0 0 0\ncpu0 0 0 0 1000 0 0 0 0\ncpu1 1000 0 0 0 0 0 0 0\n";
    Fixture::window(window).start("proc/stat", idle).end("proc/stat", ran).with(|t| {
        t.speeds = Some(rows);
        t.tasks = Some(vec![busy]);
    })
}

fn two(slow_mhz: u64, taken: f64) -> Vec<Speed> {
    vec![speed(0, 4000, 0.0), speed(1, slow_mhz, taken)]
}

fn governed(host: Fixture, driver: &str) -> Fixture {
    let folder = "sys/devices/system/cpu/cpufreq/policy1";
    let file = |name: &str| format!("{folder}/{name}");
    host.end(&file("affected_cpus"), "1\n")
        .end(&file("scaling_driver"), driver)
        .end(&file("scaling_governor"), "powersave\n")
        .end(&file("scaling_min_freq"), "1000000\n")
        .end(&file("cpuinfo_max_freq"), "4000000\n")
}

#[test]
fn fires_on_a_cpu_whose_governor_pins_it_and_names_governor_victim_and_undo() {
    let found = check(&governed(host(two(1000, 0.0)), "acpi-cpufreq\n").ev()).unwrap();
    let f = &found[0];
    assert_eq!((f.kind, f.victim.name.as_str(), found.len()), (Kind::Cause, "sink", 1));
    assert!((f.lost.unwrap().as_secs_f64() - 7.5).abs() < 0.1, "{:?}", f.lost);
    assert_eq!(
        f.title,
        "CPU 1 is 4.0 times slower than the median CPU: governor powersave of acpi-cpufreq keeps it at 1000 of 4000 MHz"
    );
    let fix = &f.fixes[0];
    let every = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor";
    assert_eq!(fix.command.as_deref(), Some(format!("echo performance | tee {every}").as_str()));
    assert!(fix.text.contains(&format!("undo: echo powersave | tee {every}")));
}

#[test]
fn says_what_it_is_not_where_no_reason_holds() {
    let found = check(&host(two(1000, 0.0)).ev()).unwrap();
    let words = "CPU 1 is 4.0 times slower than the median CPU, for a reason that is unknown: not frequency (no governor, limit or throttling holds it down here), not quota, not steal, \
                 not interrupts";
    assert_eq!(found[0].title, words);
    assert_eq!(found[0].chain[0].detail.to_string(), "CPU 1, which is 4.0 times slower than the median CPU");
    assert_eq!(found[0].culprit.as_ref().unwrap().name, "CPU 1");
}

#[test]
fn powersave_of_a_driver_that_picks_itself_is_no_reason() {
    let found = check(&governed(host(two(1000, 0.0)), "intel_pstate\n").ev()).unwrap();
    assert!(!found[0].title.contains("governor powersave"), "{}", found[0].title);
    let leaning = vec![
        speed(0, 4000, 0.0),
        Speed { preference: Some("power".into()), bias: Some("15".into()), ..speed(1, 1000, 0.0) },
    ];
    let found = check(&governed(host(leaning), "intel_pstate\n").ev()).unwrap();
    let said = "energy_performance_preference is power; energy_perf_bias is 15 of 15";
    assert!(found[0].title.ends_with(said), "{}", found[0].title);
}

#[test]
fn time_that_is_taken_in_pieces_is_reported_with_its_share() {
    let found = check(&host(two(4000, 0.6)).ev()).unwrap();
    assert_eq!(found[0].kind, Kind::Cause);
    assert!(found[0].title.starts_with(
        "CPU 1 is 2.5 times slower than the median CPU: something that no counter names takes 60 %"
    ));
    let low = found[0].lost.unwrap().as_secs_f64();
    assert!((low - 6.0).abs() < 0.1, "{low}");
}

#[test]
fn traced_interrupts_and_steal_are_named() {
    let row = whyslow_model::table::Cpu {
        cpu: 1,
        softirqs: vec![("NET_RX".into(), WINDOW / 2, 9)],
        ..whyslow_model::table::Cpu::default()
    };
    let found = check(&host(two(4000, 0.5)).with(|t| t.cpus = Some(vec![row])).ev()).unwrap();
    assert!(
        found[0].title.contains("interrupts take 50 % of its time, most of it NET_RX"),
        "{}",
        found[0].title
    );
    let stolen = host(two(4000, 0.5)).end("proc/stat", "cpu  0 0 0 0 0 0 0 500\ncpu1 500 0 0 0 0 0 0 500\n");
    let found = check(&stolen.ev()).unwrap();
    assert!(found[0].title.contains("the hypervisor took 50 %"), "{}", found[0].title);
}

/// A task that writes 19,000 times a second on the CPU that gets its disk's interrupts.
#[test]
fn interrupts_of_its_own_requests_cost_nobody_anything_and_those_of_others_requests_do() {
    let with = |requests: [u64; 2], all: u64, kernels: bool| {
        let row = whyslow_model::table::Cpu {
            cpu: 1,
            softirqs: vec![("BLOCK".into(), WINDOW / 5, 9)],
            hardirqs: vec![(9, "virtio3-req.0".into(), WINDOW / 10, 19_000)],
            ..whyslow_model::table::Cpu::default()
        };
        let done = whyslow_model::table::Disk { requests: all, ..Default::default() };
        let mut host = host(two(4000, 0.3)).with(|t| (t.cpus, t.disk) = (Some(vec![row]), Some(vec![done])));
        let tasks = host.0.tables.tasks.as_mut().unwrap();
        tasks[0].io_count = requests[0];
        tasks.push(Task { pid: 8, tgid: 8, kthread: kernels, io_count: requests[1], ..Task::default() });
        check(&host.ev()).unwrap().remove(0)
    };
    let own = with([19_000, 50], 19_500, false);
    assert!(own.title.contains("most of it BLOCK"), "{}", own.title);
    assert_eq!((own.kind, own.lost), (Kind::Risk, None));
    for others in [
        with([0, 19_000], 19_000, false),
        with([9_500, 9_500], 19_000, false),
        with([50, 19_000], 19_000, true),
        with([0, 0], 0, false),
        with([300, 0], 90_000, false),
        with([19_000, 0], 9_000, false),
    ] {
        assert_eq!(others.kind, Kind::Cause);
    }
}

/// 16,000 interrupts of a disk a second take a third of the CPU; their handlers are a sixth of that. No task lost this time to a fault.
#[test]
fn slow_cpu_with_many_interrupts_is_a_risk_and_with_few_a_cause() {
    let with = |a_second: u64| {
        let seconds = WINDOW / 1_000_000_000;
        let row = whyslow_model::table::Cpu {
            cpu: 1,
            softirqs: vec![("BLOCK".into(), WINDOW / 20, 9)],
            hardirqs: vec![(9, "virtio3-req.0".into(), WINDOW / 100, a_second * seconds)],
            ..whyslow_model::table::Cpu::default()
        };
        check(&host(two(4000, 0.33)).with(|t| t.cpus = Some(vec![row])).ev()).unwrap().remove(0)
    };
    let many = with(16_000);
    assert_eq!((many.kind, many.lost), (Kind::Risk, None));
    assert!(many.title.contains("it takes 16000 interrupts of devices a second"), "{}", many.title);
    let few = with(1_000);
    assert_eq!(few.kind, Kind::Cause);
    assert!(few.title.contains("something that no counter names"), "{}", few.title);
}

#[test]
fn is_a_risk_where_nobody_ran_on_it() {
    let mut idle = host(two(1000, 0.0));
    idle.0.tables.tasks = Some(vec![]);
    let found = check(&idle.ev()).unwrap();
    assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
}

#[test]
fn is_quiet_on_healthy_cpus_and_says_how_alike_they_are() {
    let healthy = host(vec![speed(0, 4000, 0.0), speed(1, 3900, 0.02)]);
    assert_eq!(check(&healthy.ev()), Ok(vec![]));
    let not = rules_out(&healthy.ev()).unwrap().unwrap();
    assert!(not.evidence.starts_with("the slowest of 2 is 1.05 times the median"), "{}", not.evidence);
    assert_eq!(rules_out(&host(two(1000, 0.0)).ev()), Ok(None));
}

#[test]
fn a_governor_that_pins_without_a_measured_loss_is_a_risk() {
    let found = check(&governed(host(vec![speed(0, 4000, 0.0), speed(1, 4000, 0.0)]), "acpi-cpufreq\n").ev())
        .unwrap();
    assert_eq!((found[0].kind, found.len()), (Kind::Risk, 1));
    assert!(found[0].title.contains("keeps CPU 1 at 1000 of 4000 MHz"));
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert_eq!(check(&Fixture::second().ev()).unwrap_err().to_string(), "CPU speed was not recorded");
    let spared = Speed { cpu: 0, skipped: Some("it is isolated".into()), ..Speed::default() };
    let why = check(&host(vec![spared]).ev()).unwrap_err().to_string();
    assert_eq!(why, "CPU speed was skipped: CPU 0 and all others: it is isolated");
}
