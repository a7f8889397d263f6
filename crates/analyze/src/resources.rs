//! The host's CPUs, memory, disks, devices and tables: how much is used, waited for and refused, and by which subject. Limits that
//! were met are rows, too.
//!
//! A row that is not known is left out; a number that the recording does not have is no zero. The table makes no culprits: causes do, and name
//! the row that they are about (`Finding::resource`).

mod limits;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use whyslow_model::resource::{self, Resource};
use whyslow_model::{Bytes, Finding, Kind, Share, counted, seconds};

use crate::Evidence;
use crate::parse::diskstats::DiskStat;
use crate::parse::netdev::{self, Device};

/// How many devices of one kind are listed, the busiest first.
const MOST: usize = 8;
/// Below this use tasks do not wait for the resource itself: a quota, an affinity mask or a group's limit makes them wait.
const FULL: Share = Share::percent(90);

/// All rows that are known, with the causes that are about them.
#[must_use]
pub fn of(ev: &Evidence<'_>, findings: &[Finding]) -> Vec<Resource> {
    let mut rows: Vec<Resource> = [cpus(ev), memory(ev)].into_iter().flatten().collect();
    rows.extend(disks(ev));
    rows.extend(devices(ev));
    rows.extend(limits::tables(ev));
    rows.extend(limits::of_groups(ev));
    let causes = findings.iter().filter(|found| found.kind == Kind::Cause);
    for (found, name) in causes.filter_map(|found| Some((found, found.resource.as_ref()?))) {
        if !rows.iter().any(|row| row.name == *name) {
            rows.push(Resource { name: name.clone(), ..Resource::default() });
        }
        for row in rows.iter_mut().filter(|row| row.name == *name) {
            row.paid_by.get_or_insert_with(|| found.victim.name.clone());
            if found.failed_calls > 0 {
                let failed = row.errors.unwrap_or(0).saturating_add(found.failed_calls);
                row.errors = Some(failed);
                row.saturated = Some(format!("calls that failed for lack of it: {failed}"));
            }
        }
    }
    rows
}

fn cpus(ev: &Evidence<'_>) -> Option<Resource> {
    let cpu = ev.cpu_time().ok()?;
    let count = ev.recording().meta.cpus;
    let used = Share::of(cpu.busy().as_secs_f64(), cpu.total().as_secs_f64());
    let tasks = ev.tasks().ok().filter(|_| ev.waits_were_seen().is_ok());
    let ready = tasks.map(|tasks| tasks.iter().map(|task| task.runnable_ns).fold(0, u64::saturating_add));
    let ready = ready.filter(|_| used >= FULL).map(Duration::from_nanos);
    let trees = ev.trees_by_name();
    let most = trees.all.iter().max_by_key(|tree| tree.used_ns).filter(|tree| tree.used_ns > 0);
    Some(Resource {
        name: resource::CPUS.to_owned(),
        amount: format!("{:.1} of {count}", used.ratio() * f64::from(count)),
        used: Some(used),
        saturated: ready.map(|ready| format!("tasks were ready and had none for {} in all", seconds(ready))),
        by: most.map(|tree| by(&tree.subject(ev).name, &seconds(Duration::from_nanos(tree.used_ns)))),
        ..Resource::default()
    })
}

/// "tar (1.2 GiB)".
fn by(name: &str, amount: &str) -> String {
    format!("{name} ({amount})")
}

fn memory(ev: &Evidence<'_>) -> Option<Resource> {
    let (total, free) = (ev.meminfo("MemTotal").ok()?, ev.meminfo("MemAvailable").ok()?);
    let used = total.0.saturating_sub(free.0);
    let full = Share::of(used as f64, total.0 as f64);
    // The pressure of the whole host; groups at their limits have rows of their own.
    let stalled = ev.pressure("memory").ok().and_then(|pressure| pressure.some).filter(|_| full >= FULL);
    // A group's page cache is not part of the used memory.
    let most = most_memory(ev).filter(|(_, bytes)| *bytes <= used);
    Some(Resource {
        name: resource::MEMORY.to_owned(),
        amount: format!("{} of {total}", Bytes(used)),
        used: Some(full),
        saturated: stalled.map(|time| format!("tasks waited for memory for {} of the window", seconds(time))),
        by: most.map(|(path, bytes)| {
            by(&ev.names().subject(path).name, &format!("{}, its cache included", Bytes(bytes)))
        }),
        ..Resource::default()
    })
}

/// The group with most memory; if nearly all of it belongs to one of its children, that child.
fn most_memory<'r>(ev: &Evidence<'r>) -> Option<(&'r str, u64)> {
    const NEARLY_ALL: f64 = 0.9;
    let groups = ev.cgroups().ok()?.iter();
    let groups: Vec<(&str, u64)> = groups
        .filter(|group| group.path != "/")
        .filter_map(|group| Some((group.path.as_str(), group.memory.as_ref()?.usage)))
        .collect();
    let (top, most) = groups.iter().copied().max_by_key(|(_, usage)| *usage).filter(|(_, most)| *most > 0)?;
    let is_in = |path: &str| Path::new(path).starts_with(top);
    let large =
        groups.into_iter().filter(|(path, usage)| is_in(path) && *usage as f64 >= NEARLY_ALL * most as f64);
    large.max_by_key(|(path, usage)| (path.matches('/').count(), *usage))
}

/// Devices made of other disks, or of files and memory: their requests are counted there again.
const STACKED: [&str; 5] = ["dm-", "md", "loop", "zram", "ram"];

/// Whole disks with requests in the window.
fn disks(ev: &Evidence<'_>) -> Vec<Resource> {
    let Ok(all) = ev.disks() else { return Vec::new() };
    let is_whole = |disk: &DiskStat| {
        !STACKED.iter().any(|of| disk.name.starts_with(of))
            && ev.last(&format!("sys/block/{}/size", disk.name)).is_ok()
    };
    let has_work = |disk: &DiskStat| disk.busy_ms > 0 || disk.in_flight > 0;
    let mut busy: Vec<DiskStat> = all.into_iter().filter(|disk| has_work(disk) && is_whole(disk)).collect();
    busy.sort_by_key(|disk| std::cmp::Reverse(disk.busy_ms));
    busy.truncate(MOST);
    busy.iter().map(|disk| of_disk(ev, disk)).collect()
}

fn of_disk(ev: &Evidence<'_>, disk: &DiskStat) -> Resource {
    let window_ms = ev.window().as_secs_f64() * 1e3;
    let at_once = disk.read_ms.saturating_add(disk.write_ms) as f64 / window_ms.max(1.0);
    let mut by_group: BTreeMap<u64, u64> = BTreeMap::new();
    for row in ev.disk().unwrap_or_default().iter().filter(|row| row.dev == disk.dev) {
        let sum = by_group.entry(row.cgroup).or_default();
        *sum = sum.saturating_add(row.bytes);
    }
    let most = by_group.into_iter().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0);
    let name = |id| {
        ev.cgroup(id)
            .map_or_else(|| "a group that is not known".to_owned(), |group| ev.names().cgroup(group).name)
    };
    let queue = match disk.in_flight {
        _ if at_once > 1.0 => Some(format!("{at_once:.1} requests at a time, of those that ended")),
        0 | 1 => None,
        now => Some(format!("{now} requests have not ended")),
    };
    Resource {
        name: disk.name.clone(),
        amount: format!("{} read, {} written", rate(ev, disk.read_bytes), rate(ev, disk.write_bytes)),
        // Before Linux 6.10 the counter adds a whole tick for each request.
        used: Some(Share::of((disk.busy_ms as f64).min(window_ms), window_ms)),
        saturated: queue,
        by: most.map(|(id, bytes)| by(&name(id), &Bytes(bytes).to_string())),
        ..Resource::default()
    }
}

fn rate(ev: &Evidence<'_>, bytes: u64) -> String {
    format!("{}/s", Bytes((bytes as f64 / ev.window().as_secs_f64().max(1e-3)) as u64))
}

/// Devices of whyslow's own network namespace with traffic in the window. For most of them the kernel does not know the capacity.
fn devices(ev: &Evidence<'_>) -> Vec<Resource> {
    let Ok((first, last)) = ev.ends("proc/net/dev", netdev::parse) else { return Vec::new() };
    let first: BTreeMap<&str, &Device> = first.iter().map(|one| (one.name.as_str(), one)).collect();
    let mut rises: Vec<Device> =
        last.iter().filter_map(|now| Some(rise(first.get(now.name.as_str())?, now))).collect();
    rises.retain(|one| one.rx_bytes > 0 || one.tx_bytes > 0 || one.errors > 0);
    rises.sort_by_key(|one| std::cmp::Reverse((one.errors > 0, one.rx_bytes.saturating_add(one.tx_bytes))));
    rises.truncate(MOST);
    let row = |one: &Device| Resource {
        name: one.name.clone(),
        amount: format!("{} in, {} out", rate(ev, one.rx_bytes), rate(ev, one.tx_bytes)),
        // The kernel counts frames of unknown protocols as dropped, too (LLDP, STP).
        saturated: (one.errors > 0)
            .then(|| format!("{} broken, dropped or of no use", counted(one.errors, "packet"))),
        errors: Some(one.errors),
        ..Resource::default()
    };
    rises.iter().map(row).collect()
}

fn rise(first: &Device, last: &Device) -> Device {
    Device {
        name: last.name.clone(),
        rx_bytes: last.rx_bytes.saturating_sub(first.rx_bytes),
        tx_bytes: last.tx_bytes.saturating_sub(first.tx_bytes),
        errors: last.errors.saturating_sub(first.errors),
    }
}

#[cfg(test)]
mod tests;
