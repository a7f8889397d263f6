//! Idle states: the driver and the governor that put CPUs to sleep, how deep the sleep is, and what the wake-up costs.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::{FileSnapshot, Missing};

use super::{Evidence, parsed};
use crate::parse::{Bad, single};

/// The folder of the CPUs.
const CPUS: &str = "sys/devices/system/cpu/";

/// One idle state of one CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdleState {
    /// Its number: deeper states have higher ones.
    pub index: u32,
    /// "POLL", "C1", "C6", "haltpoll".
    pub name: String,
    /// The driver's description of the state, as CPU 0 has it: "MWAIT 0x20", "ACPI HLT".
    pub desc: String,
    /// Time to leave the state, as the driver states it, in us.
    pub latency_us: u64,
    /// Shortest stay that saves energy, in us; `None`: not known (before Linux 4.9).
    pub residency_us: Option<u64>,
    /// Times entered in the window; `None`: it was not read at both ends.
    pub used: Option<u64>,
    /// Time in it in the window, in us.
    pub time_us: Option<u64>,
    /// Switched off by an administrator or a program (`disable`).
    pub disabled: bool,
}

impl IdleState {
    /// The state polls: the CPU does not sleep in it.
    #[must_use]
    pub fn polls(&self) -> bool {
        self.latency_us == 0
    }

    /// Part of the window that the CPU was in the state.
    #[must_use]
    pub fn share(&self, window: Duration) -> f64 {
        let time = Duration::from_micros(self.time_us.unwrap_or(0));
        if window.is_zero() { 0.0 } else { time.as_secs_f64() / window.as_secs_f64() }
    }
}

/// Files of one idle state, the first and the last reading of each.
type Files<'r> = BTreeMap<&'r str, (&'r FileSnapshot, &'r FileSnapshot)>;

impl<'r> Evidence<'r> {
    /// The driver in charge of idle states: "intel_idle", "acpi_idle", "haltpoll", "none".
    pub fn idle_driver(&self) -> Result<String, Missing> {
        self.file(&format!("{CPUS}cpuidle/current_driver"), word)
    }

    /// The governor that selects the state: "menu", "teo", "haltpoll".
    pub fn idle_governor(&self) -> Result<String, Missing> {
        // Older kernels, where the governor cannot be changed at run time, have only the second name.
        self.file(&format!("{CPUS}cpuidle/current_governor"), word)
            .or_else(|why| self.file(&format!("{CPUS}cpuidle/current_governor_ro"), word).map_err(|_| why))
    }

    /// Idle states of one CPU, the shallowest first.
    pub fn idle_states(&self, cpu: u32) -> Result<Vec<IdleState>, Missing> {
        let dirs = [format!("{CPUS}cpu{cpu}/cpuidle/"), format!("{CPUS}cpu0/cpuidle/")];
        let snapshots = self.rec.snapshots.iter().filter(|f| dirs.iter().any(|dir| f.name.starts_with(dir)));
        by_cpu(snapshots)?.remove(&cpu).ok_or_else(|| self.no_states())
    }

    /// Idle states of every CPU that was read.
    pub fn idle_states_by_cpu(&self) -> Result<BTreeMap<u32, Vec<IdleState>>, Missing> {
        let all = by_cpu(self.rec.snapshots.iter().filter(|snapshot| snapshot.name.starts_with(CPUS)))?;
        if all.is_empty() { Err(self.no_states()) } else { Ok(all) }
    }

    /// The longest wake-up that is allowed on each CPU (`pm_qos_resume_latency_us`), in us; CPUs without a limit
    /// are not in the map.
    pub fn wakeup_limits(&self) -> BTreeMap<u32, u64> {
        let files = self.files_like(CPUS, "/power/pm_qos_resume_latency_us");
        let limit = |snapshot: &FileSnapshot| {
            let cpu =
                snapshot.name.strip_prefix(CPUS)?.split('/').next()?.strip_prefix("cpu")?.parse().ok()?;
            match crate::parse::text(&snapshot.bytes).trim() {
                // drivers/base/power/sysfs.c: "0" stands for no limit, "n/a" for a limit of 0.
                "0" => None,
                "n/a" => Some((cpu, 0)),
                us => Some((cpu, us.parse().ok()?)),
            }
        };
        files.into_iter().filter_map(limit).collect()
    }

    fn no_states(&self) -> Missing {
        self.rec.why_missing(&format!("{CPUS}{{cpu}}/cpuidle/state*/{{name,latency,residency,disable}}"))
    }
}

fn word(text: &str) -> Result<String, Bad> {
    match text.trim() {
        "" => Err(Bad::new("one word", text)),
        word => Ok(word.to_owned()),
    }
}

fn by_cpu<'r>(
    snapshots: impl Iterator<Item = &'r FileSnapshot>,
) -> Result<BTreeMap<u32, Vec<IdleState>>, Missing> {
    let mut files: BTreeMap<(u32, u32), Files<'r>> = BTreeMap::new();
    for snapshot in snapshots {
        let Some((place, file)) = place(&snapshot.name) else { continue };
        let ends = files.entry(place).or_default().entry(file).or_insert((snapshot, snapshot));
        ends.1 = snapshot;
    }
    let mut cpus: BTreeMap<u32, Vec<IdleState>> = BTreeMap::new();
    for ((cpu, index), files) in files.into_iter().filter(|(_, files)| files.contains_key("latency")) {
        cpus.entry(cpu).or_default().push(state(index, &files)?);
    }
    let words: Vec<(u32, String)> =
        cpus.get(&0).iter().flat_map(|states| states.iter().map(|s| (s.index, s.desc.clone()))).collect();
    for state in cpus.values_mut().flatten().filter(|state| state.desc.is_empty()) {
        if let Some((_, desc)) = words.iter().find(|(index, _)| *index == state.index) {
            state.desc.clone_from(desc);
        }
    }
    Ok(cpus)
}

/// ".../cpu3/cpuidle/state2/latency": (3, 2) and "latency".
fn place(name: &str) -> Option<((u32, u32), &str)> {
    let (cpu, rest) = name.strip_prefix(CPUS)?.strip_prefix("cpu")?.split_once('/')?;
    let (state, file) = rest.strip_prefix("cpuidle/state")?.split_once('/')?;
    Some(((cpu.parse().ok()?, state.parse().ok()?), file))
}

fn state(index: u32, files: &Files<'_>) -> Result<IdleState, Missing> {
    let text = |file| files.get(file).map(|(_, last)| crate::parse::text(&last.bytes).trim().to_owned());
    let number =
        |snapshot: &FileSnapshot| parsed(snapshot, single::integer).map(|n| u64::try_from(n).unwrap_or(0));
    let last = |file| files.get(file).map(|(_, last)| number(last)).transpose();
    let rise = |file| match files.get(file) {
        Some((first, last)) if !std::ptr::eq(*first, *last) => {
            Ok(Some(number(last)?.saturating_sub(number(first)?)))
        }
        _ => Ok(None),
    };
    Ok(IdleState {
        index,
        name: text("name").unwrap_or_else(|| format!("state{index}")),
        desc: text("desc").unwrap_or_default(),
        latency_us: last("latency")?.unwrap_or(0),
        residency_us: last("residency")?,
        used: rise("usage")?,
        time_us: rise("time")?,
        disabled: last("disable")?.unwrap_or(0) != 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::Fixture;
    use super::*;

    fn host() -> Fixture {
        let state = |host: Fixture, at: &str, name: &str, latency: &str| {
            let file = |file: &str| format!("{CPUS}{at}/{file}");
            host.start(&file("usage"), "100\n")
                .start(&file("time"), "9000\n")
                .end(&file("usage"), "140\n")
                .end(&file("time"), "309000\n")
                .end(&file("name"), name)
                .end(&file("latency"), latency)
                .end(&file("residency"), "600\n")
                .end(&file("disable"), "0\n")
        };
        let host = state(Fixture::second(), "cpu3/cpuidle/state1", "C1\n", "2\n")
            .end(&format!("{CPUS}cpu0/cpuidle/state1/latency"), "2\n")
            .end(&format!("{CPUS}cpu0/cpuidle/state1/desc"), "MWAIT 0x00\n");
        state(host, "cpu3/cpuidle/state10", "C10\n", "890\n")
            .end(&format!("{CPUS}cpuidle/current_driver"), "intel_idle\n")
            .end(&format!("{CPUS}cpuidle/current_governor_ro"), "menu\n")
    }

    #[test]
    fn states_are_reported_with_their_use_in_the_window_the_shallowest_first() {
        let host = host();
        let states = host.ev().idle_states(3).unwrap();
        let reported: Vec<_> =
            states.iter().map(|s| (s.index, s.name.as_str(), s.latency_us, s.used)).collect();
        assert_eq!(reported, [(1, "C1", 2, Some(40)), (10, "C10", 890, Some(40))]);
        assert!((states[1].share(Duration::from_secs(1)) - 0.3).abs() < 1e-9);
        assert_eq!((states[0].desc.as_str(), states[1].desc.as_str()), ("MWAIT 0x00", ""));
        assert_eq!(host.ev().idle_states_by_cpu().unwrap().keys().collect::<Vec<_>>(), [&0, &3]);
        assert_eq!(host.ev().idle_driver().as_deref(), Ok("intel_idle"));
        assert_eq!(host.ev().idle_governor().as_deref(), Ok("menu"));
    }

    #[test]
    fn idle_state_read_once_has_no_use_and_cpu_without_states_is_missing() {
        let host = Fixture::second().end(&format!("{CPUS}cpu0/cpuidle/state0/latency"), "0\n");
        let states = host.ev().idle_states(0).unwrap();
        assert_eq!((states[0].used, states[0].name.as_str(), states[0].polls()), (None, "state0", true));
        assert!(host.ev().idle_states(1).is_err());
        assert!(Fixture::second().ev().idle_states_by_cpu().is_err());
    }

    #[test]
    fn a_torn_number_is_broken() {
        let host = Fixture::second().end(&format!("{CPUS}cpu0/cpuidle/state0/latency"), "1x\n");
        assert!(host.ev().idle_states(0).unwrap_err().to_string().contains("state0/latency"));
    }

    #[test]
    fn limits_on_wake_ups_are_those_that_somebody_set() {
        let file = |cpu: u32| format!("{CPUS}cpu{cpu}/power/pm_qos_resume_latency_us");
        let host = Fixture::second()
            .end(&file(0), "0\n")
            .end(&file(1), "n/a\n")
            .end(&file(2), "20\n")
            .end(&file(3), "x");
        assert_eq!(host.ev().wakeup_limits(), BTreeMap::from([(1, 0), (2, 20)]));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(name in ".{0,40}", text in ".{0,40}") {
            let host = Fixture::second()
                .start(&format!("{CPUS}cpu0/cpuidle/state0/{name}"), &text)
                .end(&format!("{CPUS}cpu0/cpuidle/state0/latency"), &text)
                .end(&format!("{CPUS}{name}"), &text)
                .end(&format!("{CPUS}{name}/power/pm_qos_resume_latency_us"), &text);
            let _ = (host.ev().idle_states(0), host.ev().idle_states_by_cpu(), host.ev().wakeup_limits());
        }
    }
}
