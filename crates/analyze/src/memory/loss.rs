//! What a memory limit costs the tasks under it: pages of files refaulted, pages swapped in, and the reclaim for both.
//!
//! With a limit that holds all that the tasks use, none of this would happen: the work left is what they do between the misses.
//! So the cost of a miss is its CPU time (samples in the functions that fill the page cache or swap in), the wait for
//! the device, and the reclaim that made room, by the wall clock of the tasks themselves. Reclaim serves both kinds of
//! pages: its time is divided in proportion to the time of the misses. Ready time is lost in proportion: CPU time that is not needed
//! has no wait either.

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::Missing;
use whyslow_model::table::{Cgroup, CgroupMemory, Memory, Task, Wait};

use crate::Evidence;
use crate::MAX_DEPTH;
use crate::hashing::Table;
use crate::memory::stacks::{self, Doing};

/// CPU time and waits of one kind of miss, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Miss {
    /// CPU time in the functions that serve the miss.
    pub cpu: f64,
    /// Ready time for this CPU time.
    pub ready: f64,
    /// Wait for the device.
    pub io: f64,
    /// The miss's part of the reclaim at the limit.
    pub reclaim: f64,
}

impl Miss {
    /// The sum.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.cpu + self.ready + self.io + self.reclaim
    }
}

/// What happened under one limit.
pub struct Limited<'r> {
    /// The cgroup with the limit.
    pub cgroup: &'r Cgroup,
    /// The limit, in bytes.
    pub limit: u64,
    /// Whether it is memory.high, which slows, and not the hard limit.
    pub high: bool,
    /// Tasks under it.
    pub tasks: Vec<&'r Task>,
    /// The memory work of all of them.
    pub work: Memory,
    /// Reading pages of files (again).
    pub refill: Miss,
    /// Swapping in.
    pub swap: Miss,
}

impl Limited<'_> {
    /// The part of the pages read that had been evicted: at least, and likely. The history of pages read before the first refault
    /// is not known; if they are the smaller part, they are taken to be like the rest.
    #[must_use]
    pub fn refault_share(&self) -> (f64, f64) {
        share_of_reads(&self.work, self.work.pages_refaulted)
    }
}

/// Pages that were evicted and came back, in whatever way.
pub fn came_back(work: &Memory) -> u64 {
    refaulted(work).saturating_add(work.pages_dropped)
}

/// Pages that reclaim had evicted and that came back, whichever task reclaimed.
pub fn refaulted(work: &Memory) -> u64 {
    let taken = work.pages_taken_at_limit.saturating_add(work.pages_taken_by_reclaim);
    work.pages_refaulted.saturating_add(taken)
}

/// The share of this many pages in those that were read: at least, and likely.
pub fn share_of_reads(work: &Memory, again: u64) -> (f64, f64) {
    let (added, again) = (work.pages_added as f64, again as f64);
    if added <= 0.0 {
        return (0.0, 0.0);
    }
    let known = added - work.pages_unknown as f64;
    let least = (again / added).min(1.0);
    if known * 2.0 < added { (least, least) } else { (least, (again / known).clamp(least, 1.0)) }
}

/// All limits that made their cgroup's tasks reclaim.
pub fn limits<'r>(ev: &Evidence<'r>) -> Result<Vec<Limited<'r>>, Missing> {
    let (rows, tasks, cgroups) = (ev.memory()?, ev.tasks()?, ev.cgroups()?);
    let by_id: Table<u64, &Cgroup> = cgroups.iter().map(|c| (c.id, c)).collect();
    let rows_refaulted = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.pages_refaulted));
    let mut by_limit: BTreeMap<u64, Vec<&Memory>> = BTreeMap::new();
    for row in
        rows.iter().filter(|row| row.limit_reclaims > 0 || row.pages_refaulted > 0 || row.swapped_in > 0)
    {
        if let Some(limiter) = limiter_of(row.cgroup, &by_id) {
            by_limit.entry(limiter.id).or_default().push(row);
        }
    }
    if by_limit.is_empty() {
        return Ok(Vec::new());
    }
    let mut under: Table<u64, Vec<&Task>> = by_limit.keys().map(|id| (*id, Vec::new())).collect();
    for task in tasks {
        let limiter = limiter_of(task.memory_cgroup, &by_id);
        if let Some(under) = limiter.and_then(|limiter| under.get_mut(&limiter.id)) {
            under.push(task);
        }
    }
    let seen = Seen::of(ev)?;
    let mut found = Vec::new();
    for (id, rows) in by_limit {
        let Some((cgroup, (limit, high))) = by_id.get(&id).and_then(|c| Some((*c, limit_of(c)?))) else {
            continue;
        };
        let tasks = under.remove(&id).unwrap_or_default();
        let mut limited = Limited {
            cgroup,
            limit,
            high,
            tasks,
            work: sum(&rows),
            refill: Miss::default(),
            swap: Miss::default(),
        };
        let pids = rows.iter().map(|r| r.pid).chain(limited.tasks.iter().map(|t| t.pid)).collect();
        count_refaults(ev, rows_refaulted, &mut limited.work);
        (limited.refill, limited.swap) = misses(&seen, &pids, &limited.tasks, &limited.work);
        found.push(limited);
    }
    Ok(found)
}

fn count_refaults(ev: &Evidence<'_>, seen_everywhere: u64, work: &mut Memory) {
    if let Some(all) = with_those_before(ev, seen_everywhere, work.pages_refaulted) {
        work.pages_refaulted = work.pages_refaulted.max(all).min(work.pages_added);
        work.pages_unknown = 0;
    }
}

/// The probe knows a refault only if it saw the eviction, too, within the window. The kernel remembers earlier evictions
/// (shadow entries, mm/workingset.c) and counts refaults for the host: this is the share of `seen` in `seen_everywhere`.
pub fn with_those_before(ev: &Evidence<'_>, seen_everywhere: u64, seen: u64) -> Option<u64> {
    let all = ev.vmstat_delta("workingset_refault_file").ok().filter(|_| seen > 0)?;
    Some((all as f64 * seen as f64 / seen_everywhere.max(1) as f64) as u64)
}

/// The nearest cgroup whose limit was met; else the nearest one that is close to its memory.high; else the nearest with a
/// limit.
fn limiter_of<'r>(id: u64, by_id: &Table<u64, &'r Cgroup>) -> Option<&'r Cgroup> {
    let up = |group: &&'r Cgroup| by_id.get(&group.parent).copied();
    let all = std::iter::successors(by_id.get(&id).copied(), up).take(MAX_DEPTH);
    let (mut nearest, mut at_high) = (None, None);
    for group in all.filter(|group| limit_of(group).is_some()) {
        if was_met(group) {
            return Some(group);
        }
        nearest = nearest.or(Some(group));
        at_high = at_high.or(Some(group).filter(|group| is_at_high(group)));
    }
    at_high.or(nearest)
}

/// Whether the group's own limit was met for sure: the kernel counted it, or the group uses more than memory.high allows.
fn was_met(cgroup: &Cgroup) -> bool {
    let met =
        |memory: &CgroupMemory| memory.limit_hits > 0 || memory.high.is_some_and(|high| memory.usage > high);
    cgroup.memory.as_ref().is_some_and(met)
}

/// The table has no count for memory.high: a group that was held there and reclaimed uses about as much as memory.high.
fn is_at_high(cgroup: &Cgroup) -> bool {
    const NEARLY: f64 = 0.95;
    let at =
        |memory: &CgroupMemory| memory.high.is_some_and(|high| memory.usage as f64 >= NEARLY * high as f64);
    cgroup.memory.as_ref().is_some_and(at)
}

/// A group of a v1 hierarchy: v1 hierarchies have a number, kept in the top byte of the id; the unified one has none.
pub fn is_v1(cgroup: &Cgroup) -> bool {
    cgroup.id >> 56 != 0
}

/// The counter of memory.stat that includes the group's children: on v1 such counters have names of their own.
pub fn counter(cgroup: &Cgroup, name: &str) -> String {
    if is_v1(cgroup) { format!("total_{name}") } else { name.to_owned() }
}

/// Its limit, and whether it is memory.high: the lower of the two holds.
pub fn limit_of(cgroup: &Cgroup) -> Option<(u64, bool)> {
    let memory = cgroup.memory.as_ref()?;
    match (memory.limit, memory.high) {
        (Some(limit), Some(high)) if high < limit => Some((high, true)),
        (Some(limit), _) => Some((limit, false)),
        (None, high) => Some((high?, true)),
    }
}

/// The sum of the rows.
pub fn sum(rows: &[&Memory]) -> Memory {
    rows.iter().fold(Memory::default(), |mut all, row| {
        all.limit_reclaim_ns = all.limit_reclaim_ns.saturating_add(row.limit_reclaim_ns);
        all.limit_reclaims = all.limit_reclaims.saturating_add(row.limit_reclaims);
        all.limit_reclaim_worst_ns = all.limit_reclaim_worst_ns.max(row.limit_reclaim_worst_ns);
        all.pages_added = all.pages_added.saturating_add(row.pages_added);
        all.pages_refaulted = all.pages_refaulted.saturating_add(row.pages_refaulted);
        all.pages_unknown = all.pages_unknown.saturating_add(row.pages_unknown);
        all.direct_reclaim_ns = all.direct_reclaim_ns.saturating_add(row.direct_reclaim_ns);
        all.pages_taken_at_limit = all.pages_taken_at_limit.saturating_add(row.pages_taken_at_limit);
        all.pages_taken_by_reclaim = all.pages_taken_by_reclaim.saturating_add(row.pages_taken_by_reclaim);
        all.pages_dropped = all.pages_dropped.saturating_add(row.pages_dropped);
        all.swapped_in = all.swapped_in.saturating_add(row.swapped_in);
        all
    })
}

/// What samples and stacks show about each thread.
pub struct Seen<'r> {
    on_cpu: Table<u32, Vec<(Doing, u64)>>,
    waiting: Table<u32, Vec<(Doing, &'r Wait)>>,
}

impl<'r> Seen<'r> {
    pub fn of(ev: &Evidence<'r>) -> Result<Self, Missing> {
        let mut seen = Seen { on_cpu: Table::default(), waiting: Table::default() };
        for sample in ev.samples()? {
            seen.on_cpu.entry(sample.pid).or_default().push((stacks::running(&sample.kernel), sample.ns));
        }
        for wait in ev.waits()? {
            seen.waiting.entry(wait.pid).or_default().push((stacks::waiting(&wait.kernel), wait));
        }
        Ok(seen)
    }

    fn cpu(&self, pids: &BTreeSet<u32>, doing: Doing) -> f64 {
        let all = pids.iter().filter_map(|pid| self.on_cpu.get(pid)).flatten();
        all.filter(|(what, _)| *what == doing).map(|(_, ns)| *ns as f64).sum()
    }

    fn waits(&self, pids: &BTreeSet<u32>) -> impl Iterator<Item = &(Doing, &'r Wait)> {
        pids.iter().filter_map(|pid| self.waiting.get(pid)).flatten()
    }
}

/// What it cost these tasks to read pages of files, and to swap in.
pub fn misses(seen: &Seen<'_>, pids: &BTreeSet<u32>, tasks: &[&Task], work: &Memory) -> (Miss, Miss) {
    let cpu = |doing: Doing| seen.cpu(pids, doing);
    let all = |pick: fn(&Task) -> u64| tasks.iter().map(|t| pick(t) as f64).sum::<f64>();
    let (exec, ready, io) = (all(|t| t.exec_ns), all(|t| t.runnable_ns), all(|t| t.io_ns));
    let again = came_back(work) as f64;
    let swapped = work.swapped_in as f64;
    let by_pages = if again + swapped > 0.0 { again / (again + swapped) } else { 0.0 };
    let (file_wait, swap_wait) = wait_shares(seen, pids, by_pages);
    let reclaim = work.limit_reclaim_ns as f64;
    let (file_cpu, swap_cpu) = (cpu(Doing::Refill), cpu(Doing::SwapIn));
    let (file, swap) = (file_cpu + io * file_wait, swap_cpu + io * swap_wait);
    let for_files = if file + swap > 0.0 { file / (file + swap) } else { by_pages };
    // Ready time within reclaim is in its wall time already; the rest is divided like the CPU time outside it.
    let reclaim_cpu = cpu(Doing::LimitReclaim).min(exec);
    let inside = (reclaim - reclaim_cpu - waited_in_reclaim(seen, pids)).clamp(0.0, ready);
    let ready_for = |cpu: f64| (ready - inside) * (cpu / (exec - reclaim_cpu).max(1.0)).min(1.0);
    let miss = |cpu: f64, wait: f64, part: f64| {
        let cpu = cpu.min(exec - reclaim_cpu);
        Miss { cpu, ready: ready_for(cpu), io: io * wait, reclaim: reclaim * part }
    };
    (miss(file_cpu, file_wait, for_files), miss(swap_cpu, swap_wait, 1.0 - for_files))
}

/// Time that these tasks slept within reclaim.
fn waited_in_reclaim(seen: &Seen<'_>, pids: &BTreeSet<u32>) -> f64 {
    let own = seen.waits(pids).filter(|(doing, _)| *doing == Doing::LimitReclaim);
    own.map(|(_, wait)| wait.ns as f64).sum()
}

/// These tasks' I/O wait, divided: the part for pages of files, and for swap. Stacks are a sample; without any, pages decide.
fn wait_shares(seen: &Seen<'_>, pids: &BTreeSet<u32>, by_pages: f64) -> (f64, f64) {
    let (mut file, mut swap, mut whole) = (0.0, 0.0, 0.0);
    for (doing, wait) in seen.waits(pids).filter(|(_, wait)| wait.state == "io") {
        whole += wait.ns as f64;
        match doing {
            Doing::Refill => file += wait.ns as f64,
            Doing::SwapIn => swap += wait.ns as f64,
            _ => {}
        }
    }
    if whole > 0.0 { (file / whole, swap / whole) } else { (by_pages, 1.0 - by_pages) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(id: u64, parent: u64, memory: CgroupMemory) -> Cgroup {
        Cgroup { id, parent, memory: Some(memory), ..Cgroup::default() }
    }

    /// As Kubernetes sets limits: the container's memory.high is a part of its limit, and the pod has a limit of its own.
    fn named(app: CgroupMemory, pod_hits: u64) -> u64 {
        let of_pod =
            CgroupMemory { limit: Some(1024 * MIB), limit_hits: pod_hits, ..CgroupMemory::default() };
        let (pod, app) = (group(1, 0, of_pod), group(2, 1, app));
        limiter_of(2, &Table::from_iter([(1, &pod), (2, &app)])).unwrap().id
    }

    #[test]
    fn a_limit_that_was_met_goes_before_one_that_was_nearly() {
        let app =
            |usage| CgroupMemory { high: Some(900 * MIB), usage: usage * MIB, ..CgroupMemory::default() };
        assert_eq!(named(app(870), 500), 1, "the pod's was counted");
        assert_eq!(named(app(905), 500), 2, "both were met: the nearer");
        assert_eq!(named(app(870), 0), 2, "about at its memory.high");
        assert_eq!(named(app(100), 0), 2, "none was met: the nearest");
    }

    #[test]
    fn groups_that_are_each_others_parents_end() {
        let (a, b) = (group(1, 2, CgroupMemory::default()), group(2, 1, CgroupMemory::default()));
        assert!(limiter_of(1, &Table::from_iter([(1, &a), (2, &b)])).is_none());
    }
}
