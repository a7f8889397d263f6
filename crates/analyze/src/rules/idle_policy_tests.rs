use whyslow_model::table::LatencyHolder;
use whyslow_model::{Kind, Recording};

use super::*;
use crate::evidence::fixture::Fixture;

const CPUS: &str = "sys/devices/system/cpu";

/// A host with CPUs of this maker, this idle driver and this command line.
fn host(vendor: &str, driver: &str, cmdline: &str) -> Fixture {
    Fixture::second()
        .end("proc/cmdline", cmdline)
        .end("proc/cpuinfo", &format!("processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu\n\n"))
        .end(&format!("{CPUS}/cpuidle/current_driver"), &format!("{driver}\n"))
}

/// A host with these states: (CPU, state, name, exit latency, ms of the second in it, disabled).
fn with_states(mut host: Fixture, states: &[(u32, u32, &str, u64, u64, u8)]) -> Fixture {
    for (cpu, index, name, latency, ms, disabled) in states {
        let file = |file: &str| format!("{CPUS}/cpu{cpu}/cpuidle/state{index}/{file}");
        host = host
            .start(&file("time"), "5\n")
            .end(&file("time"), &format!("{}\n", 5 + ms * 1000))
            .end(&file("name"), name)
            .end(&file("latency"), &format!("{latency}\n"))
            .end(&file("disable"), &format!("{disabled}\n"));
    }
    host
}

fn titles(host: &Fixture) -> Vec<String> {
    let found = check(&host.ev()).unwrap();
    assert!(found.iter().all(|finding| finding.kind == Kind::Risk));
    found.into_iter().map(|finding| finding.title).collect()
}

#[test]
fn fires_when_a_limit_is_of_a_driver_that_is_not_in_charge() {
    let reported =
        titles(&host("HygonGenuine", "acpi_idle", "processor.max_cstate=1 intel_idle.max_cstate=0\n"));
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("\"intel_idle.max_cstate=0\", which has no effect here"), "{reported:?}");
    assert!(
        reported[0].contains("HygonGenuine; acpi_idle is in charge; processor.max_cstate limits"),
        "{reported:?}"
    );
    let reported = titles(&host("GenuineIntel", "intel_idle", "processor.max_cstate=1\n"));
    assert!(reported[0].contains("intel_idle is in charge, not acpi_idle"), "{reported:?}");
    let reported = titles(&host("AuthenticAMD", "acpi_idle", "intel_pstate=disable\n"));
    assert!(reported[0].contains("for CPUs of Intel, and this one is of AuthenticAMD"), "{reported:?}");
}

#[test]
fn fires_when_what_runs_is_not_what_was_asked_for() {
    let host = host("GenuineIntel", "intel_idle", "intel_idle.max_cstate=1\n")
        .end("sys/module/intel_idle/parameters/max_cstate", "9\n");
    let reported = titles(&host);
    assert!(
        reported[0].contains("something else: /sys/module/intel_idle/parameters/max_cstate is 9"),
        "{reported:?}"
    );
    let host = host_with_driver("AuthenticAMD", "acpi-cpufreq", "amd_pstate=active\n");
    assert!(titles(&host)[0].contains("the frequency driver in charge is acpi-cpufreq"));
}

fn host_with_driver(vendor: &str, driver: &str, cmdline: &str) -> Fixture {
    host(vendor, "acpi_idle", cmdline)
        .end(&format!("{CPUS}/cpufreq/policy0/scaling_driver"), &format!("{driver}\n"))
}

#[test]
fn is_quiet_about_limits_that_work() {
    for (vendor, driver, cmdline) in [
        ("GenuineIntel", "acpi_idle", "intel_idle.max_cstate=0 processor.max_cstate=1\n"),
        ("GenuineIntel", "intel_idle", "intel_idle.max_cstate=1 intel_pstate=passive quiet\n"),
        ("AuthenticAMD", "acpi_idle", "processor.max_cstate=0 amd_pstate=disable mitigations=off\n"),
        ("GenuineIntel", "haltpoll", "quiet -- intel_idle.max_cstate=1\n"),
        ("GenuineIntel", "acpi_idle", "intel_idle.max_cstate=4 intel_idle.max_cstate=0\n"),
    ] {
        let host = host(vendor, driver, cmdline)
            .end("sys/module/processor/parameters/max_cstate", "1\n")
            .end("sys/module/intel_idle/parameters/max_cstate", "1\n");
        assert_eq!(titles(&host), Vec::<String>::new(), "{vendor} {driver} {cmdline}");
    }
    let host = host_with_driver("AuthenticAMD", "amd-pstate-epp", "amd_pstate=active\n");
    assert_eq!(titles(&host), Vec::<String>::new());
}

#[test]
fn a_list_of_cpus_that_the_kernel_did_not_take_has_no_effect() {
    let asked = || host("GenuineIntel", "haltpoll", "nohz_full=1-3 isolcpus=domain,1-3\n");
    let lists = |host: Fixture, nohz: &str| {
        host.end(&format!("{CPUS}/nohz_full"), nohz).end(&format!("{CPUS}/isolated"), "1-3\n")
    };
    assert_eq!(titles(&lists(asked(), "1-3\n")), Vec::<String>::new());
    for none in ["\n", "(null)\n"] {
        let reported = titles(&lists(asked(), none));
        assert!(reported.len() == 1 && reported[0].contains("nohz_full=1-3"), "{reported:?}");
    }
    assert_eq!(titles(&asked()), Vec::<String>::new(), "files that were not read prove nothing");
}

#[test]
fn polling_has_its_price() {
    let reported = titles(&host("GenuineIntel", "none", "idle=poll\n"));
    assert!(reported[0].contains("spin"), "{reported:?}");
}

#[test]
fn fires_when_one_cpu_differs_from_its_peers() {
    let states = [
        (0, 1, "C1", 2, 0, 0),
        (0, 2, "C6", 133, 500, 0),
        (1, 1, "C1", 2, 0, 0),
        (1, 2, "C6", 133, 0, 1),
        (2, 1, "C1", 2, 0, 0),
        (2, 2, "C6", 133, 500, 0),
    ];
    let host = with_states(host("GenuineIntel", "intel_idle", "quiet\n"), &states);
    let reported = titles(&host);
    assert_eq!(reported, ["CPUs differ in their idle states: CPU 1 may use C1; the others may use C1 C6"]);
    let host = host.end(&format!("{CPUS}/isolated"), "1\n");
    assert_eq!(titles(&host), Vec::<String>::new(), "it was set apart");
}

#[test]
fn fires_when_cpus_sleep_in_a_state_that_is_slow_to_leave() {
    let states = |ms| {
        [(0, 1, "C1", 1, 200, 0), (0, 3, "C3", 5000, ms, 0), (1, 1, "C1", 1, 0, 0), (1, 3, "C3", 5000, ms, 0)]
    };
    let slow = with_states(host("HygonGenuine", "acpi_idle", "quiet\n"), &states(600));
    let reported = titles(&slow);
    assert!(
        reported[0].contains("CPUs 0-1 slept in idle state C3 for 60 % of the time; by its driver's own account it takes 5000 us"),
        "{reported:?}"
    );
    let unused = with_states(host("HygonGenuine", "acpi_idle", "quiet\n"), &states(20));
    assert_eq!(titles(&unused), Vec::<String>::new());
}

#[test]
fn fires_when_somebody_keeps_all_cpus_from_sleeping() {
    let holder = |value_us| LatencyHolder { pid: 7, tgid: 7, comm: "tuner".into(), value_us };
    let states = [(0, 0, "POLL", 0, 900, 0), (0, 1, "C1", 2, 0, 0), (0, 2, "C6", 170, 0, 0)];
    let with = |value| {
        with_states(host("GenuineIntel", "intel_idle", "quiet\n"), &states)
            .with(|tables| tables.latency_holders = Some(vec![holder(value)]))
    };
    let reported = titles(&with(0));
    assert!(reported[0].starts_with("tuner (7) holds /dev/cpu_dma_latency at 0 us"), "{reported:?}");
    assert_eq!(titles(&with(20)), Vec::<String>::new(), "C1 is still allowed: a usual request");
}

#[test]
fn is_quiet_on_a_usual_server() {
    let states = [(0, 0, "POLL", 0, 1, 0), (0, 1, "C1E", 4, 100, 0), (0, 2, "C6", 170, 800, 0)];
    let host = with_states(host("GenuineIntel", "intel_idle", "quiet mitigations=auto\n"), &states);
    assert_eq!(titles(&host), Vec::<String>::new());
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert!(check(&Evidence::of(&Recording::default())).is_err());
    let only_driver = Fixture::second().end(&format!("{CPUS}/cpuidle/current_driver"), "acpi_idle\n");
    assert!(check(&only_driver.ev()).is_err());
}

#[test]
fn is_quiet_where_the_kernel_has_no_idle_states() {
    let driver = format!("{CPUS}/cpuidle/current_driver");
    let without = |cmdline: &str| {
        let absent = Missing::NotInKernel { what: driver.clone(), needs: "CONFIG_CPU_IDLE".into() };
        Fixture::second()
            .end("proc/cmdline", cmdline)
            .end("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu\n\n")
            .missing(absent)
    };
    let seen = |cmdline: &str| without(cmdline).end(&format!("{CPUS}/online"), "0-3\n");
    assert_eq!(titles(&seen("quiet\n")), Vec::<String>::new());
    assert_eq!(titles(&seen("idle=poll\n")).len(), 1, "idle=poll needs no driver");
    assert!(check(&without("quiet\n").ev()).is_err(), "no file of CPUs was read");
}
