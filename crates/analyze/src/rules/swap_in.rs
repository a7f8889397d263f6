//! A cgroup at its memory limit swaps its own memory out and has to swap it in again.
//!
//! Signal: pages that the cgroup's tasks swapped in while the limit was reached. Lost: the CPU time and the I/O wait of swapping in,
//! and the reclaim (compression on zram included) that made room (`memory_loss.rs`). Reclaim also serves file pages; its time is divided
//! in proportion to the time that swapping in and reading files took. Not this rule: cold pages that were swapped out and never used
//! again (no page is swapped in), and pages of files (`memory-limit`).

use std::time::Duration;

use whyslow_model::resource;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Bytes, Culprit, Finding, Hop, Missing, RuledOut, SubjectKind, command};

use super::Rule;
use crate::Evidence;
use crate::cpu::spread::{self, Loss};
use crate::memory::limit::{RAISED, file_of, files, with_others};
use crate::memory::loss::{Limited, counter};
use crate::names;
use crate::shell::quoted;

pub const RULE: Rule = Rule {
    id: "swap-in",
    question: "Does a cgroup at its memory limit wait for its own memory to be swapped in?",
    what: "A cgroup needs more memory than its limit (memory.max, memory.high, memory.limit_in_bytes) allows. Each page that its tasks \
           touch is swapped in, and another is swapped out: page faults, I/O or compression, and reclaim instead of work.",
    how: "Swapped-in pages are counted by the changes of each process's swap entries, where the host has swap. Counterfactual: a limit that \
          holds everything the tasks use; then the CPU time in do_swap_page and below, the I/O wait there and the reclaim at the limit would be \
          gone. Time lost = that time, less what the tasks' sleeps absorb; more than 1 % of the window.",
    limits: "Pages of shared memory (shmem): not counted, they show in stacks only. Memory pressure of the whole host: no limit is to blame, \
             and its swap is not judged here. Before v6.2 one swap-in in 64 is counted: small losses are missed. CPU time: known from \
             samples at 199 Hz.",
    sources: "mm/memory.c (do_swap_page), mm/vmscan.c (try_to_free_mem_cgroup_pages), drivers/block/zram; \
              f1a7941243c1 (v6.2, rss_stat tells each change).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::SwapIn,
};

/// 1 MiB. Fewer pages are no thrashing.
const ENOUGH_PAGES: u64 = 256;
/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.01;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let mut found = Vec::new();
    for limited in ev.memory_limits()?.iter().filter(|l| swaps(l, ev.window())) {
        let cost = limited.swap.cost();
        let loss = spread::lost(&limited.tasks, |t| t.exec_ns.saturating_add(t.io_ns), cost);
        if loss.high.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64() {
            found.push(finding(ev, limited, &loss));
        }
    }
    Ok(found)
}

/// Whether pages were swapped in, or stacks show that tasks wait for such pages: swap-ins of shared memory are not counted.
fn swaps(l: &Limited<'_>, window: Duration) -> bool {
    l.work.swapped_in >= ENOUGH_PAGES || l.swap.cpu + l.swap.io > WORTH_IT * window.as_nanos() as f64
}

fn finding(ev: &Evidence<'_>, l: &Limited<'_>, loss: &Loss) -> Finding {
    let victim = ev.names().cgroup(l.cgroup);
    let page = ev.recording().meta.page_size.max(1);
    let back = match l.work.swapped_in {
        ..ENOUGH_PAGES => "shared memory".to_owned(),
        pages => Bytes(pages.saturating_mul(page)).to_string(),
    };
    let limit = Bytes(l.limit);
    let noticed = loss.low.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64();
    let f = if noticed {
        Finding::cause(RULE.id, victim.clone(), loss.likely)
            .titled(format!("it swapped in {back} again, because its memory limit of {limit} is too small"))
            .on(resource::memory_limit(&l.cgroup.path))
            .share_of(loss.lived)
            .between(loss.low, loss.high)
    } else {
        Finding::risk(RULE.id, victim.clone()).titled(format!(
            "it swapped in {back} again under its memory limit of {limit}; its tasks sleep enough to absorb it"
        ))
    };
    let ns = |ns: f64| Duration::from_nanos(ns as u64);
    let (files, file) = (files(l.cgroup), file_of(l.cgroup, l.high));
    let hop = |reason, what: &str, state, lost, worst, count| Hop {
        worst,
        count: Some(count),
        ..Hop::new(reason, names::tasks_of(loss.tasks, &victim.name), what, state, ns(lost))
    };
    let worst = Some(Duration::from_nanos(l.work.limit_reclaim_worst_ns));
    let mut f = f
        .raw_wait(ns(l.swap.io + l.swap.reclaim))
        .by(Culprit::new(SubjectKind::Limit, file.clone(), format!("memory limit of {limit}"))
            .at_file(file.clone()))
        .hop(hop(Reason::SwapIn, "the swap device", TaskState::IoWait, l.swap.io, None, l.work.swapped_in))
        .hop(hop(
            Reason::SwapFault,
            "pages to be found, read and mapped",
            TaskState::Running,
            l.swap.cpu + l.swap.ready,
            None,
            l.work.swapped_in,
        ))
        .hop(hop(
            Reason::Reclaim,
            "its own pages to be swapped out",
            TaskState::Running,
            l.swap.reclaim,
            worst,
            l.work.limit_reclaims,
        ))
        .check(
            format!("{} rises, and so does pswpin of the host", counter(l.cgroup, "pgmajfault")),
            command!("grep pgmajfault {}; grep pswp /proc/vmstat", format!("{files}/memory.stat")),
        )
        .fix(
            format!(
                "raise the limit to what the cgroup uses (costs memory of the host), or make it use less (undo: echo {} > {})",
                l.limit,
                quoted(&file)
            ),
            command!("echo {} > {}", l.limit.saturating_mul(RAISED), file),
        );
    f = with_others(f, ev, l);
    f.cpu = noticed.then(|| ns(l.swap.cpu));
    f.overlaps = vec!["blkio-throttle".into()];
    f
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let back: u64 = ev.memory()?.iter().map(|row| row.swapped_in).fold(0, u64::saturating_add);
    let evidence = format!("{back} pages were swapped in");
    let quiet = check(ev)?.is_empty();
    Ok((quiet && back < ENOUGH_PAGES).then(|| RuledOut { what: "swap".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::Kind;

    use super::*;
    use crate::rules::memory_fixture::{Host, MS};

    #[test]
    fn fires_when_pages_come_back_from_swap() {
        let rec =
            Host::new("/db").swapped(50_000).swapping(600 * MS, 400 * MS).reclaimed(800 * MS).recording();
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found[0].kind, found[0].victim.id.as_str()), (Kind::Cause, "/db"));
        let lost = found[0].lost.unwrap().as_secs_f64();
        assert!((lost - 1.8).abs() < 0.01, "{lost}");
        assert_eq!(
            found[0].title,
            "it swapped in 195 MiB again, because its memory limit of 64 MiB is too small"
        );
        assert_eq!(found[0].check[0].text, "total_pgmajfault rises, and so does pswpin of the host");
    }

    #[test]
    fn is_quiet_when_cold_pages_only_go_out() {
        let rec = Host::new("/db").swapped(3).reclaimed(800 * MS).recording();
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
        assert_eq!(rules_out(&Evidence::of(&rec)).unwrap().unwrap().evidence, "3 pages were swapped in");
    }

    #[test]
    fn a_group_that_swaps_and_refaults_is_judged_by_where_its_time_went() {
        let rec = Host::new("/db")
            .refaults(90_000, 90_000, 0)
            .filled(900 * MS, 600 * MS)
            .swapped(10_000)
            .swapping(50 * MS, 50 * MS)
            .reclaimed(100 * MS)
            .recording();
        let swap = check(&Evidence::of(&rec)).unwrap()[0].lost.unwrap().as_secs_f64();
        let file = (super::super::memory_limit::RULE.check)(&Evidence::of(&rec)).unwrap()[0]
            .lost
            .unwrap()
            .as_secs_f64();
        assert!((swap - 0.11).abs() < 0.01 && (file - 1.59).abs() < 0.02, "swap {swap}, files {file}");
    }

    #[test]
    fn shared_memory_shows_in_stacks_alone() {
        let rec = Host::new("/db").swapping(600 * MS, 400 * MS).reclaimed(800 * MS).recording();
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!(found[0].kind, Kind::Cause);
        assert!(found[0].title.starts_with("it swapped in shared memory again"), "{}", found[0].title);
    }

    #[test]
    fn is_only_a_risk_when_sleeps_may_have_absorbed_it() {
        let rec = Host::new("/db").swapped(5000).swapping(100 * MS, 100 * MS).slept(2500 * MS).recording();
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let mut rec = Host::new("/db").swapped(5000).recording();
        rec.tables.waits = None;
        assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "off-CPU stacks was not recorded");
    }
}
