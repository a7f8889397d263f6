//! Hosts with a slow CPU 1, each for another reason: four times slower than CPU 0, or both slower than in a baseline.

use whyslow_model::table::Speed;

use super::*;
use crate::cpu::speed::CpuSpeeds;
use crate::cpu::speed::measured_tests::{WINDOW, speed};
use crate::evidence::fixture::Fixture;

const CPUS: &str = "sys/devices/system/cpu";

fn host() -> Fixture {
    Fixture::window(Duration::from_nanos(WINDOW))
        .with(|tables| tables.speeds = Some(vec![speed(0, 4000, 0.0), speed(1, 1000, 0.0)]))
}

/// The reasons that hold for CPU 1.
fn why(ev: &Evidence<'_>) -> Vec<Reason> {
    let speeds = CpuSpeeds::of(ev).unwrap();
    let seen = speeds.measured.iter().find(|seen| seen.cpu == 1).unwrap();
    reasons(ev, seen, &speeds.judge(seen).unwrap()).hold
}

fn texts(host: &Fixture) -> Vec<String> {
    why(&host.ev()).into_iter().map(|reason| reason.text).collect()
}

/// Only CPU 1 belongs to this policy.
fn policy(file: &str, text: &str) -> Fixture {
    let of = |name: &str| format!("{CPUS}/cpufreq/policy1/{name}");
    host()
        .end(&of("affected_cpus"), "1\n")
        .end(&of("scaling_driver"), "acpi-cpufreq\n")
        .end(&of("scaling_governor"), "schedutil\n")
        .end(&of("cpuinfo_max_freq"), "4000000\n")
        .end(&of(file), text)
}

#[test]
fn a_low_scaling_max_freq_is_the_reason_and_is_lifted_to_what_the_hardware_can() {
    let limited = why(&policy("scaling_max_freq", "1000000\n").ev());
    let [limit] = &limited[..] else { panic!("{limited:?}") };
    assert_eq!(limit.text, "scaling_max_freq holds it to 1000 of 4000 MHz");
    assert_eq!(limit.file.as_deref(), Some("/sys/devices/system/cpu/cpufreq/policy1/scaling_max_freq"));
    assert_eq!(limit.values, Some(("1000000".into(), "4000000".into())));
    assert!(
        texts(&policy("scaling_max_freq", "3600000\n")).is_empty(),
        "nine tenths slow no CPU to a quarter"
    );
}

#[test]
fn a_low_bios_limit_is_the_reason_and_no_file_lifts_it() {
    let limited = why(&policy("bios_limit", "1200000\n").ev());
    let [limit] = &limited[..] else { panic!("{limited:?}") };
    assert_eq!(
        (&*limit.text, &limit.file),
        ("the firmware (bios_limit) holds it to 1200 of 4000 MHz", &None)
    );
    assert!(texts(&policy("bios_limit", "4000000\n")).is_empty());
}

#[test]
fn a_counter_of_heat_or_power_is_a_reason_only_if_it_rose_in_the_window_and_on_this_cpu() {
    let count = |cpu: u32, name: &str, first: &str, last: &str| {
        let file = format!("{CPUS}/cpu{cpu}/thermal_throttle/{name}");
        host().start(&file, first).end(&file, last)
    };
    let heat = "it was throttled for heat in the window";
    let power = "a power limit was met in the window";
    assert_eq!(texts(&count(1, "core_throttle_count", "5\n", "9\n")), [heat]);
    assert_eq!(texts(&count(1, "package_throttle_count", "0\n", "1\n")), [heat]);
    assert_eq!(texts(&count(1, "core_power_limit_count", "7\n", "8\n")), [power]);
    assert!(texts(&count(1, "core_throttle_count", "9\n", "9\n")).is_empty(), "it was hot before the window");
    assert!(texts(&count(0, "core_throttle_count", "5\n", "9\n")).is_empty(), "the other CPU was hot");
    assert!(texts(&count(1, "core_throttle_count", "garbage\n", "9\n")).is_empty());
}

#[test]
fn a_low_max_perf_pct_of_intel_pstate_is_a_reason() {
    let limit = |percent: &str| why(&host().end(&format!("{CPUS}/intel_pstate/max_perf_pct"), percent).ev());
    let limited = limit("79\n");
    let [low] = &limited[..] else { panic!("{limited:?}") };
    assert_eq!(low.text, "intel_pstate may use 79 % of its performance only");
    assert_eq!(low.file.as_deref(), Some("/sys/devices/system/cpu/intel_pstate/max_perf_pct"));
    assert_eq!(low.values, Some(("79".into(), "100".into())));
    assert!(limit("80\n").is_empty() && limit("100\n").is_empty());
}

#[test]
fn turbo_off_is_a_reason_only_beside_a_baseline_that_had_turbo() {
    let alike = |mhz| Some(vec![speed(0, mhz, 0.0), speed(1, mhz, 0.0)]);
    let no_turbo = format!("{CPUS}/intel_pstate/no_turbo");
    let with_turbo = host().with(|tables| tables.speeds = alike(4300)).end(&no_turbo, "0\n");
    let without = host().with(|tables| tables.speeds = alike(2700)).end(&no_turbo, "1\n");
    let reasons = why(&without.ev().beside(Some(&with_turbo.0)));
    let [off] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!((&*off.text, &off.values), ("turbo is switched off", &Some(("1".into(), "0".into()))));
    assert_eq!(off.file.as_deref(), Some("/sys/devices/system/cpu/intel_pstate/no_turbo"));
    assert!(texts(&host().end(&no_turbo, "1\n")).is_empty(), "turbo off slows all CPUs alike");
    let never_on = host().with(|tables| tables.speeds = alike(4300)).end(&no_turbo, "1\n");
    assert!(why(&without.ev().beside(Some(&never_on.0))).is_empty());
}

#[test]
fn boost_off_is_undone_with_a_one() {
    let alike = |mhz| Some(vec![speed(0, mhz, 0.0), speed(1, mhz, 0.0)]);
    let boost = format!("{CPUS}/cpufreq/boost");
    let with_boost = host().with(|tables| tables.speeds = alike(4300)).end(&boost, "1\n");
    let without = host().with(|tables| tables.speeds = alike(2700)).end(&boost, "0\n");
    let reasons = why(&without.ev().beside(Some(&with_boost.0)));
    let [off] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(off.values, Some(("0".into(), "1".into())));
}

#[test]
fn the_governor_userspace_is_a_reason() {
    let held = why(&policy("scaling_governor", "userspace\n").ev());
    let [governor] = &held[..] else { panic!("{held:?}") };
    assert_eq!(governor.values, Some(("userspace".into(), "performance".into())));
}

#[test]
fn a_busy_sibling_of_the_core_is_a_reason_and_an_idle_one_is_none() {
    let with_sibling = |busy: u32| {
        let ran = format!(
            "cpu  0 0 0 0 0 0 0 0\ncpu0 {busy} 0 0 {} 0 0 0 0\ncpu1 1000 0 0 0 0 0 0 0\n",
            1000 - busy
        );
        let none = "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n";
        host()
            .start("proc/stat", none)
            .end("proc/stat", &ran)
            .end(&format!("{CPUS}/cpu1/topology/thread_siblings_list"), "0-1\n")
    };
    assert_eq!(texts(&with_sibling(950)), ["CPU 0 of the same core was busy for 9.5 s"]);
    assert!(texts(&with_sibling(850)).is_empty());
}

#[test]
fn energy_settings_are_a_reason_where_the_driver_picks_the_frequency_itself() {
    let of = |name: &str| format!("{CPUS}/cpufreq/policy1/{name}");
    let driven = |driver: &str, preference: &str, bias: &str| {
        let leaning =
            Speed { preference: Some(preference.into()), bias: Some(bias.into()), ..speed(1, 1000, 0.0) };
        let fixture = host()
            .end(&of("affected_cpus"), "1\n")
            .end(&of("scaling_driver"), driver)
            .end(&of("scaling_governor"), "powersave\n");
        why(&fixture.with(|tables| tables.speeds = Some(vec![speed(0, 4000, 0.0), leaning])).ev())
    };
    let reasons = driven("intel_pstate\n", "balance_power", "15");
    let [preference, bias] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(preference.text, "energy_performance_preference is balance_power");
    assert_eq!(preference.values, Some(("balance_power".into(), "performance".into())));
    assert_eq!(
        (&*bias.text, &bias.values),
        ("energy_perf_bias is 15 of 15", &Some(("15".into(), "6".into())))
    );
    assert_eq!(bias.file.as_deref(), Some("/sys/devices/system/cpu/cpu1/power/energy_perf_bias"));
    assert!(driven("intel_pstate\n", "performance", "7").is_empty());
    assert!(driven("acpi-cpufreq\n", "power", "15").is_empty());
}
