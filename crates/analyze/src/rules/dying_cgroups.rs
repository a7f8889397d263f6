//! Dying cgroups (removed, but still pinned) hold memory.
//!
//! Signal: on v1, memory cgroups that `/proc/cgroups` counts and that have no directory; on v2, `nr_dying_*` of the root's
//! `cgroup.stat`. A finding about memory: on current kernels a read of memory.stat was as fast with 6,000 of them as with none. Where a read
//! or a flush of memory statistics was measured to be slow, it is told beside them.

use std::time::Duration;

use whyslow_model::table::StatRead;
use whyslow_model::{
    Bytes, Culprit, Finding, Missing, Recording, RuledOut, Share, Subject, SubjectKind, seconds,
};

use super::Rule;
use crate::Evidence;
use crate::irq::latency::culprits;
use crate::stat_reads::{MANY_DYING, StatReads, is_flush};

pub const RULE: Rule = Rule {
    id: "dying-cgroups",
    question: "Do dying cgroups hold a noticeable part of memory?",
    what: "A removed memory cgroup stays in the kernel while a page that was charged to it is in memory: a file in \
           the page cache or tmpfs, a cached directory entry. Services and containers that come and go leave thousands of them; \
           each keeps kernel memory, part of it once per CPU.",
    how: "Their number is num_cgroups of /proc/cgroups less the directories (v1), or nr_dying_subsys_memory or \
          nr_dying_descendants of the root's cgroup.stat (v2). Their size is estimated (18.5 KB and 1.9 KB per CPU each, measured on \
          Linux 6.18), and never more than all of Percpu and SUnreclaim. Reported from 5000 on, or from 5 % of memory on, and from 2000 on if 3 \
          or more reads of memory.stat or memory.numa_stat had a CPU for 10 ms or more each, all of the root cgroup's file, or if a flush of \
          statistics kept interrupts off; there is no time lost and no counterfactual.",
    limits: "Memory only, unless a read or flush was measured to be slow; packets and tasks that waited for it are findings of packet-stalls and irqs-off. \
             Reads are slow by living cgroups whose statistics change, too: a read after the dying ones are gone tells. \
             Slow reads of a cgroup below the root do not count: they fold that subtree only, and how many dying ones it has is not known. The size: a rough estimate. More cgroups on v1 than were walked: it cannot tell.",
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
/// Files that are made of the statistics of all cgroups below.
const OF_ALL_BELOW: &[&str] = &["memory.stat", "memory.numa_stat"];
/// Fewer long reads are no proof of slow ones: the time by which a sample comes late counts wholly as the read's, so a single stop of the CPU by its
/// hypervisor or firmware (SMI) makes a short read long.
const LONG_READS: u64 = 3;
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
    let slow = slow(ev.recording());
    let many = if slow.is_empty() { MANY } else { MANY_DYING };
    if dying < many && of_memory.is_none_or(|share| share < NOTICEABLE) {
        return if dying < MANY_DYING { Ok(Vec::new()) } else { ev.stat_reads().map(|_| Vec::new()) };
    }
    let held = size.map_or_else(String::new, |size| format!(", about {size}"));
    let share = of_memory.map_or_else(String::new, |share| format!(" ({share} of memory)"));
    let measured: String = slow.iter().map(|one| format!("; {one}")).collect();
    let found =
        Finding::risk(RULE.id, Subject::host())
            .titled(format!("{dying} dying cgroups still hold kernel memory{held}{share}{measured}"))
            .by(Culprit::new(SubjectKind::Kernel, "memory cgroups", "dying memory cgroups whose pages are still cached"))
            .check("the memory cgroups that the kernel counts, and the directories of memory cgroups", CHECK)
            .check("where the memory is", "grep -e Percpu -e SUnreclaim /proc/meminfo")
            .fix(
                "free the pages that pin them: drop cached files, then directory entries. This cannot be undone: dropped files are read \
                 again from the disks. Pages of a tmpfs stay until its files are deleted",
                "echo 1 > /proc/sys/vm/drop_caches; echo 2 > /proc/sys/vm/drop_caches",
            )
            .advice("to prevent it, let fewer cgroups come and go (restart loops, cron jobs, health checks in containers)");
    Ok(vec![match slow.is_empty() {
        true => found,
        false => found.advice(
            "the kernel goes through all cgroups whose statistics have changed, dying ones, too: if a read of memory.stat is as slow without \
             them, it is the living ones; read it less often, or below the root",
        ),
    }])
}

/// The slowest read of memory statistics, and what kept interrupts off to fold them. Not through the accessors: how much memory dying cgroups
/// hold does not rest on these tables.
fn slow(rec: &Recording) -> Vec<String> {
    let read = slowest_of_root(&StatReads::of(rec)).map(|row| {
        let took = seconds(Duration::from_nanos(row.worst_ns));
        (row.tgid, format!("a read of {} by {} (pid {}) took {took}", row.file, row.comm, row.tgid))
    });
    let flush = culprits(rec).into_iter().filter(|one| is_flush(&one.function)).max_by_key(|one| one.worst);
    let is_reader = |pid| read.as_ref().is_some_and(|(tgid, _)| *tgid == pid);
    let flush = flush.filter(|one| !is_reader(one.pid)).map(|one| {
        let worst = seconds(one.worst);
        format!("{} (pid {}) kept interrupts off in {} for {worst}", one.who, one.pid, one.function)
    });
    read.map(|(_, read)| read).into_iter().chain(flush).collect()
}

/// Of all processes, because a script reads each time as another one. The probe has rows for files in the root apart from those below.
fn slowest_of_root<'r>(reads: &StatReads<'r>) -> Option<&'r StatRead> {
    let of_root = |row: &StatRead| row.folder.is_empty() && OF_ALL_BELOW.contains(&row.file.as_str());
    let rows = reads.rows().filter(|(row, is_its_own)| *is_its_own && row.long_reads > 0 && of_root(row));
    let (long_reads, slowest) = rows.fold((0_u64, None::<&StatRead>), |(sum, slowest), (row, _)| {
        let slower = slowest.filter(|one| one.worst_ns > row.worst_ns).unwrap_or(row);
        (sum.saturating_add(row.long_reads), Some(slower))
    });
    slowest.filter(|_| long_reads >= LONG_READS)
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
    use whyslow_model::Kind;
    use whyslow_model::table::Gap;

    use super::*;
    use crate::evidence::fixture::Fixture;
    use crate::irq::latency::fixture::gap;

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

    fn with_reads(dying: u64, reads: Vec<StatRead>) -> Fixture {
        host(dying, 24_000).with(|tables| tables.stat_reads = Some(reads))
    }

    fn slow_read() -> StatRead {
        let (comm, file) = ("agent".to_owned(), "memory.stat".to_owned());
        let read = StatRead { tgid: 9, pid: 9, comm, file, reads: 3, ..StatRead::default() };
        StatRead { long_reads: 3, ns: 120_000_000, long_ns: 120_000_000, worst_ns: 48_000_000, ..read }
    }

    fn twice() -> StatRead {
        StatRead { long_reads: 2, long_ns: 90_000_000, ..slow_read() }
    }

    #[test]
    fn tells_the_slow_read_that_was_measured() {
        let found = check(&with_reads(3000, vec![slow_read()]).ev()).unwrap();
        assert_eq!(
            found[0].title,
            "3000 dying cgroups still hold kernel memory, about 64 MiB (0.3 % of memory); a read of memory.stat by agent (pid 9) took 48 ms"
        );
        assert_eq!((found[0].lost, found[0].kind), (None, Kind::Risk));
        assert!(found[0].fixes.iter().any(|fix| fix.text.contains("it is the living ones")));
        assert_eq!(check(&with_reads(900, vec![slow_read()]).ev()), Ok(vec![]), "too few to make it slow");
    }

    #[test]
    fn without_a_slow_read_it_is_memory_only() {
        let quick = StatRead { long_reads: 0, long_ns: 0, worst_ns: 5_000_000, ..slow_read() };
        let other = StatRead { file: "/proc/PID/smaps_rollup".into(), ..slow_read() };
        let leaf = StatRead { folder: "web".into(), ..slow_read() };
        let own = StatRead { tgid: 5, pid: 5, ..slow_read() };
        for read in [quick, twice(), other, leaf, own] {
            let mut host = with_reads(12_000, vec![read.clone()]);
            host.0.meta.own_pids = vec![5];
            let found = check(&host.ev()).unwrap();
            assert!(found[0].title.ends_with("(1 % of memory)"), "{}", found[0].title);
            let mut few = with_reads(3000, vec![read]);
            few.0.meta.own_pids = vec![5];
            assert_eq!(check(&few.ev()), Ok(vec![]));
        }
    }

    #[test]
    fn long_reads_of_the_root_are_counted_over_all_processes() {
        let with = |second: StatRead| {
            let rows = vec![twice(), StatRead { tgid: 10, pid: 10, worst_ns: 60_000_000, ..second }];
            with_reads(3000, rows)
        };
        let one = StatRead { long_reads: 1, file: "memory.numa_stat".into(), ..slow_read() };
        let title = check(&with(one.clone()).ev()).unwrap()[0].title.clone();
        assert!(title.ends_with("; a read of memory.numa_stat by agent (pid 10) took 60 ms"), "{title}");
        let leaf = StatRead { folder: "web".into(), ..one };
        assert_eq!(check(&with(leaf).ev()), Ok(vec![]));
    }

    #[test]
    fn says_so_when_reads_were_not_measured_and_would_decide() {
        let why = check(&host(3000, 24_000).ev()).unwrap_err().to_string();
        assert!(why.contains("statistics files"), "{why}");
        assert!(rules_out(&host(3000, 24_000).ev()).is_err());
        assert_eq!(check(&host(1999, 24_000).ev()), Ok(vec![]), "no read would make it a finding");
        assert_eq!(check(&host(5000, 24_000).ev()).unwrap().len(), 1, "no read is needed");
    }

    #[test]
    fn names_the_kernels_own_flush() {
        let kept = [
            "hrtimer_interrupt",
            "asm_sysvec_apic_timer_interrupt",
            "css_rstat_flush",
            "flush_memcg_stats_dwork",
        ];
        let at = |n: u64| Gap { let_in: Some(true), at_ns: (100 + n * 100) * 1_000_000, ..gap(1, 30, &kept) };
        let with = |gaps: u64| {
            with_reads(3000, vec![]).with(|tables| tables.gaps = Some((0..gaps).map(at).collect()))
        };
        let title = check(&with(5).ev()).unwrap()[0].title.clone();
        assert!(title.ends_with("(pid 30) kept interrupts off in css_rstat_flush for 20 ms"), "{title}");
        assert_eq!(check(&with(1).ev()), Ok(vec![]), "one gap is no proof");
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
