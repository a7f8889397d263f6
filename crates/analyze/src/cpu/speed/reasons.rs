//! Why a CPU is slow: each reason from its own evidence, and if none holds, the reasons that were ruled out.

use std::time::Duration;

use whyslow_model::{Share, seconds};

use super::compare::{Against, Verdict};
use super::measure::Measured;
use crate::{CpuTime, Evidence, Policy};

/// What takes less of a CPU than this does not explain a slow one.
const TELLING: f64 = 0.1;
/// A limit this near to the full frequency costs less than what makes a CPU slow.
const LOW_LIMIT: f64 = 0.8;
/// A sibling that is busy for this much of the window shares the core nearly always.
const BUSY_SIBLING: f64 = 0.9;

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    /// Equal for the same reason on several CPUs.
    pub kind: &'static str,
    /// In words.
    pub text: String,
    /// The file that sets the limit.
    pub file: Option<String>,
    /// The file's value, and the value that would lift the limit.
    pub values: Option<(String, String)>,
}

impl Reason {
    fn new(kind: &'static str, text: String) -> Self {
        Reason { kind, text, file: None, values: None }
    }

    fn set_by(self, file: String, is: impl ToString, better: impl ToString) -> Self {
        Reason { file: Some(file), values: Some((is.to_string(), better.to_string())), ..self }
    }
}

/// What is known about the reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reasons {
    /// Reasons that hold, the surest first.
    pub hold: Vec<Reason>,
    /// Reasons that were examined and do not hold.
    pub not: Vec<&'static str>,
}

impl Reasons {
    /// "governor powersave keeps it at 1200 of 2000 MHz", "unknown: not frequency, not steal".
    pub fn words(&self) -> String {
        if self.hold.is_empty() {
            let not: Vec<String> = self.not.iter().map(|what| format!("not {what}")).collect();
            return if not.is_empty() {
                "unknown".to_owned()
            } else {
                format!("unknown: {}", not.join(", "))
            };
        }
        let all: Vec<&str> = self.hold.iter().map(|reason| reason.text.as_str()).collect();
        all.join("; ")
    }

    /// Equal for CPUs with reasons of the same kinds.
    pub fn key(&self) -> Vec<&'static str> {
        self.hold.iter().map(|reason| reason.kind).collect()
    }
}

/// Why `seen` is slow.
pub(crate) fn reasons(ev: &Evidence<'_>, seen: &Measured, verdict: &Verdict) -> Reasons {
    let mut found = Reasons::default();
    frequency(ev, seen.cpu, verdict, &mut found);
    // The time of a loop does not contain its wait for a CPU, nor the wait of a throttled group.
    found.not.push("quota");
    let time = ev.cpu_time_by_cpu().ok().and_then(|all| all.into_iter().find(|(cpu, _)| *cpu == seen.cpu));
    if let Some((_, time)) = time {
        steal(&time, &mut found);
    }
    interrupts(ev, seen, &mut found);
    sibling(ev, seen.cpu, &mut found);
    found
}

fn mhz(khz: u64) -> u64 {
    khz / 1000
}

fn frequency(ev: &Evidence<'_>, cpu: u32, verdict: &Verdict, found: &mut Reasons) {
    let before = found.hold.len();
    if let Some(policy) = ev.cpufreq_policies().iter().find(|policy| policy.cpus.contains(&cpu)) {
        governed(policy, found);
        capped(policy, found);
        preference(ev, cpu, policy, found);
    }
    const PERF: &str = "/sys/devices/system/cpu/intel_pstate/max_perf_pct";
    if let Some(percent) = ev.performance_limit().filter(|percent| (*percent as f64) < LOW_LIMIT * 100.0) {
        let limit =
            Reason::new("max-perf", format!("intel_pstate may use {percent} % of its performance only"));
        found.hold.push(limit.set_by(PERF.to_owned(), percent, 100));
    }
    // With turbo off a CPU is not slower than others of its kind, nor than nominal.
    let was_on = ev.baseline().is_none_or(|rec| Evidence::of(rec).turbo_off().is_none());
    if let Some(file) = ev.turbo_off().filter(|_| verdict.against == Against::Baseline && was_on) {
        let (is, better) = if file.ends_with("boost") { ("0", "1") } else { ("1", "0") };
        let off = Reason::new("turbo", "turbo is switched off".to_owned());
        found.hold.push(off.set_by(format!("/sys/devices/system/cpu/{file}"), is, better));
    }
    let throttled = ev.throttled(cpu);
    let has = |word: &str| throttled.iter().any(|counter| counter.contains(word));
    if has("throttle") {
        found.hold.push(Reason::new("thermal", "it was throttled for heat in the window".to_owned()));
    }
    if has("power_limit") {
        found.hold.push(Reason::new("power", "a power limit was met in the window".to_owned()));
    }
    if found.hold.len() == before {
        found.not.push("frequency (no governor, limit or throttling holds it down here)");
    }
}

fn governed(policy: &Policy, found: &mut Reasons) {
    let file = format!("{}/scaling_governor", policy.folder);
    if let Some((lowest, highest)) = policy.pinned_low() {
        let words = format!(
            "governor powersave of {} keeps it at {} of {} MHz",
            policy.driver,
            mhz(lowest),
            mhz(highest)
        );
        found.hold.push(Reason::new("governor", words).set_by(file, "powersave", "performance"));
    } else if policy.governor == "userspace" {
        let words =
            "governor userspace keeps it at a frequency that a program or an administrator set".to_owned();
        found.hold.push(Reason::new("governor", words).set_by(file, "userspace", "performance"));
    }
}

fn capped(policy: &Policy, found: &mut Reasons) {
    let Some(highest) = policy.hardware.1.filter(|khz| *khz > 0) else { return };
    let is_low = |khz: &u64| (*khz as f64) < LOW_LIMIT * highest as f64;
    if let Some(limit) = policy.limits.1.filter(is_low) {
        let words = format!("scaling_max_freq holds it to {} of {} MHz", mhz(limit), mhz(highest));
        let file = format!("{}/scaling_max_freq", policy.folder);
        found.hold.push(Reason::new("max-freq", words).set_by(file, limit, highest));
    }
    if let Some(limit) = policy.bios_limit.filter(is_low) {
        let words = format!("the firmware (bios_limit) holds it to {} of {} MHz", mhz(limit), mhz(highest));
        found.hold.push(Reason::new("bios", words));
    }
}

/// Where the driver picks the frequency itself, `powersave` is the usual governor, and this preference makes it choose a low one.
fn preference(ev: &Evidence<'_>, cpu: u32, policy: &Policy, found: &mut Reasons) {
    if !policy.picks_itself() {
        return;
    }
    let rows = ev.speeds().unwrap_or_default();
    let of = |cpu: u32| rows.iter().find(|row| row.cpu == cpu);
    let named = policy.folder.rsplit("policy").next().and_then(|n| n.parse().ok()).and_then(of);
    if let Some(epp) = named.and_then(|row| row.preference.clone()).filter(|epp| epp.contains("power")) {
        let words = format!("energy_performance_preference is {epp}");
        let file = format!("{}/energy_performance_preference", policy.folder);
        found.hold.push(Reason::new("epp", words).set_by(file, epp, "performance"));
    }
    const SAVES: u32 = 8; // 6 is the usual value, 15 saves most
    let bias = of(cpu).and_then(|row| row.bias.as_ref()?.parse::<u32>().ok());
    if let Some(epb) = bias.filter(|epb| *epb >= SAVES) {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/power/energy_perf_bias");
        let words = format!("energy_perf_bias is {epb} of 15");
        found.hold.push(Reason::new("epb", words).set_by(file, epb, 6));
    }
}

fn steal(time: &CpuTime, found: &mut Reasons) {
    let share = Share::of(time.steal.as_secs_f64(), (time.busy() + time.steal).as_secs_f64());
    if share.ratio() >= TELLING {
        let words = format!("the hypervisor took {share} of the time that it had work for");
        found.hold.push(Reason::new("steal", words));
    } else {
        found.not.push("steal");
    }
}

/// The share of the window in interrupt handlers: (hard, soft, the costliest handler).
pub(crate) fn handlers(ev: &Evidence<'_>, cpu: u32) -> Option<(Share, Share, Option<(String, Share)>)> {
    let row = ev.cpus().ok()?.iter().find(|row| row.cpu == cpu)?;
    let window = ev.window().as_nanos() as f64;
    let share = |ns: u64| Share::of(ns as f64, window);
    let sum = |all: &mut dyn Iterator<Item = u64>| share(all.fold(0, u64::saturating_add));
    let hard = sum(&mut row.hardirqs.iter().map(|(_, _, ns, _)| *ns));
    let soft = sum(&mut row.softirqs.iter().map(|(_, ns, _)| *ns));
    let named = row.hardirqs.iter().map(|(_, name, ns, _)| (name, *ns));
    let named = named.chain(row.softirqs.iter().map(|(name, ns, _)| (name, *ns)));
    let most = named.max_by_key(|(_, ns)| *ns).map(|(name, ns)| (name.clone(), share(ns)));
    Some((hard, soft, most))
}

/// Whether most of the handlers' time on a CPU is the completion of block requests: by the softirq that does it, or by drivers that
/// do it in their interrupt (drivers/nvme/host/pci.c, drivers/block/virtio_blk.c).
pub(crate) fn of_disks(ev: &Evidence<'_>, cpu: u32) -> bool {
    const DRIVERS: [&str; 7] = ["nvme", "-req", "blkif", "ahci", "megasas", "mpt3sas", "mpi3mr"];
    let Some(row) = ev.cpus().ok().and_then(|all| all.iter().find(|row| row.cpu == cpu)) else {
        return false;
    };
    let is_disks = |name: &str| name == "BLOCK" || DRIVERS.iter().any(|driver| name.contains(driver));
    let hard = row.hardirqs.iter().map(|(_, name, ns, _)| (name, *ns));
    let all = || hard.clone().chain(row.softirqs.iter().map(|(name, ns, _)| (name, *ns)));
    let sum = |of: &dyn Fn(&str) -> bool| -> f64 {
        all().filter(|(name, _)| of(name)).map(|(_, ns)| ns as f64).sum()
    };
    sum(&is_disks) > sum(&|_| true) / 2.0
}

fn interrupts(ev: &Evidence<'_>, seen: &Measured, found: &mut Reasons) {
    let taken = seen.taken();
    if taken < TELLING {
        found.not.push("interrupts");
        return;
    }
    let share = Share::of(taken, 1.0);
    let known = handlers(ev, seen.cpu);
    let traced = known.as_ref().map_or(0.0, |(hard, soft, _)| hard.ratio() + soft.ratio());
    if traced >= taken / 2.0 {
        let most = known.and_then(|(_, _, most)| most);
        let most = most
            .map_or_else(String::new, |(name, share)| format!(", most of it {name} ({share} of the window)"));
        found.hold.push(Reason::new("interrupts", format!("interrupts take {share} of its time{most}")));
        return;
    }
    if found.hold.iter().any(|reason| reason.kind == "steal") {
        return;
    }
    if let Some(per_second) = many(ev, seen.cpu, traced, taken) {
        let words = format!(
            "{share} of its time is taken in pieces, and it takes {per_second} interrupts of devices a second, each of which \
             costs more than its handler (entry, and the hypervisor's part)"
        );
        found.hold.push(Reason::new("exits", words));
        return;
    }
    let words = format!(
        "something that no counter names takes {share} of its time in pieces: interrupts that cannot be traced (a timer's), \
         firmware, or a hypervisor that does not report its steal time"
    );
    found.hold.push(Reason::new("taken", words));
}

/// The most that a device's interrupt costs beside its handler: entry and return, cold caches, and on a virtual CPU two exits
/// to the hypervisor (2 to 4 us each).
const BESIDE_HANDLER: Duration = Duration::from_micros(10);

/// Interrupts of devices a second, if they and their handlers may be half of the time taken: a task did not lose that
/// time to interrupts that do its own work.
fn many(ev: &Evidence<'_>, cpu: u32, traced: f64, taken: f64) -> Option<u64> {
    let row = ev.cpus().ok()?.iter().find(|row| row.cpu == cpu)?;
    let count = row.hardirqs.iter().map(|(_, _, _, count)| *count).fold(0, u64::saturating_add);
    let window = ev.window().as_secs_f64().max(1e-9);
    let beside = count as f64 * BESIDE_HANDLER.as_secs_f64() / window;
    (traced + beside >= taken / 2.0).then_some((count as f64 / window) as u64)
}

fn sibling(ev: &Evidence<'_>, cpu: u32, found: &mut Reasons) {
    let siblings = ev.siblings(cpu);
    let Ok(times) = ev.cpu_time_by_cpu() else { return };
    let busy =
        |time: &CpuTime| time.busy().as_secs_f64() / time.total().max(Duration::from_millis(1)).as_secs_f64();
    let full = times.iter().find(|(other, time)| siblings.contains(other) && busy(time) >= BUSY_SIBLING);
    if let Some((other, time)) = full {
        let words = format!("CPU {other} of the same core was busy for {}", seconds(time.busy()));
        found.hold.push(Reason::new("sibling", words));
    }
}

#[cfg(test)]
#[path = "reasons_tests.rs"]
mod tests;
