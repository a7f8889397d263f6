//! What decides how fast the CPUs run: cpufreq policies, turbo, thermal throttling; and which cores and nodes the CPUs belong to.

use std::collections::BTreeMap;

use super::Evidence;
use crate::parse::{cpulist, single, text};

const CPUS: &str = "sys/devices/system/cpu/";

/// A cpufreq policy: CPUs that share a clock. Frequencies are in kHz.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Its folder: "/sys/devices/system/cpu/cpufreq/policy0".
    pub folder: String,
    /// Its online CPUs.
    pub cpus: Vec<u32>,
    /// "acpi-cpufreq", "intel_pstate", "amd-pstate-epp".
    pub driver: String,
    /// "powersave", "schedutil".
    pub governor: String,
    /// The lower and the upper limit that are set.
    pub limits: (Option<u64>, Option<u64>),
    /// The hardware's range.
    pub hardware: (Option<u64>, Option<u64>),
    /// The firmware's upper limit.
    pub bios_limit: Option<u64>,
}

impl Policy {
    /// The driver picks frequencies itself, whatever the governor's name.
    #[must_use]
    pub fn picks_itself(&self) -> bool {
        matches!(self.driver.as_str(), "intel_pstate" | "amd-pstate-epp" | "amd_pstate_epp")
    }

    /// The frequency at which the governor keeps its CPUs, if that is the lowest: `powersave` means this except under drivers
    /// that pick frequencies themselves.
    #[must_use]
    pub fn pinned_low(&self) -> Option<(u64, u64)> {
        let (lowest, highest) = (self.limits.0.or(self.hardware.0)?, self.hardware.1?);
        let pins = self.governor == "powersave" && !self.picks_itself();
        (pins && lowest < highest).then_some((lowest, highest))
    }

    /// The clock of an idle CPU proves nothing: it rises with load.
    #[must_use]
    pub fn rises_with_load(&self) -> bool {
        self.picks_itself() || matches!(self.governor.as_str(), "schedutil" | "ondemand" | "conservative")
    }
}

impl Evidence<'_> {
    /// All policies; none on hosts without a cpufreq driver.
    pub fn cpufreq_policies(&self) -> Vec<Policy> {
        let folders = self.files_like("sys/devices/system/cpu/cpufreq/policy", "/scaling_driver");
        folders
            .into_iter()
            .filter_map(|f| f.name.strip_suffix("/scaling_driver"))
            .filter(|folder| is_policy(folder))
            .map(|folder| self.policy(folder))
            .collect()
    }

    fn policy(&self, folder: &str) -> Policy {
        let word = |name: &str| self.word(&format!("{folder}/{name}")).unwrap_or_default();
        let number = |name: &str| self.positive(&format!("{folder}/{name}"));
        let cpus = word("affected_cpus");
        Policy {
            folder: format!("/{folder}"),
            cpus: cpus.split_ascii_whitespace().filter_map(|cpu| cpu.parse().ok()).collect(),
            driver: word("scaling_driver"),
            governor: word("scaling_governor"),
            limits: (number("scaling_min_freq"), number("scaling_max_freq")),
            hardware: (number("cpuinfo_min_freq"), number("cpuinfo_max_freq")),
            bios_limit: number("bios_limit"),
        }
    }

    /// A file of one line.
    fn word(&self, name: &str) -> Option<String> {
        let frame = self.last(name).ok()?;
        Some(text(&frame.bytes).trim().to_owned()).filter(|word| !word.is_empty())
    }

    fn positive(&self, name: &str) -> Option<u64> {
        u64::try_from(self.file(name, single::integer).ok()?).ok()
    }

    /// Turbo is switched off, by this file.
    pub fn turbo_off(&self) -> Option<&'static str> {
        const FILES: [(&str, &str); 2] = [("intel_pstate/no_turbo", "1"), ("cpufreq/boost", "0")];
        let off = |(name, off): &&(&str, &str)| self.word(&format!("{CPUS}{name}")).as_deref() == Some(*off);
        FILES.iter().find(off).map(|(name, _)| *name)
    }

    /// The upper limit that is set for intel_pstate, in per cent.
    pub fn performance_limit(&self) -> Option<u64> {
        self.positive(&format!("{CPUS}intel_pstate/max_perf_pct"))
    }

    /// Counters of thermal throttling that rose in the window, of one CPU: "package_throttle_count".
    pub fn throttled(&self, cpu: u32) -> Vec<String> {
        let folder = format!("{CPUS}cpu{cpu}/thermal_throttle/");
        let counts = self.files_like(&folder, "_count");
        let rose = |name: &str| self.ends(name, single::integer).is_ok_and(|(first, last)| last > first);
        let rising = counts.into_iter().filter(|frame| rose(&frame.name));
        rising.filter_map(|frame| Some(frame.name.strip_prefix(&folder)?.to_owned())).collect()
    }

    /// CPUs that share a core with this one.
    pub fn siblings(&self, cpu: u32) -> Vec<u32> {
        let name = format!("{CPUS}cpu{cpu}/topology/thread_siblings_list");
        let Ok(list) = self.file(&name, cpulist::parse) else { return Vec::new() };
        let all = 0..self.recording().meta.cpus.saturating_mul(2).clamp(cpu, 8192).saturating_add(1);
        all.filter(|other| *other != cpu && list.contains(*other)).take(16).collect()
    }

    /// The node of each CPU of `cpus`, where the kernel knows nodes.
    pub fn node_of(&self, cpus: &[u32]) -> BTreeMap<u32, u32> {
        let mut nodes = BTreeMap::new();
        for frame in self.files_like("sys/devices/system/node/node", "/cpulist") {
            let node = frame.name.split('/').nth(4).and_then(|n| n.strip_prefix("node")?.parse().ok());
            let (Some(node), Ok(list)) = (node, cpulist::parse(&text(&frame.bytes))) else { continue };
            nodes.extend(cpus.iter().filter(|cpu| list.contains(**cpu)).map(|cpu| (*cpu, node)));
        }
        nodes
    }

    /// The kind of a CPU's core, where a host has several: cores of one kind are alike.
    pub fn core_class(&self, cpu: u32) -> String {
        let small =
            self.file("sys/devices/cpu_atom/cpus", cpulist::parse).is_ok_and(|list| list.contains(cpu));
        let capacity = self.word(&format!("{CPUS}cpu{cpu}/cpu_capacity")).unwrap_or_default();
        if small { format!("small {capacity}") } else { capacity }
    }
}

/// "policy0": drivers/cpufreq/cpufreq.c makes these names (kobject_init_and_add, "policy%u"). A file of a recording may have
/// any name.
fn is_policy(folder: &str) -> bool {
    let number = folder.rsplit('/').next().and_then(|name| name.strip_prefix("policy"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

    fn governed(driver: &str, governor: &str) -> Fixture {
        let file = |name: &str| format!("{POLICY}/{name}");
        Fixture::second()
            .end(&file("affected_cpus"), "0 1\n")
            .end(&file("scaling_driver"), driver)
            .end(&file("scaling_governor"), governor)
            .end(&file("scaling_min_freq"), "1200000\n")
            .end(&file("cpuinfo_max_freq"), "2000000\n")
            .end(&file("bios_limit"), "torn")
    }

    #[test]
    fn powersave_pins_the_lowest_frequency_but_not_under_drivers_that_pick_themselves() {
        let policy = |driver, governor| governed(driver, governor).ev().cpufreq_policies().remove(0);
        assert_eq!(policy("acpi-cpufreq\n", "powersave\n").pinned_low(), Some((1_200_000, 2_000_000)));
        assert_eq!(policy("intel_cpufreq\n", "powersave\n").pinned_low(), Some((1_200_000, 2_000_000)));
        assert_eq!(policy("intel_pstate\n", "powersave\n").pinned_low(), None);
        assert_eq!(policy("amd-pstate-epp\n", "powersave\n").pinned_low(), None);
        assert_eq!(policy("acpi-cpufreq\n", "performance\n").pinned_low(), None);
        let read = policy("acpi-cpufreq\n", "schedutil\n");
        assert!(read.rises_with_load() && read.cpus == [0, 1] && read.bios_limit.is_none());
    }

    #[test]
    fn a_folder_of_another_name_is_no_policy() {
        for name in ["policy0/x; id #", "policy0;id", "policy", "policy1a"] {
            let file = format!("sys/devices/system/cpu/cpufreq/{name}/scaling_driver");
            assert!(
                Fixture::second().end(&file, "acpi-cpufreq\n").ev().cpufreq_policies().is_empty(),
                "{name}"
            );
        }
    }

    #[test]
    fn only_counters_that_rise_are_throttling() {
        let file = |name: &str| format!("sys/devices/system/cpu/cpu3/thermal_throttle/{name}");
        let host = Fixture::second()
            .start(&file("core_throttle_count"), "5\n")
            .end(&file("core_throttle_count"), "5\n")
            .start(&file("package_throttle_count"), "5\n")
            .end(&file("package_throttle_count"), "7\n");
        assert_eq!(host.ev().throttled(3), ["package_throttle_count"]);
        assert!(host.ev().throttled(30).is_empty());
    }

    #[test]
    fn cores_and_nodes_are_known_from_their_lists() {
        let host = Fixture::second()
            .end("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n")
            .end("sys/devices/system/node/node1/cpulist", "1-3\n");
        assert_eq!(host.ev().siblings(0), [2]);
        assert_eq!(host.ev().node_of(&[0, 1]), BTreeMap::from([(1, 1)]));
        assert_eq!(host.ev().turbo_off(), None);
    }
}
