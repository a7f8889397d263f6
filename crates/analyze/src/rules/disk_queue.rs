//! Tasks wait for a disk behind the requests of other tasks.
//!
//! Signal: waits that end at a disk, of tasks that are no kernel threads, and the number and time of the requests that each tree of tasks had there
//! meanwhile. Waits below a millisecond count as far as the task had requests there. Pages that kernel threads write back count for the
//! trees that wrote to files meanwhile.
//! Lost: the part of these waits in which the disk served others' requests, less what the waiters' sleeps absorb.
//! Counterfactual: a wait would have been as long as small requests of its cgroup took that met no other request at that disk. If there were
//! none: as long as a slow disk of its kind takes for that much data, if another tree has twice the waiter's requests there at once or
//! has requests of twice their size; else as long as the requests took. Requests would have been handed to the disk at once.
//! Reported if others had more than half of the queue, one of them a quarter, and the waiter lost more than 5 % of its time and 1 % of the
//! window.
//! Not this rule: limits on I/O (`blkio-throttle`), locks whose holder waits for a disk (`lock-wait`), a disk that is slow even for a
//! task that is alone there (`disk-latency`).

mod queue;
mod waiting;

use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::{Bytes, Culprit, Finding, Missing, Share, Subject, SubjectKind, command, seconds};

use super::Rule;
use super::homes::Homes;
use crate::Evidence;
use crate::task_trees::TaskTree;
use queue::{Asker, Load, Queue, queues, whole};
use waiting::{Waiting, Whose, add_short, waiting};

pub const RULE: Rule = Rule {
    id: "disk-queue",
    question: "Do tasks wait for a disk behind the requests of other tasks?",
    what: "A disk serves only so many requests at a time. A task that has many or large requests there (a backup, the writeback of \
           a large file, a scan) fills its queue, and a small read or fsync of another task waits at the end of the queue.",
    how: "Waits that end at a disk are compared with the requests that each tree of tasks had there meanwhile; pages that kernel threads \
          write back count for the trees that wrote to files. Counterfactual: requests take as long as small requests of the waiter's \
          cgroup when no other request was there or, if there were none, as long as on a slow disk of its kind; time lost = what others' \
          requests added to the wait, less what the waiters' sleeps absorb. Reported if others had more than half of the queue, one of \
          them a quarter, and the waiter lost more than 5 % of its time and 1 % of the window.",
    limits: "A disk that was never idle: how fast it is for one task alone is not known. There the time before a request is handed to the disk \
             counts as others', and the time at the disk only if the disk is slow and one tree requests more than the waiter. Pages written long before the window: the writer is not known. Writes to several disks: the writers of each \
             disk's pages are not known. Stacked devices (dm, md, multipath): requests are seen below them, waits above, so the two do \
             not meet. Waits for a lock whose holder waits for a disk: reported by the lock. Clients of services of one name in \
             several trees: not reported, because the service that each client asked is not known.",
    sources: "block/blk-mq.c (block_rq_issue, block_rq_complete); block/blk-merge.c (block_split).",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// A finding needs this part of the queue to be others' ...
const OTHERS: f64 = 0.5;
/// ... and this part to be one other tree's.
const ONE_OF_THEM: f64 = 0.25;
/// If it is not known how long a request takes alone, a tree requests more than the waiter if it has this many times the waiter's requests
/// at the disk at once, or requests that are larger by this factor. Whether a tree that does not request more takes time from the
/// waiter, once the disk has the requests, is not known.
const FOR_MORE: f64 = 2.0;
/// Above this size, the time that a request may take grows with its size.
const SMALL: f64 = 65_536.0;
/// A disk that served requests for this part of the window is busy.
const BUSY: f64 = 0.9;
/// Victims that are reported.
const MOST: usize = 5;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let rows = ev.disk()?;
    ev.spans()?;
    let tasks = ev.tasks()?;
    let homes = Homes::by_name(ev, tasks);
    let mut all = waiting(ev, tasks, &homes);
    let files = match ev.recording().tables.io_files.as_deref() {
        None if all.is_empty() => return Ok(Vec::new()),
        files => files.ok_or_else(|| Missing::NotRecorded { what: "block I/O by process".into() })?,
    };
    let queues = queues(rows, files, tasks, &homes);
    add_short(ev, &mut all, &queues);
    let (mut found, mut told): (Vec<Finding>, BTreeSet<&str>) = (Vec::new(), BTreeSet::new());
    for (whose, waiting) in &all {
        let queue = queues.get(whose.dev.as_str());
        let one = queue.and_then(|queue| finding(ev, &homes, queue, whose, waiting));
        told.extend(one.is_some().then_some(whose.dev.as_str()));
        found.extend(one);
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.lost));
    super::first_few(&mut found, MOST);
    let others = queues.values().filter(|queue| !told.contains(queue.dev));
    found.extend(others.filter_map(|queue| busy(ev, &homes, queue)));
    Ok(found)
}

/// What others' requests cost the waiter.
struct Behind {
    /// The direction of its requests, how long each took, and how long one takes if no other request is there.
    op: &'static str,
    each: Duration,
    quiet: Option<Duration>,
    /// The part of its waits that others' requests added, 0 to 1.
    part: f64,
}

fn behind(
    ev: &Evidence<'_>,
    queue: &Queue<'_>,
    asker: usize,
    is_own: &dyn Fn(&Asker) -> bool,
    most: &Load,
    waiting: &Waiting,
) -> Option<Behind> {
    let (own, all) = (queue.of(&Asker::Tree(asker)), whole(&queue.all));
    let sum = |own: bool| {
        let some = queue.by_asker.iter().filter(|(asker, _)| is_own(asker) == own);
        some.map(|(_, loads)| whole(loads).ns).sum::<f64>()
    };
    let others = sum(false);
    if others < OTHERS * all.ns.max(1.0) {
        return None;
    }
    // One of the waiter's own requests is the one that waits; if there are more at a time, they wait for each other, too. Others' requests
    // were also there while the waiter did not wait.
    let longest = waiting.waits.values().max().map_or(0.0, |time| time.as_nanos() as f64);
    let beside = (sum(true) - longest).max(0.0);
    let meanwhile = others * (longest / ev.window().as_nanos().max(1) as f64).min(1.0);
    let by_others = meanwhile / (meanwhile + beside).max(1.0);
    let asked = whole(&own);
    let asks_for_no_more = most.ns < FOR_MORE * sum(true).max(longest)
        && (asked.requests < 1.0 || most.bytes * asked.requests < FOR_MORE * asked.bytes * most.requests);
    // A waiter without requests of its own waits for requests of the file system: a journal, an inode's block.
    let like = if whole(&own).requests >= 1.0 { own } else { queue.all };
    let at = usize::from(like[1].ns > like[0].ns);
    let askers = waiting.askers.iter().filter_map(|pid| ev.task(*pid));
    let groups: BTreeSet<u64> = askers.flat_map(|task| [task.io_cgroup, task.unified_cgroup]).collect();
    let (each, quiet) = (like[at].each(), queue.quiet(at, &groups, &like[at]));
    // Before a request is handed to the disk, it waits only for other requests.
    let queued = like[at].queued / like[at].ns.max(1.0);
    let added = match quiet {
        Some(quiet) => 1.0 - (quiet.as_secs_f64() / each.as_secs_f64().max(1e-9)).min(1.0),
        None if asks_for_no_more => 0.0,
        // The request alone would take at most as long as a slow disk of its kind takes for that much data.
        None => {
            let size = like[at].bytes / like[at].requests.max(1.0);
            let slow = ev.slow_request(queue.device).mul_f64((size / SMALL).max(1.0));
            1.0 - (slow.as_secs_f64() / each.as_secs_f64().max(1e-9)).min(1.0)
        }
    };
    let added = added.max(queued);
    Some(Behind { op: ["read", "write"][at], each, quiet, part: added * by_others })
}

fn finding(
    ev: &Evidence<'_>,
    homes: &Homes,
    queue: &Queue<'_>,
    whose: &Whose,
    waiting: &Waiting,
) -> Option<Finding> {
    let victims: Vec<&Task> = waiting.waits.keys().filter_map(|pid| ev.task(*pid)).collect();
    let own = [homes.tree(whose.victim)?, homes.tree(whose.asker)?];
    let is_kin =
        |other: usize| homes.tree(other).is_some_and(|other| own.iter().any(|own| other.is_kin(own)));
    let is_own = |asker: &Asker| matches!(asker, Asker::Tree(other) if [whose.victim, whose.asker].contains(other) || is_kin(*other));
    let (asker, load) = queue.most_but(Some(whose.asker)).filter(|(asker, _)| !is_own(asker))?;
    // A tree may be several jobs of one name: compare one job with one job.
    let of_one = |tree: Option<&TaskTree>| tree.map_or(1.0, |tree| (tree.alike + 1) as f64);
    let theirs = if let Asker::Tree(other) = asker { homes.tree(*other) } else { None };
    let most = Load { ns: load.ns * of_one(Some(own[1])) / of_one(theirs), ..load };
    let behind = behind(ev, queue, whose.asker, &is_own, &most, waiting)?;
    if load.ns < ONE_OF_THEM * whole(&queue.all).ns {
        return None;
    }
    let loss = waiting.lost(ev, &victims, behind.part);
    if !loss.is_felt(ev.window()) {
        return None;
    }
    let [victim, service] = own.map(|tree| tree.subject(ev));
    let of_whom = if whose.victim == whose.asker { "the victim".to_owned() } else { service.name };
    let (culprit, name, keep) = who(ev, homes, queue, asker);
    let Behind { op, each, quiet, .. } = behind;
    let alone = quiet
        .map_or_else(String::new, |quiet| format!(", {} when no other request was there", seconds(quiet)));
    let what = asks(ev, queue, &load);
    let title = format!(
        "{name} {keep} {} busy ({what}); each {op} of {of_whom} took {}{alone}",
        queue.device,
        seconds(each)
    );
    let chain = waiting.hops(victims.len() as u64, &victim.name, queue.device, &culprit.name);
    let found = Finding::cause(RULE.id, victim, loss.likely)
        .titled(title)
        .on(queue.device)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(waiting.whole())
        .by(culprit)
        .check(
            "aqu-sz is the length of its queue, r_await and w_await the time of each request",
            command!("iostat -x 1 3 {}", queue.device),
        )
        .check("the processes that read and write most", command!("pidstat -d 1 3"))
        .advice(format!(
            "let {name} have fewer requests at once (fewer jobs), run it when no other task needs {}, or slow it down: with ionice -c 3 \
             where the scheduler supports it (bfq), or with a limit on its cgroup (io.max, blkio.throttle; undo: the value as it was)",
            queue.device
        ));
    Some(Finding { overlaps: OVERLAPS.map(str::to_owned).to_vec(), chain, ..found })
}

/// The findings of these rules may include the same waits.
const OVERLAPS: [&str; 3] = ["memory-limit", "swap-in", "dirty-throttling"];

/// The owner of requests: as the culprit, by its name in a title, and with the verb for that title.
fn who(
    ev: &Evidence<'_>,
    homes: &Homes,
    queue: &Queue<'_>,
    asker: &Asker,
) -> (Culprit, String, &'static str) {
    let tree = match asker {
        Asker::Tree(tree) => homes.tree(*tree),
        Asker::Process(..) => None,
    };
    let of_tree = |tree: &TaskTree| {
        let Subject { kind, id, name, .. } = tree.subject(ev);
        let called = tree.called(ev);
        // The first process of a tree may be a shell: the name of the program that it runs says more.
        let what = queue.most.get(asker).map_or("", |(_, comm)| comm);
        let called = if called.contains(what) { called } else { format!("{called} ({what})") };
        (Culprit::new(kind, id, name), called, tree.keeps())
    };
    let gone = || {
        let Asker::Process(comm, tgid) = asker else {
            return (Culprit::new(SubjectKind::Host, "", ""), String::new(), "");
        };
        (Culprit::new(SubjectKind::Task, tgid.to_string(), comm.clone()), comm.clone(), "keeps")
    };
    tree.map_or_else(gone, of_tree)
}

/// "8 requests at once, 1.1 GiB a second, 98 % of its queue".
fn asks(ev: &Evidence<'_>, queue: &Queue<'_>, load: &Load) -> String {
    let window = ev.window().as_secs_f64().max(1e-9);
    let at_once = load.ns / 1e9 / window;
    let at_once = if at_once >= 1.5 { format!("{at_once:.0} requests at once, ") } else { String::new() };
    let rate = Bytes((load.bytes / window) as u64);
    let part = Share::of(load.ns, whole(&queue.all).ns);
    format!("{at_once}{rate} a second, {part} of its queue")
}

/// A tree that keeps a disk busy, if no task was found that loses time by it.
fn busy(ev: &Evidence<'_>, homes: &Homes, queue: &Queue<'_>) -> Option<Finding> {
    let disks = ev.disks().ok()?;
    let disk = disks.iter().find(|disk| disk.dev == queue.dev)?;
    if (disk.busy_ms as f64) < BUSY * ev.window().as_millis() as f64 {
        return None;
    }
    let (asker, load) = queue.most_but(None)?;
    let Asker::Tree(tree) = asker else { return None };
    if load.ns < OTHERS * whole(&queue.all).ns {
        return None;
    }
    let subject = homes.tree(*tree)?.subject(ev);
    let title = format!("keeps {} busy ({})", queue.device, asks(ev, queue, &load));
    Some(Finding::busy(RULE.id, subject).titled(title))
}

#[cfg(test)]
mod tests;
