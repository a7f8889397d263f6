//! A cgroup reads the same pages again and again because its memory limit evicts them.
//!
//! Signal: pages that the group's own reclaim evicted in the window and that its tasks added to the page cache again. A sample of
//! one page in 16 is followed, by inode and index. Lost: the CPU time and the I/O wait of filling the page cache (readahead and
//! page cache functions), and the reclaim that made room, times the share of pages that were refaults (`memory_loss.rs`).
//! Not this rule: a file that streams through a small limit once (reclaim is busy, but no page is read again), and pages of swap
//! (`swap-in`).

use std::time::Duration;

use whyslow_model::resource;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Bytes, Culprit, Finding, Hop, Kind, Missing, RuledOut, Share, SubjectKind, command};

use super::Rule;
use crate::Evidence;
use crate::cpu::spread::{self, Loss};
use crate::memory::limit::{RAISED, file_of, files, with_others, with_what_fills_it};
use crate::memory::loss::{Limited, counter};
use crate::names;
use crate::shell::quoted;

mod held;
#[cfg(test)]
mod nested_tests;

pub const RULE: Rule = Rule {
    id: "memory-limit",
    question: "Does a memory limit make a cgroup refault its pages, or its tasks sleep?",
    what: "A cgroup uses more file data than its memory limit (memory.max, memory.high, memory.limit_in_bytes) can hold. \
           Each page that it reads evicts another that it will read again: it reclaims, waits for the disk and fills pages. \
           Or the cgroup is above memory.high: then the kernel makes its tasks sleep, up to 2 s at a time.",
    how: "One page in 16 is followed: evicted by the cgroup's reclaim in the window, and added to the page cache again by its \
          tasks. Counterfactual: a limit that holds everything the tasks use; then the reclaim, the I/O wait for file pages and the \
          CPU time in page cache functions would be gone, for the share of pages that were refaults. Time lost = that time, \
          and the time that tasks were made to sleep above memory.high, less what the tasks' sleeps absorb; more than 1 % of the window.",
    limits: "Pages evicted before the window: their history is unknown; if they are the smaller part, they count like the rest. \
             A file larger than the host's memory: reported, though its pages would be read again with any limit. Reclaim of one \
             cgroup that evicts pages of another: not counted. CPU time: known from samples at 199 Hz. memory.swap.high: it makes \
             tasks sleep, too; where no memory.high is exceeded the rule cannot tell, where one is exceeded the rule names that one.",
    sources: "mm/vmscan.c (try_to_free_mem_cgroup_pages), mm/filemap.c (filemap_get_pages), mm/readahead.c, \
              mm/workingset.c, mm/memcontrol.c (mem_find_max_overage); \
              Documentation/admin-guide/cgroup-v2.rst (memory.max, workingset_refault_file).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::MemoryLimit,
};

/// 1 MiB. Fewer refaulted pages are libraries that come and go.
const ENOUGH_PAGES: u64 = 256;
/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.01;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    // Tasks that were made to sleep are known from timelines alone.
    let (held, unknown) = match held::findings(ev) {
        Ok(held) => (held, None),
        Err(missing) => (Vec::new(), Some(missing)),
    };
    let mut found = match again(ev) {
        Ok(found) => found,
        Err(missing) if held.is_empty() => return Err(missing),
        Err(missing) => vec![Finding::cannot_tell(RULE.id, missing)],
    };
    for one in held {
        match found.iter_mut().find(|other| is_same(other, &one)) {
            Some(other) => join(other, one),
            None => found.push(one),
        }
    }
    match unknown {
        Some(missing) if found.is_empty() => Err(missing),
        Some(missing) => {
            found.push(Finding::cannot_tell(RULE.id, missing));
            Ok(found)
        }
        None => Ok(found),
    }
}

/// Whether these are two symptoms of one limit.
fn is_same(a: &Finding, b: &Finding) -> bool {
    let file = |finding: &Finding| finding.culprit.as_ref().and_then(|culprit| culprit.file.clone());
    a.victim == b.victim && file(a).is_some() && file(a) == file(b)
}

/// Tasks that sleep at a limit fill no pages meanwhile: if both findings are causes, both times are lost.
fn join(pages: &mut Finding, held: Finding) {
    let sum = |a: Option<Duration>, b: Option<Duration>| Some(a?.saturating_add(b?));
    match (pages.kind, held.kind) {
        (Kind::Cause, Kind::Cause) => {
            let ranges = pages.lost_range.zip(held.lost_range);
            let lived = |one: &Finding| {
                one.lost.map_or(0.0, |lost| lost.as_secs_f64())
                    / one.share.map_or(1.0, Share::ratio).max(1e-9)
            };
            let lived = lived(pages).max(lived(&held));
            pages.lost = sum(pages.lost, held.lost);
            pages.share = pages.lost.map(|lost| Share::of(lost.as_secs_f64().min(lived), lived));
            pages.lost_range = ranges.map(|(a, b)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)));
            pages.title = format!("{}, and {}", pages.title, held.title);
        }
        (_, Kind::Cause) => {
            let pages_chain = std::mem::take(&mut pages.chain);
            *pages = held;
            pages.chain.extend(pages_chain);
            return;
        }
        _ => {}
    }
    pages.raw_wait = sum(pages.raw_wait, held.raw_wait);
    pages.chain.extend(held.chain);
}

/// Findings about pages that were read again.
fn again(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let mut found = Vec::new();
    for limited in ev.memory_limits()?.iter().filter(|l| l.work.pages_refaulted >= ENOUGH_PAGES) {
        let (least, likely) = limited.refault_share();
        let cost = limited.refill.cost();
        let loss = spread::lost(&limited.tasks, |t| t.exec_ns.saturating_add(t.io_ns), cost * likely);
        if loss.high.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64() {
            found.push(finding(ev, limited, &loss, least / likely.max(least).max(f64::MIN_POSITIVE)));
        }
    }
    Ok(found)
}

/// `floor`: the least loss, as a part of the likely loss, if all pages of unknown history were no refaults.
fn finding(ev: &Evidence<'_>, l: &Limited<'_>, loss: &Loss, floor: f64) -> Finding {
    let victim = ev.names().cgroup(l.cgroup);
    let page = ev.recording().meta.page_size.max(1);
    let again = Bytes(l.work.pages_refaulted.saturating_mul(page));
    let low = loss.low.mul_f64(floor.clamp(0.0, 1.0));
    let limit = Bytes(l.limit);
    let uses = ev.memory_uses(l.cgroup).ok();
    let filled = uses.map(|uses| uses.notable()).unwrap_or_default();
    let noticed = low.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64();
    let f = if noticed {
        Finding::cause(RULE.id, victim.clone(), loss.likely)
            .titled(format!("it refaulted {again} that its memory limit of {limit}{filled} had evicted"))
            .on(resource::memory_limit(&l.cgroup.path))
            .share_of(loss.lived)
            .between(low, loss.high)
    } else {
        Finding::risk(RULE.id, victim.clone()).titled(format!(
            "it refaulted {again} that its memory limit of {limit}{filled} had evicted; its tasks sleep enough to absorb it"
        ))
    };
    let Miss { cpu, ready, io, reclaim } = Miss::of(l);
    let (files, file) = (files(l.cgroup), file_of(l.cgroup, l.high));
    let hop = |reason, what: String, state, lost, worst, count| Hop {
        worst,
        count,
        ..Hop::new(reason, names::tasks_of(loss.tasks, &victim.name), what, state, lost)
    };
    let worst = Duration::from_nanos(l.work.limit_reclaim_worst_ns);
    let mut f = f
        .raw_wait(io + reclaim)
        .by(Culprit::new(SubjectKind::Limit, file.clone(), format!("memory limit of {limit}"))
            .at_file(file.clone()))
        .hop(hop(
            Reason::Refault,
            format!("{again} of evicted pages to be refaulted"),
            TaskState::IoWait,
            io,
            None,
            Some(l.work.pages_refaulted),
        ))
        .hop(hop(
            Reason::PageCacheFill,
            "pages to be allocated, charged and submitted".into(),
            TaskState::Running,
            cpu + ready,
            None,
            None,
        ))
        .hop(hop(
            Reason::Reclaim,
            "its own pages to be evicted".into(),
            TaskState::Running,
            reclaim,
            Some(worst),
            Some(l.work.limit_reclaims),
        ))
        .check(
            format!("{} rises", counter(l.cgroup, "workingset_refault_file")),
            command!("grep refault {}", format!("{files}/memory.stat")),
        );
    f = with_what_fills_it(f, uses, &files, &l.tasks, |f| {
        let what = format!(
            "raise the limit to what the cgroup uses (costs memory of the host), or make it use less (undo: echo {} > {})",
            l.limit,
            quoted(&file)
        );
        let f = f.fix(what, command!("echo {} > {}", l.limit.saturating_mul(RAISED), file));
        with_others(f, ev, l)
    });
    f.cpu = noticed.then_some(cpu);
    f.overlaps = vec!["blkio-throttle".into()];
    f
}

/// The time lost, by kind.
struct Miss {
    cpu: Duration,
    ready: Duration,
    io: Duration,
    reclaim: Duration,
}

impl Miss {
    fn of(l: &Limited<'_>) -> Self {
        let share = l.refault_share().1;
        let part = |ns: f64| Duration::from_nanos((ns * share) as u64);
        Miss {
            cpu: part(l.refill.cpu),
            ready: part(l.refill.ready),
            io: part(l.refill.io),
            reclaim: part(l.refill.reclaim),
        }
    }
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let again: u64 = ev.memory()?.iter().map(|row| row.pages_refaulted).fold(0, u64::saturating_add);
    let evidence = format!("{again} pages were refaulted after a limit had evicted them");
    let is_held = held::was_anybody(ev)?;
    Ok((again < ENOUGH_PAGES && !is_held).then(|| RuledOut { what: "a memory limit".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::memory_fixture::{Host, MS};

    #[test]
    fn fires_when_evicted_pages_are_read_again() {
        // 3 s: 1 s copies, 0.8 s fills, 0.7 s waits for the disk, 0.5 s reclaims.
        let rec = Host::new("/web")
            .refaults(90_000, 100_000, 10_000)
            .filled(800 * MS, 700 * MS)
            .reclaimed(500 * MS)
            .recording();
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found.len(), found[0].kind, found[0].victim.id.as_str()), (1, Kind::Cause, "/web"));
        let lost = found[0].lost.unwrap().as_secs_f64();
        assert!((lost - 2.0).abs() < 0.01, "{lost}");
        assert_eq!(found[0].title, "it refaulted 352 MiB that its memory limit of 64 MiB had evicted");
        let culprit = found[0].culprit.clone().unwrap();
        assert_eq!(culprit.file.as_deref(), Some("/sys/fs/cgroup/memory/web/memory.limit_in_bytes"));
        assert_eq!(found[0].check[0].text, "total_workingset_refault_file rises");
    }

    #[test]
    fn tmpfs_that_fills_the_limit_is_reported_before_the_limit_is_raised() {
        let host = || Host::new("/web").refaults(90_000, 100_000, 10_000).filled(800 * MS, 700 * MS);
        let with = |stat: &str| {
            let mut rec = host().recording();
            let name = "sys/fs/cgroup/memory/web/memory.stat".to_owned();
            let (at, bytes) = (Duration::from_secs(3), stat.as_bytes().to_vec());
            rec.snapshots.push(whyslow_model::FileSnapshot { at, name, bytes });
            check(&Evidence::of(&rec)).unwrap().remove(0)
        };
        let found = with("total_cache 50331648\ntotal_rss 16777216\ntotal_shmem 41943040\n");
        let said = "it refaulted 352 MiB that its memory limit of 64 MiB (40 MiB are files in tmpfs or shared memory, 16 MiB are heap) had evicted";
        assert_eq!(found.title, said);
        assert!(found.fixes[0].text.starts_with("remove what is left in tmpfs"), "{:?}", found.fixes);
        assert!(
            found.fixes[1].text.contains("memory.limit_in_bytes): echo 134217728 >"),
            "{:?}",
            found.fixes
        );
        assert!(found.fixes.iter().all(|fix| fix.command.is_none()), "{:?}", found.fixes);
        let found = with("total_cache 60331648\ntotal_rss 1677721\ntotal_shmem 0\n");
        assert!(
            found.title.contains("limit of 64 MiB had evicted"),
            "page cache is normal and is not named: {}",
            found.title
        );
        assert!(found.fixes[0].text.starts_with("raise the limit"), "{:?}", found.fixes);
        let torn = with("total_cache 60331648\ntotal_r");
        assert_eq!(torn.title, check(&Evidence::of(&host().recording())).unwrap()[0].title);
    }

    #[test]
    fn a_page_read_the_first_time_is_not_lost() {
        let rec = Host::new("/web")
            .refaults(50_000, 100_000, 0)
            .filled(800 * MS, 700 * MS)
            .reclaimed(500 * MS)
            .recording();
        let lost = check(&Evidence::of(&rec)).unwrap()[0].lost.unwrap().as_secs_f64();
        assert!((lost - 1.0).abs() < 0.01, "{lost}");
    }

    #[test]
    fn is_quiet_when_a_file_streams_through_once() {
        let mut rec = Host::new("/web")
            .refaults(0, 100_000, 100_000)
            .filled(800 * MS, 700 * MS)
            .reclaimed(500 * MS)
            .recording();
        (rec.tables.spans, rec.tables.stacks) = (Some(Vec::new()), Some(Vec::new()));
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
        assert!(rules_out(&Evidence::of(&rec)).unwrap().unwrap().evidence.starts_with("0 pages"));
        // Only the stacks of waits show which tasks a limit made sleep.
        rec.tables.stacks = None;
        assert_eq!(
            rules_out(&Evidence::of(&rec)).unwrap_err().to_string(),
            "off-CPU stacks was not recorded"
        );
    }

    /// memory.high: no page is read again, and the tasks are made to sleep.
    #[test]
    fn a_group_that_is_held_above_its_high_limit_is_not_ruled_out() {
        use whyslow_model::table::{Span, Stack};
        use whyslow_model::timeline::State;
        let mut rec = Host::new("/web").refaults(0, 100_000, 100_000).recording();
        (rec.tables.spans, rec.tables.stacks) = (Some(Vec::new()), Some(Vec::new()));
        assert!(rules_out(&Evidence::of(&rec)).unwrap().is_some());
        let kernel = "schedule schedule_timeout schedule_timeout_killable mem_cgroup_handle_over_high exit_to_user_mode_loop";
        let kernel = kernel.split(' ').map(str::to_owned).collect();
        rec.tables.stacks = Some(vec![Stack { id: 1, kernel, ..Stack::default() }]);
        let held = Span { state: State::Blocked, stack: Some(1), woken_ns: 900 * MS, ..Span::default() };
        rec.tables.spans = Some(vec![held]);
        assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
    }

    #[test]
    fn is_only_a_risk_when_sleeps_may_have_absorbed_it() {
        let rec = Host::new("/web")
            .refaults(90_000, 100_000, 0)
            .filled(100 * MS, 100 * MS)
            .slept(2500 * MS)
            .recording();
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
    }

    #[test]
    fn leaves_swapped_pages_to_their_own_rule() {
        let rec =
            Host::new("/web").swapped(100_000).swapping(900 * MS, 900 * MS).reclaimed(500 * MS).recording();
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let mut rec = Host::new("/web").refaults(90_000, 100_000, 0).recording();
        rec.tables.samples = None;
        assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "on-CPU samples was not recorded");
        rec.tables.memory = None;
        assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "memory events was not recorded");
    }
}
