//! Another process takes the page cache that tasks read from: it drops the pages, or it puts so many pages there that they are evicted.
//!
//! Signal: pages that were evicted or dropped in the window and that tasks added to the page cache again. A sample of one page in 16
//! is followed: which task added it, which task's reclaim evicted it or which task told the kernel to forget it (drop_caches,
//! posix_fadvise), and whether the task that had it reads it again.
//! Culprit of pages that reclaim evicted: the tree of tasks that put three quarters of all pages into the page cache there, below the
//! same limit or on the host, and used few of them twice. It has caused only its part of the loss.
//! Lost: what filling the page cache cost (reclaim, I/O wait for pages of files, CPU time), times the share of pages that had been
//! evicted or dropped that way, less what the tasks' sleeps absorb. Not this rule: a limit that is too small for all that its own tasks use
//! again and again (`memory-limit`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::resource;
use whyslow_model::table::{Memory, Task};
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Bytes, Culprit, Finding, Hop, Missing, command};

use super::homes::Homes;
use super::{Fold, Rule};
use crate::Evidence;
use crate::cpu::spread;
use crate::memory::loss::{
    Limited, Miss, Seen, came_back, misses, refaulted, share_of_reads, sum, with_those_before,
};
use crate::names;
use crate::task_trees::TaskTree;

pub const RULE: Rule = Rule {
    id: "cache-taken",
    question: "Does another process evict the page cache that tasks read from?",
    what: "A task reads the same pages of files from memory again and again, until another process drops them or needs the room: a \
           backup or a scan that reads more than the memory, or than the limit that both share, can hold; a script that writes to \
           /proc/sys/vm/drop_caches; a program that tells the kernel to forget a file. Then each page has to come from the disk again.",
    how: "One page in 16 is followed: which task added it to the page cache, which task evicted or dropped it, and whether its reader \
          reads it again. Pages that reclaim evicted count for the process that put three quarters of all pages there (below the same \
          limit, or on the host) and used few of them twice. Counterfactual: the pages had stayed in memory; time lost = their share \
          of the reclaim, of the I/O wait for pages of files and of the CPU time of filling the page cache, less what the tasks' \
          sleeps absorb, above 5 % of their time and 1 % of the window.",
    limits: "Pages evicted before the window: their history is unknown, unless the kernel's own count says that most evictions of pages \
             that were read again were seen. Pages that a file system drops because their file has changed elsewhere: their history is \
             unknown, too. Memory that is not page cache (a program that grows): it takes the cache of other processes, too; if that \
             memory of the host grew by half as much, or if its growth is not known, no process is accused; below a limit this is not \
             checked. Pages that several processes read for each other in sessions of their own (backends of a database): only the \
             first read counts. A process that reads the same large file over and over: it uses its pages again, so the memory is too \
             small for it and for others, and it is not accused. Snapshots of a file on btrfs: they count as one file.",
    sources: "mm/filemap.c (filemap_add_folio, filemap_remove_folio), mm/vmscan.c, mm/truncate.c (invalidate_mapping_pages), \
              fs/drop_caches.c.",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: Some(Fold { of: &["memory-limit"], fold }),
    shows: super::NOTHING,
};

/// 1 MiB. Fewer pages are libraries that come and go.
const ENOUGH_PAGES: u64 = 256;
/// The culprit put at least this part of all pages into the page cache, and had not had them before ...
const MOST_OF_ALL: f64 = 0.75;
/// ... and used less than this part of its pages again.
const USED_AGAIN: f64 = 0.5;
/// Victims that are reported.
const MOST: usize = 5;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let (rows, tasks) = (ev.memory()?, ev.tasks()?);
    if rows.iter().map(came_back).fold(0, u64::saturating_add) < ENOUGH_PAGES {
        return Ok(Vec::new());
    }
    let cache = Cache::of(ev, rows, tasks);
    let seen = Seen::of(ev)?;
    let limits = cache.below(ev.memory_limits()?);
    let taken = cache.work.keys().filter_map(|tree| cache.taken(*tree, &limits));
    let mut found: Vec<Finding> = taken.filter_map(|taken| finding(ev, &cache, &seen, &taken)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.lost));
    super::first_few(&mut found, MOST);
    Ok(found)
}

/// Removes the finding of `memory-limit` about a limit below which a culprit streams, if the victims of that culprit lost at least as
/// much: the culprit's own refaults are no loss. A finding that tasks were made to sleep at the limit stays.
fn fold(ev: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let (Ok(rows), Ok(limits), Ok(tasks)) = (ev.memory(), ev.memory_limits(), ev.tasks()) else { return };
    let cache = Cache::of(ev, rows, tasks);
    let limits = cache.below(limits);
    let mut told: BTreeMap<&str, Duration> = BTreeMap::new();
    for taken in cache.work.keys().filter_map(|tree| cache.taken(*tree, &limits)) {
        let Some((limit, tree)) = taken.limit.zip(cache.tree(taken.tree)) else { continue };
        let victim = tree.subject(ev).id;
        let own = findings.iter().find(|finding| finding.rule == RULE.id && finding.victim.id == victim);
        if let Some(lost) = own.and_then(|finding| finding.lost) {
            let all = told.entry(&limit.cgroup.path).or_default();
            *all = all.saturating_add(lost);
        }
    }
    findings.retain(|finding| {
        let is_held = || finding.chain.iter().any(|hop| hop.reason == Reason::MemoryLimit);
        let by_streams = told.get(finding.victim.id.as_str());
        let is_smaller = by_streams.is_some_and(|by| finding.lost.is_some_and(|lost| lost <= *by));
        finding.rule != "memory-limit" || !is_smaller || is_held()
    });
}

/// A limit, and the trees below it.
type Shared<'l, 'r> = (&'l Limited<'r>, BTreeSet<usize>);

/// What each tree of tasks put into the page cache.
struct Cache<'r> {
    homes: Homes,
    by_tree: BTreeMap<usize, Vec<&'r Memory>>,
    /// The sum of these rows.
    work: BTreeMap<usize, Memory>,
    tasks: BTreeMap<usize, Vec<&'r Task>>,
    /// The tree of the tasks of each session; `None`: they are in several trees.
    sessions: BTreeMap<u32, Option<usize>>,
    /// Pages that reclaim had evicted and that were read again, on the whole host.
    refaulted: u64,
    /// Pages by which the memory of programs grew; `None`: not known.
    grown: Option<u64>,
}

/// The pages that another tree took from a tree of tasks.
struct Taken<'l, 'r> {
    tree: usize,
    work: Memory,
    /// Pages that were read again.
    again: u64,
    /// The tree that took them.
    by: usize,
    /// Its part of the need for room, 0 to 1.
    part: f64,
    way: Way,
    /// The memory limit that both trees share.
    limit: Option<&'l Limited<'r>>,
}

/// How pages left memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Dropped,
    Evicted,
}

impl<'r> Cache<'r> {
    fn of(ev: &Evidence<'r>, rows: &'r [Memory], all: &'r [Task]) -> Self {
        let homes = Homes::by_name(ev, all);
        let mut tasks: BTreeMap<usize, Vec<&Task>> = BTreeMap::new();
        // A task that has ended may have no row: its cgroup tells its tree, if only one tree is in that cgroup.
        let mut groups: BTreeMap<u64, Option<usize>> = BTreeMap::new();
        let mut sessions: BTreeMap<u32, Option<usize>> = BTreeMap::new();
        let mut others: BTreeSet<u32> = BTreeSet::new();
        for task in all {
            let tree = homes.place(task.pid).filter(|_| !task.kthread);
            let Some(tree) = tree else {
                others.insert(task.pid);
                continue;
            };
            tasks.entry(tree).or_default().push(task);
            let of_group = groups.entry(task.memory_cgroup).or_insert(Some(tree));
            *of_group = of_group.filter(|known| *known == tree);
            let of_session = sessions.entry(task.session).or_insert(Some(tree));
            *of_session = of_session.filter(|known| *known == tree);
        }
        let mut by_tree: BTreeMap<usize, Vec<&Memory>> = BTreeMap::new();
        let is_others = |row: &&Memory| {
            ev.is_own(row.pid, row.tgid) || others.contains(&row.pid) || others.contains(&row.tgid)
        };
        for row in rows.iter().filter(|row| !is_others(row)) {
            let own = homes.place(row.pid).or_else(|| homes.place(row.tgid));
            if let Some(tree) = own.or_else(|| groups.get(&row.cgroup).copied().flatten()) {
                by_tree.entry(tree).or_default().push(row);
            }
        }
        let work = by_tree.iter().map(|(tree, rows)| (*tree, sum(rows))).collect();
        // 0: not known.
        sessions.remove(&0);
        let refaulted = rows.iter().map(refaulted).fold(0, u64::saturating_add);
        let grown = ev.vmstat_delta("nr_anon_pages").ok();
        Cache { homes, by_tree, tasks, work, sessions, refaulted, grown }
    }

    /// The trees below each limit.
    fn below<'l>(&self, limits: &'l [Limited<'r>]) -> Vec<Shared<'l, 'r>> {
        let below =
            |limit: &Limited<'_>| limit.tasks.iter().filter_map(|task| self.homes.place(task.pid)).collect();
        limits.iter().map(|limit| (limit, below(limit))).collect()
    }

    fn tree(&self, place: usize) -> Option<&TaskTree> {
        self.homes.tree(place)
    }

    fn is_kin(&self, one: usize, other: usize) -> bool {
        let both = self.tree(one).zip(self.tree(other));
        one == other || both.is_none_or(|(one, other)| one.is_kin(other))
    }

    fn taken<'l>(&self, tree: usize, limits: &[Shared<'l, 'r>]) -> Option<Taken<'l, 'r>> {
        let work = self.work.get(&tree)?;
        if came_back(work) < ENOUGH_PAGES {
            return None;
        }
        self.dropped(tree, work)
            .or_else(|| self.at_limit(tree, work, limits))
            .or_else(|| self.by_reclaim(tree, work))
    }

    /// The tree that told the kernel to forget pages of `tree`, if that were most of the pages that were read again.
    fn dropped<'l>(&self, tree: usize, work: &Memory) -> Option<Taken<'l, 'r>> {
        let rows = self.by_tree.get(&tree)?.iter().filter(|row| row.taker_drops);
        let mut droppers: BTreeMap<usize, u64> = BTreeMap::new();
        for row in rows {
            let taker = self.homes.place(row.taken_by);
            // The last one of many short processes may have started after the scheduler's window: its session tells its tree.
            let Some(by) = taker.or_else(|| *self.sessions.get(&row.taker_session)?) else { continue };
            let pages = droppers.entry(by).or_default();
            *pages = pages.saturating_add(row.taken_at_least);
        }
        let (by, again) = droppers.into_iter().max_by_key(|(_, pages)| *pages)?;
        let is_most = again >= ENOUGH_PAGES && again >= came_back(work) / 2;
        let taken = Taken { tree, work: work.clone(), again, by, part: 1.0, way: Way::Dropped, limit: None };
        (is_most && !self.is_kin(tree, by)).then_some(taken)
    }

    /// Below a limit that both trees share, a task that needs a page evicts another page itself, although the other tree needs the room.
    fn at_limit<'l>(&self, tree: usize, work: &Memory, limits: &[Shared<'l, 'r>]) -> Option<Taken<'l, 'r>> {
        let again = work.pages_refaulted.saturating_add(work.pages_taken_at_limit);
        if again < ENOUGH_PAGES || again < came_back(work) / 2 {
            return None;
        }
        let (limit, below) = limits.iter().find(|(_, below)| below.contains(&tree))?;
        let (by, part) = self.streams(tree, again, &|other| below.contains(&other))?;
        // A third tree that evicts pages does so at a limit of its own, or on purpose: not because `by` needs the room.
        let mut rows =
            self.by_tree.get(&tree)?.iter().filter(|row| !row.taker_drops && row.taken_at_least > 0);
        let is_one =
            |row: &Memory| self.homes.place(row.taken_by).is_none_or(|taker| taker == by || taker == tree);
        let taken =
            Taken { tree, work: work.clone(), again, by, part, way: Way::Evicted, limit: Some(*limit) };
        rows.all(|row| is_one(row)).then_some(taken)
    }

    fn by_reclaim<'l>(&self, tree: usize, work: &Memory) -> Option<Taken<'l, 'r>> {
        let again = work.pages_taken_by_reclaim;
        if again < ENOUGH_PAGES || again < came_back(work) / 2 {
            return None;
        }
        // A program that has grown needed the room, too.
        if self.grown.is_none_or(|grown| grown >= again / 2) {
            return None;
        }
        let (by, part) = self.streams(tree, again, &|_| true)?;
        // A tree that streams below a limit of its own uses its own room again and again.
        let is_held = self.work.get(&by).is_some_and(|work| work.limit_reclaims > 0);
        let taken = Taken { tree, work: work.clone(), again, by, part, way: Way::Evicted, limit: None };
        (!is_held).then_some(taken)
    }

    /// The other tree that needed the room, and its part of the need: it put most of all pages (the victim's included) into the page
    /// cache, and used few of them twice. It is not to blame for pages that are evicted for the victim's own needs.
    fn streams(&self, tree: usize, again: u64, below: &dyn Fn(usize) -> bool) -> Option<(usize, f64)> {
        let all = self.work.iter().filter(|(other, _)| **other == tree || below(**other));
        let sum = all.clone().fold(0u64, |sum, (_, work)| sum.saturating_add(work.pages_added));
        let others = all.filter(|(other, _)| **other != tree);
        let (by, work) = others.max_by_key(|(_, work)| work.pages_added)?;
        let once = work.pages_added.saturating_sub(came_back(work));
        let part = once as f64 / sum.max(1) as f64;
        let is_stream = (came_back(work) as f64) < USED_AGAIN * work.pages_added as f64;
        let is_most = part >= MOST_OF_ALL && is_stream && once >= again;
        // The victim had to put these pages there again only because they were evicted.
        let caused = (once as f64 / sum.saturating_sub(again).max(1) as f64).min(1.0);
        (is_most && !self.is_kin(tree, *by)).then_some((*by, caused))
    }

    /// The pages that were read again by the kernel's count, which has those that were evicted before the window, too: if most of these
    /// evictions were seen. If most were not seen, it is not known which tree took the pages.
    fn with_those_before(&self, ev: &Evidence<'_>, taken: &Taken<'_, '_>) -> Option<u64> {
        let all = with_those_before(ev, self.refaulted, taken.again).filter(|_| taken.way == Way::Evicted)?;
        (all <= taken.again.saturating_mul(2)).then(|| all.max(taken.again).min(taken.work.pages_added))
    }

    /// Bytes that a tree put into the page cache.
    fn put(&self, tree: usize, page: u64) -> Bytes {
        Bytes(self.work.get(&tree).map_or(0, |work| work.pages_added).saturating_mul(page))
    }
}

fn finding(ev: &Evidence<'_>, cache: &Cache<'_>, seen: &Seen<'_>, taken: &Taken<'_, '_>) -> Option<Finding> {
    let tasks = cache.tasks.get(&taken.tree)?;
    let rows = cache.by_tree.get(&taken.tree)?;
    let pids = rows.iter().map(|row| row.pid).chain(tasks.iter().map(|task| task.pid)).collect();
    let again = cache.with_those_before(ev, taken);
    let (mut refill, _) = misses(seen, &pids, tasks, &taken.work);
    refill.reclaim = match (taken.way, taken.limit) {
        // A tree that drops pages makes room: the victim needs no reclaim.
        (Way::Dropped, _) => 0.0,
        (Way::Evicted, Some(_)) => refill.reclaim,
        (Way::Evicted, None) => taken.work.direct_reclaim_ns as f64,
    };
    let (least, likely) = share_of_reads(&taken.work, taken.again);
    let likely = again.map_or(likely, |all| all as f64 / taken.work.pages_added.max(1) as f64).max(least);
    let again = again.unwrap_or(taken.again);
    let loss = spread::lost(
        tasks,
        |task| task.exec_ns.saturating_add(task.io_ns),
        refill.cost() * likely * taken.part,
    );
    if !loss.is_felt(ev.window()) {
        return None;
    }
    let low = loss.low.mul_f64((least / likely.max(least).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0));
    let (victim, by) = (cache.tree(taken.tree)?.subject(ev), cache.tree(taken.by)?);
    let page = ev.recording().meta.page_size.max(1);
    let bytes = Bytes(again.saturating_mul(page));
    let (name, culprit) = (by.called(ev), by.subject(ev));
    let who = names::tasks_of(tasks.len() as u64, &victim.name);
    let found = Finding::cause(RULE.id, victim, loss.likely)
        .titled(title(ev, cache, taken, &name, bytes))
        .on(resource::MEMORY)
        .share_of(loss.lived)
        .between(low, loss.high)
        .by(Culprit::new(culprit.kind, culprit.id, culprit.name));
    let overlaps = ["memory-limit", "disk-queue", "blkio-throttle"].map(str::to_owned).to_vec();
    Some(Finding { overlaps, ..advised(told(found, &refill, likely, &who, bytes, again), taken.way, &name) })
}

fn title(ev: &Evidence<'_>, cache: &Cache<'_>, taken: &Taken<'_, '_>, name: &str, again: Bytes) -> String {
    if taken.way == Way::Dropped {
        return format!("{name} dropped pages of files from memory, and {again} of them were read again");
    }
    let put = cache.put(taken.by, ev.recording().meta.page_size.max(1));
    let where_ = taken.limit.map_or_else(String::new, |limit| {
        format!(" below the memory limit of {} that both share", Bytes(limit.limit))
    });
    format!("{name} put {put} into the page cache{where_}, and {again} of evicted pages were read again")
}

/// Where the time went.
fn told(found: Finding, refill: &Miss, share: f64, who: &str, again: Bytes, pages: u64) -> Finding {
    let part = |ns: f64| Duration::from_nanos((ns * share) as u64);
    let hop = |reason, what: String, state, lost| Hop::new(reason, who.to_owned(), what, state, lost);
    let refaults = hop(
        Reason::Refault,
        format!("{again} of evicted pages to be refaulted"),
        TaskState::IoWait,
        part(refill.io),
    );
    found.raw_wait(part(refill.io + refill.reclaim)).hop(Hop { count: Some(pages), ..refaults }).hop(hop(
        Reason::PageCacheFill,
        "pages to be allocated, charged and submitted".into(),
        TaskState::Running,
        part(refill.cpu + refill.ready),
    ))
}

fn advised(found: Finding, way: Way, name: &str) -> Finding {
    match way {
        Way::Dropped => found
            .check("drop_pagecache rises if the process writes to drop_caches", command!("grep drop_pagecache /proc/vmstat"))
            .advice(format!(
                "stop {name} from dropping pages: the kernel reclaims the page cache by itself when a program needs the memory"
            )),
        Way::Evicted => found
            .check("workingset_refault_file rises", command!("grep workingset_refault_file /proc/vmstat"))
            .advice(format!(
                "let {name} bypass the page cache (O_DIRECT, posix_fadvise) or give it a memory limit of its own, which may slow it \
                 down; or protect the tasks that read again (memory.low of their cgroup, which costs memory of others; undo: the \
                 value as it was)"
            )),
    }
}

#[cfg(test)]
#[path = "cache_taken_tests.rs"]
mod tests;
