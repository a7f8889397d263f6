//! The table of `whyslow cpu`: one row for each CPU.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::{CpuAccount, Share};

use super::compare::{Against, CpuSpeeds};
use super::measure::{ADDITIONS, Measured};
use super::reasons::{handlers, reasons};
use crate::parse::{single, text};
use crate::{CpuTime, Evidence, Policy};

/// A row for each CPU that was to be measured; none if the measurement was not requested.
#[must_use]
pub fn rows(ev: &Evidence<'_>) -> Vec<CpuAccount> {
    let (Ok(speeds), Ok(all)) = (CpuSpeeds::of(ev), ev.speeds()) else { return Vec::new() };
    let numbers: Vec<u32> = all.iter().map(|row| row.cpu).collect();
    let nodes = ev.node_of(&numbers);
    let policies = ev.cpufreq_policies();
    let times: BTreeMap<u32, CpuTime> = ev.cpu_time_by_cpu().unwrap_or_default().into_iter().rev().collect();
    let row = |cpu: u32| {
        let policy = policies.iter().find(|policy| policy.cpus.contains(&cpu));
        let empty =
            CpuAccount { cpu, node: nodes.get(&cpu).copied(), ..around(ev, cpu, times.get(&cpu), policy) };
        match speeds.measured.iter().find(|seen| seen.cpu == cpu) {
            Some(seen) => measured(ev, &speeds, seen, empty),
            None => {
                let why = speeds.skipped.iter().find(|(skipped, _)| *skipped == cpu);
                CpuAccount { not_measured: why.map(|(_, why)| why.clone()), ..empty }
            }
        }
    };
    numbers.into_iter().map(row).collect()
}

fn measured(ev: &Evidence<'_>, speeds: &CpuSpeeds, seen: &Measured, row: CpuAccount) -> CpuAccount {
    let verdict = speeds.judge(seen);
    let why = verdict.map(|verdict| reasons(ev, seen, &verdict).words());
    let million = seen.typical / ADDITIONS * 1e6 / 1e9;
    CpuAccount {
        million: Duration::try_from_secs_f64(million).ok(),
        ratio: speeds.ratio(seen),
        slow: verdict.map(|verdict| verdict.ratio),
        slow_against: verdict.map(|verdict| verdict.against.words().to_owned()),
        reasons: why.into_iter().collect(),
        taken: Some(Share::of(seen.taken(), 1.0)),
        mhz: seen.mhz,
        nominal_mhz: seen.nominal_mhz,
        busy_mhz: seen.busy_mhz,
        ..row
    }
}

impl Against {
    /// The words of the report.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Against::Median => "the median CPU",
            Against::Nominal => "its nominal frequency",
            Against::Baseline => "the baseline",
            Against::Itself => "when nothing interrupts it",
        }
    }
}

/// What the kernel's counters say about the CPU.
fn around(ev: &Evidence<'_>, cpu: u32, time: Option<&CpuTime>, policy: Option<&Policy>) -> CpuAccount {
    let share = |part: Duration, whole: Duration| Share::of(part.as_secs_f64(), whole.as_secs_f64());
    let handlers = handlers(ev, cpu);
    CpuAccount {
        busy: time.map(|time| share(time.busy(), time.total())),
        steal: time.map(|time| share(time.steal, time.total())),
        hardirq: handlers.as_ref().map(|(hard, _, _)| *hard),
        softirq: handlers.as_ref().map(|(_, soft, _)| *soft),
        idle_state: idle_state(ev, cpu),
        governor: policy.map(|policy| policy.governor.clone()),
        driver: policy.map(|policy| policy.driver.clone()),
        ..CpuAccount::default()
    }
}

/// The idle state in which the CPU was longest in the window.
fn idle_state(ev: &Evidence<'_>, cpu: u32) -> Option<String> {
    let folder = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state");
    let time = |name: &str| {
        let (first, last) = ev.ends(name, single::integer).ok()?;
        Some(last.saturating_sub(first)).filter(|us| *us > 0)
    };
    let states = ev.files_like(&folder, "/time").into_iter();
    let (_, longest) = states.filter_map(|f| Some((time(&f.name)?, &f.name))).max()?;
    let name = ev.last(&format!("{}/name", longest.strip_suffix("/time")?)).ok()?;
    Some(text(&name.bytes).trim().to_owned())
}
