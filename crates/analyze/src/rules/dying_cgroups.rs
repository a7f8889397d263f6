//! Dying cgroups (removed, but still pinned) hold memory.
//!
//! Signal: on v1, memory cgroups that `/proc/cgroups` counts and that have no directory; on v2, `nr_dying_*` of the root's
//! `cgroup.stat`. A finding about memory only: on current kernels a read of memory.stat was as fast with 6,000 of them as with none.

use whyslow_model::{Bytes, Culprit, Finding, Missing, RuledOut, Share, Subject, SubjectKind};

use super::Rule;
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "dying-cgroups",
    question: "Do dying cgroups hold a noticeable part of memory?",
    what: "A removed memory cgroup stays in the kernel while a page that was charged to it is in memory: a file in \
           the page cache or tmpfs, a cached directory entry. Services and containers that come and go leave thousands of them; \
           each keeps kernel memory, part of it once per CPU.",
    how: "Their number is num_cgroups of /proc/cgroups less the directories (v1), or nr_dying_subsys_memory or \
          nr_dying_descendants of the root's cgroup.stat (v2). Their size is estimated (18.5 KB and 1.9 KB per CPU each, measured on \
          Linux 6.18), and never more than all of Percpu and SUnreclaim. Reported from 5000 on, or from 5 % of memory on; there is no \
          time lost and no counterfactual.",
    limits: "Memory only: CPUs that fold their statistics with interrupts off are findings of packet-stalls and irqs-off, if that is measured. The size: a \
             rough estimate. More cgroups on v1 than were walked: it cannot tell.",
    sources: "kernel/cgroup/cgroup.c (cgroup_stat_show, css_free_rwork_fn); mm/memcontrol.c; \
              Documentation/admin-guide/cgroup-v2.rst (nr_dying_descendants, since 4.14).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Fewer are ordinary: services that restart leave them, on hosts of any size.
const MANY: u64 = 5000;
/// A smaller part of memory is not worth a finding.
const NOTICEABLE: Share = Share::percent(5);
/// Kernel memory of one, apart from what it has per CPU: 6,000 made SUnreclaim grow by 111 MB (Linux 6.18).
const EACH: u64 = 18_500;
/// ... for each CPU: 6,000 made Percpu grow by 23 MB on two CPUs.
const EACH_PER_CPU: u64 = 1_900;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let dying = ev.dying_memory_cgroups()?;
    let size = estimate(ev, dying);
    let of_memory =
        ev.meminfo("MemTotal").ok().zip(size).map(|(all, size)| Share::of(size.0 as f64, all.0 as f64));
    if dying < MANY && of_memory.is_none_or(|share| share < NOTICEABLE) {
        return Ok(Vec::new());
    }
    let held = size.map_or_else(String::new, |size| format!(", about {size}"));
    let share = of_memory.map_or_else(String::new, |share| format!(" ({share} of memory)"));
    Ok(vec![
        Finding::risk(RULE.id, Subject::host())
            .titled(format!("{dying} dying cgroups still hold kernel memory{held}{share}"))
            .by(Culprit::new(SubjectKind::Kernel, "memory cgroups", "dying memory cgroups whose pages are still cached"))
            .check("the memory cgroups that the kernel counts, and the directories of memory cgroups", CHECK)
            .check("where the memory is", "grep -e Percpu -e SUnreclaim /proc/meminfo")
            .fix(
                "free the pages that pin them: drop cached files, then directory entries. This cannot be undone: dropped files are read \
                 again from the disks. Pages of a tmpfs stay until its files are deleted",
                "echo 1 > /proc/sys/vm/drop_caches; echo 2 > /proc/sys/vm/drop_caches",
            )
            .advice("to prevent it, let fewer cgroups come and go (restart loops, cron jobs, health checks in containers)"),
    ])
}

/// Works on either version. Before 5.16 it takes cgroup_mutex, so whyslow does not run it: it is for one run by hand.
const CHECK: &str = "cat /sys/fs/cgroup/cgroup.stat 2>/dev/null; grep memory /proc/cgroups; find /sys/fs/cgroup -name memory.stat | wc -l";

/// The bytes that they hold; `None` if not even the bound is known.
fn estimate(ev: &Evidence<'_>, dying: u64) -> Option<Bytes> {
    let cpus = u64::from(ev.recording().meta.cpus.max(1));
    let each = EACH.saturating_add(EACH_PER_CPU.saturating_mul(cpus));
    let unreclaimable = ev.meminfo("SUnreclaim").ok()?;
    let per_cpu = ev.meminfo("Percpu").unwrap_or_default(); // since 5.0
    Some(Bytes(dying.saturating_mul(each).min(unreclaimable.0.saturating_add(per_cpu.0))))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let evidence = match ev.dying_memory_cgroups()? {
        0 => "no dying cgroup is left".to_owned(),
        n => format!("dying cgroups that are left: only {n}"),
    };
    Ok(check(ev)?.is_empty().then_some(RuledOut { what: "memory held by dying cgroups".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    fn host(dying: u64, total_mib: u64) -> Fixture {
        let meminfo = format!("MemTotal: {} kB\nSUnreclaim: 400000 kB\nPercpu: 100000 kB\n", total_mib << 10);
        let stat = format!("nr_descendants 10\nnr_dying_descendants {dying}\n");
        Fixture::second().end("sys/fs/cgroup/cgroup.stat", &stat).end("proc/meminfo", &meminfo)
    }

    #[test]
    fn fires_on_many_and_says_about_how_much() {
        let found = check(&host(12_000, 24_000).ev()).unwrap();
        assert_eq!(
            found[0].title,
            "12000 dying cgroups still hold kernel memory, about 255 MiB (1 % of memory)"
        );
        assert_eq!(found[0].lost, None, "memory, not time");
        assert!(found[0].fixes[0].text.contains("cannot be undone"));
    }

    #[test]
    fn fires_on_fewer_where_memory_is_small() {
        assert_eq!(check(&host(2000, 512).ev()).unwrap().len(), 1);
    }

    #[test]
    fn the_estimate_is_never_more_than_there_is() {
        assert_eq!(estimate(&host(u64::MAX, 1).ev(), u64::MAX), Some(Bytes(500_000 << 10)));
    }

    #[test]
    fn is_quiet_about_the_wake_of_ordinary_services() {
        assert_eq!(check(&host(900, 24_000).ev()), Ok(vec![]));
        assert_eq!(
            rules_out(&host(900, 24_000).ev()).unwrap().unwrap().evidence,
            "dying cgroups that are left: only 900"
        );
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert!(check(&Fixture::second().ev()).is_err());
        let skipped = Missing::skipped("proc/cgroups", "a read before it took 9 ms");
        let why = check(&Fixture::second().missing(skipped).ev()).unwrap_err();
        assert_eq!(why.to_string(), "proc/cgroups was skipped: a read before it took 9 ms");
    }
}
