//! Tables of the host, and limits of groups: how full, how often they were met.

use std::time::Duration;

use whyslow_model::resource::{self, Resource};
use whyslow_model::table::{Cgroup, CgroupCpu, CgroupMemory};
use whyslow_model::{Bytes, Share, times};

use crate::Evidence;
use crate::rules::tracked::{self, Dropping};

/// How many limits of one kind are listed, those that were met most often first.
const MOST: usize = 4;
/// From this part on a limit counts as near.
const NEAR: Share = Share::percent(90);

/// "480 of 500", with that share.
fn part(name: &str, now: u64, limit: u64) -> Resource {
    Resource {
        name: name.to_owned(),
        amount: format!("{now} of {limit}"),
        used: Some(Share::of(now as f64, limit as f64)),
        ..Resource::default()
    }
}

/// Tables of the whole host.
pub(super) fn tables(ev: &Evidence<'_>) -> Vec<Resource> {
    let files = ev.sysctls("fs/file-nr").ok().and_then(|numbers| match numbers[..] {
        // systemd sets 2^63 - 1, which means no limit.
        [open, _, limit] if limit > 0 && limit < 1 << 62 => Some(part(resource::OPEN_FILES, open, limit)),
        _ => None,
    });
    let limits = ["kernel/pid_max", "kernel/threads-max"].into_iter();
    let most = limits.filter_map(|name| u64::try_from(ev.sysctl(name).ok()?).ok()).min();
    let tasks = ev.load().ok().zip(most).map(|(load, most)| part(resource::TASKS, load.tasks, most));
    let tracked = tracked::usage(ev).ok().map(|(count, most)| part(resource::CONNTRACK, count, most));
    let of_dropping = |one: Dropping| Resource {
        name: resource::conntrack_of(&one.netns),
        amount: one.full.unwrap_or_default(),
        saturated: Some(match one.packets {
            1 => "1 packet was dropped".to_owned(),
            n => format!("{n} packets were dropped"),
        }),
        errors: Some(one.packets),
        ..Resource::default()
    };
    let mut dropping = tracked::dropping(ev);
    dropping.sort_by_key(|one| std::cmp::Reverse(one.packets));
    let dropping = dropping.into_iter().take(MOST).map(of_dropping);
    files.into_iter().chain(tasks).chain(tracked).chain(dropping).collect()
}

/// Quotas that ran out, and memory limits that were met or are near.
pub(super) fn of_groups(ev: &Evidence<'_>) -> Vec<Resource> {
    let groups = ev.cgroups().unwrap_or_default();
    let of = |pick: fn(&Cgroup) -> Option<(u64, Resource)>| {
        let mut all: Vec<(u64, Resource)> = groups.iter().filter_map(pick).collect();
        all.sort_by_key(|(met, _)| std::cmp::Reverse(*met));
        all.into_iter().take(MOST).map(|(_, row)| row)
    };
    of(quota).chain(of(memory)).collect()
}

fn said(met: u64, kills: u64) -> Option<String> {
    let met = (met > 0).then(|| format!("allocations met it {}", times(met)));
    let killed = (kills > 0).then(|| match kills {
        1 => "1 process was killed".to_owned(),
        n => format!("{n} processes were killed"),
    });
    let said: Vec<String> = met.into_iter().chain(killed).collect();
    (!said.is_empty()).then(|| said.join(", "))
}

fn quota(group: &Cgroup) -> Option<(u64, Resource)> {
    let CgroupCpu { quota_ns, period_ns, periods, throttled_periods, throttled_ns, .. } =
        group.cpu.clone()?;
    let cpus = quota_ns? as f64 / period_ns.max(1) as f64;
    let row = Resource {
        name: resource::cpu_quota(&group.path),
        amount: format!("{cpus:.2} CPUs"),
        saturated: Some(format!(
            "it ran out in {throttled_periods} of {periods} periods, for {} of its CPUs' time",
            whyslow_model::seconds(Duration::from_nanos(throttled_ns))
        )),
        ..Resource::default()
    };
    (throttled_periods > 0).then_some((throttled_ns, row))
}

fn memory(group: &Cgroup) -> Option<(u64, Resource)> {
    let CgroupMemory { usage, limit, high, limit_hits, oom_kills, .. } = group.memory.clone()?;
    let limit = high.into_iter().chain(limit).min()?;
    let used = Share::of(usage as f64, limit as f64);
    let row = Resource {
        name: resource::memory_limit(&group.path),
        amount: format!("{} of {}", Bytes(usage), Bytes(limit)),
        used: Some(used),
        saturated: said(limit_hits, oom_kills),
        errors: (!group.uncounted).then_some(oom_kills),
        ..Resource::default()
    };
    (limit_hits > 0 || used >= NEAR).then_some((limit_hits, row))
}
