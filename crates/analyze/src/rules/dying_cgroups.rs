//! Dying cgroups (removed, but still pinned) hold memory.
//!
//! Signal: on v1, memory cgroups that `/proc/cgroups` counts and no directory stands for; on v2, `nr_dying_*` of the root's
//! `cgroup.stat`. A finding about memory only: on current kernels 6,000 of them left a read of memory.stat as fast as none.

use whyslow_model::{Bytes, Culprit, Finding, Missing, RuledOut, Share, Subject, SubjectKind};

use super::Rule;
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "dying-cgroups",
    question: "Do dying cgroups hold a noticeable part of memory?",
    what: "A memory cgroup that was removed stays in the kernel while a page that it was charged for is in memory: a file in \
           the page cache or tmpfs, a cached directory entry. Services and containers that come and go leave thousands; \
           each keeps kernel memory, part of it once per CPU.",
    how: "v1: num_cgroups of /proc/cgroups less the directories; v2: nr_dying_subsys_memory, or nr_dying_descendants, of the \
          root's cgroup.stat. Their size is estimated (18.5 KB and 1.9 KB per CPU each, measured on Linux 6.18), never \
          more than all of Percpu and SUnreclaim.",
    limits: "About memory only, never about latency: a slow read of a statistics file is another finding, if it is measured. The \
             estimate is rough. On v1 it cannot tell if there are more cgroups than were walked.",
    sources: "kernel/cgroup/cgroup.c (cgroup_stat_show, css_free_rwork_fn); mm/memcontrol.c; \
              Documentation/admin-guide/cgroup-v2.rst (nr_dying_descendants, since 4.14).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Fewer are the ordinary wake of services that restart, whatever the size of the host.
const MANY: u64 = 5000;
/// Less is not worth a page of anybody's time.
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
            .check("memory cgroups that the kernel counts, against directories", CHECK)
            .check("where the memory is", "grep -e Percpu -e SUnreclaim /proc/meminfo")
            .fix(
                "free what pins them: drop cached files, then directory entries. This cannot be undone: what is dropped is read \
                 again from the disks; a tmpfs goes only with its files",
                "echo 1 > /proc/sys/vm/drop_caches; echo 2 > /proc/sys/vm/drop_caches",
            )
            .advice("for good: fewer cgroups that come and go (restart loops, cron jobs, health checks in containers)"),
    ])
}

/// On either version; takes cgroup_mutex before 5.16, so: by hand, once.
const CHECK: &str = "cat /sys/fs/cgroup/cgroup.stat 2>/dev/null; grep memory /proc/cgroups; find /sys/fs/cgroup -name memory.stat | wc -l";

/// Bytes they hold; `None` where not even the bound is known.
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
        n => format!("only {n} dying cgroups are left"),
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
            "only 900 dying cgroups are left"
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
