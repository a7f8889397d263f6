//! The CPU's power states, in a guest with a table of lab/acpi: cpufreq policies, governors.

use std::fs;
use std::path::{Path, PathBuf};

use whyslow_faults::host;
use whyslow_faults::rounds::Trouble;

use crate::guest_modules;

/// The driver of cpufreq that the lab's ACPI tables are for.
const DRIVER: &str = "acpi-cpufreq";

/// Load the driver, so that each CPU has a policy. For the table with an emulated MSR the fault module must turn the MSR on first.
pub fn load() -> Result<(), Trouble> {
    guest_modules::load(DRIVER)?;
    governors().map(drop)
}

/// Set the governor of every policy.
pub fn govern(by: &str) -> Result<(), Trouble> {
    let set = |file: &Path| fs::write(file, by).map_err(|err| format!("{}: {err}", file.display()));
    Ok(governors()?.iter().try_for_each(|file| set(file))?)
}

/// Set the governor of one CPU's policy.
pub fn govern_one(cpu: usize, by: &str) -> Result<(), Trouble> {
    let file = of(cpu).join("scaling_governor");
    Ok(fs::write(&file, by).map_err(|err| format!("{}: {err}", file.display()))?)
}

/// The file in which a CPU's present frequency can be read.
#[must_use]
pub fn present_frequency(cpu: usize) -> PathBuf {
    of(cpu).join("cpuinfo_cur_freq")
}

fn governors() -> Result<Vec<PathBuf>, Trouble> {
    let files = host::cpus().into_iter().map(|cpu| of(cpu).join("scaling_governor"));
    let files: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
    if files.is_empty() {
        Err("no CPU has a cpufreq policy: this wants a table of lab/acpi".into())
    } else {
        Ok(files)
    }
}

fn of(cpu: usize) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq"))
}
