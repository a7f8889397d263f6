//! Tasks wait for another task that does not go on: it holds a lock and sleeps, it is stopped, or it sleeps while a request waits.
//!
//! Signal: chains of the wait-for graph whose end is a task that does not do what the waiters wait for. Lost: the waits that the
//! chains explain, less what the waiters' other sleeps absorb, from 5 % of the waiters' time and 1 % of the window on. Not this
//! rule: locks of the kernel (`lock-wait`), limits, devices, CPUs, and work that was requested.
//!
//! The edges of the graph: the lock holder by the kernel's list of file locks, by the word of a futex, or by the order in which
//! threads pass the futex on; the process at the other end of a connection on which a request was sent; and what that process did
//! meanwhile. A service that began to work when the request came is reported as busy. The work of a task's own children, and waits
//! for something to do, are spending.

mod blame;
mod stuck;

use std::cell::LazyCell;
use std::collections::BTreeSet;

use whyslow_model::table::Task;
use whyslow_model::wait::{Detail, Reason, WaitTarget};
use whyslow_model::{Culprit, Finding, Hop, Missing, Subject, SubjectKind, command, seconds};

use self::blame::{Blame, Blamed};
use super::homes::Homes;
use super::one_end::{Cause, Waits, circle, lost};
use super::{Rule, queues};
use crate::Evidence;
use crate::cpu::spread::Loss;
use crate::graph::HostChain;
use crate::self_inflicted::{SelfInflicted, Whose};

pub const RULE: Rule = Rule {
    id: "held-up",
    question: "Do tasks wait for another task that does not go on?",
    what: "A task holds a lock on a file or a lock of a program while it sleeps or does other work. Or a service is stopped, frozen, \
           sleeps while a request waits, goes on with work that it began before the request, or itself waits for an event that does not \
           come. The waiters use no CPU and no disk, and no counter says which task they wait for.",
    how: "The wait-for graph follows each waiter to the lock holder, or to the process at the other end of the connection on which it sent \
          a request, and to what that task did meanwhile. Counterfactual: that task goes on at once, and so do the waiters; time \
          lost = the part of the waits that the chain explains, less what the waiters' other sleeps absorb. Reported from 5 % of the \
          waiters' time and 1 % of the window on.",
    limits: "A service that sleeps: whether it has a request is known for sockets and pipes, from the data that was sent. Unix sockets: a \
             request is known only if it was unread when the client went to sleep, or if the request woke up the thread that answers \
             (Linux 6.3 and newer). A subscriber that acknowledges each message: it looks like a client that requests the next one. Shared memory: nothing \
             is known. A service that waits at another epoll than the one that watches the client: reported only with one thread and \
             without a timeout (Linux 5.11), and not if the service has sent a request of its own or if its siblings or children run. The \
             kernel does not know what such a service waits for: a lock of its own, or its next job. A lock that a \
             program keeps in memory alone: seen if the futex word holds the owner's thread id, or if threads pass it on at least seven times in the window. \
             Threads of one process that compute while they hold a lock of the process: not reported, unless a task of another task tree waits for them. \
             Copies of one program that take turns by a lock on a file: not reported. A service that began to work when the request came: \
             reported as busy. Work of a task's own children, and waits for work: no loss. A service that sleeps or works, in the client's own task tree: \
             reported only if the client connected to the address where the service listens, and neither of the two started the other.",
    sources: "fs/locks.c (file_lock), futex(2), signal(7), kernel/cgroup/freezer.c.",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Findings that are reported. The chains show the rest.
const MOST: usize = 5;

/// Chains that end at one process, which is to blame for one reason.
struct Found {
    blame: Blame,
    /// The process or other thing at the end.
    at: String,
    /// What it did, in the most expensive chain.
    did: Hop,
    culprit: Culprit,
    cause: Cause,
    waits: Waits,
    /// Threads of this name that did so, and their processes, as far as they are known.
    ends: BTreeSet<(u32, u32)>,
}

impl Found {
    fn of(blamed: &Blamed<'_>, at: String, ends: BTreeSet<(u32, u32)>, reported: &HostChain<'_>) -> Self {
        let Blamed { why, culprit, did, .. } = blamed;
        let mut found = Found {
            blame: *why,
            at,
            did: (*did).clone(),
            culprit: culprit.clone(),
            cause: Cause::of(&reported.chain),
            waits: Waits::new(),
            ends: BTreeSet::new(),
        };
        found.add(ends, reported);
        found
    }

    fn add(&mut self, ends: BTreeSet<(u32, u32)>, reported: &HostChain<'_>) {
        let heads: Vec<u32> = reported.heads.keys().copied().collect();
        self.cause.add(&reported.chain, &heads);
        self.ends.extend(ends);
        for (pid, time) in &reported.heads {
            let waited = self.waits.entry(*pid).or_default();
            *waited = waited.saturating_add(*time);
        }
    }

    fn is_fault(&self) -> bool {
        self.blame != Blame::Serves
    }

    fn thread(&self) -> Option<u32> {
        self.culprit.id.parse().ok().filter(|_| self.culprit.kind == SubjectKind::Task)
    }

    /// The thread at the end. For several threads of one process: the process. For several processes of one name: the first of them.
    fn culprit(&self, ev: &Evidence<'_>) -> Culprit {
        let processes: BTreeSet<u32> = self.ends.iter().map(|(_, process)| *process).collect();
        let Some(task) = self.thread().and_then(|pid| ev.task(pid)).filter(|task| task.tgid != 0) else {
            return self.culprit.clone();
        };
        let name = ev.process_name(task.tgid, &task.comm);
        match (self.ends.len(), processes.len()) {
            (0 | 1, _) => self.culprit.clone(),
            (_, 0 | 1) => Culprit::new(SubjectKind::Task, task.tgid.to_string(), name),
            _ => Culprit::new(
                SubjectKind::Task,
                task.tgid.to_string(),
                format!("{name} and others of this name"),
            ),
        }
    }

    /// The victims, the longest wait first.
    fn victims<'t>(&self, tasks: &'t [Task]) -> Vec<&'t Task> {
        let mut all: Vec<&Task> =
            tasks.iter().filter(|task| self.cause.victims.binary_search(&task.pid).is_ok()).collect();
        all.sort_by_key(|task| std::cmp::Reverse(self.waits.get(&task.pid)));
        all
    }

    /// "curl", or "curl and 3 more".
    fn waiters(&self, victims: &[&Task]) -> String {
        let head = self.cause.chain.hops.first().map_or_else(String::new, |hop| hop.who.to_string());
        let processes: BTreeSet<u32> = victims.iter().map(|task| task.tgid).collect();
        match processes.len() {
            0 | 1 => head,
            many => format!("{head} and {} more", many - 1),
        }
    }

    fn lost(&self, ev: &Evidence<'_>, victims: &[&Task]) -> Option<Loss> {
        let loss = lost(ev, victims, self.cause.chain.hops.first()?.reason, &self.waits, 1.0);
        loss.is_felt(ev.window()).then_some(loss)
    }
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.spans()?;
    ev.has_stacks()?;
    let tasks = ev.tasks()?;
    let (homes, own) = (Homes::of(ev, tasks), SelfInflicted::of(ev));
    let all = found(ev, &homes, &own);
    let is_beside = |found: &Found| all.iter().any(|other| found.cause.is_beside(&other.cause));
    let faults = all.iter().filter(|found| found.is_fault() && !is_beside(found));
    let faults = faults.filter_map(|found| fault(ev, tasks, &homes, found));
    let stuck = stuck::all(ev, tasks, &own).into_iter();
    let stuck = stuck.filter_map(|(cause, waits)| stuck::finding(ev, &homes, &cause, &waits));
    let busy = all.iter().filter(|found| !found.is_fault()).find_map(|found| busy(ev, tasks, found));
    let mut told: Vec<Finding> = faults.chain(stuck).collect();
    super::first_few(&mut told, MOST);
    told.extend(busy);
    if told.is_empty() {
        // Without cgroups it is not known which tasks are strangers to each other.
        ev.cgroups()?;
    }
    Ok(told)
}

fn found(ev: &Evidence<'_>, homes: &Homes, own: &SelfInflicted<'_, '_>) -> Vec<Found> {
    let is_queued = |(pid, queue): &(u32, queues::Queue)| queue.told(ev, homes, *pid).is_some();
    let queued = LazyCell::new(|| {
        queues::all(ev, homes)
            .into_iter()
            .filter(is_queued)
            .map(|(pid, _)| pid.to_string())
            .collect::<BTreeSet<_>>()
    });
    let mut all: Vec<Found> = Vec::new();
    for reported in ev.host_chains().iter().filter(|reported| !reported.blames_for_kernel_wait()) {
        let Some(blamed) = blame::of(ev, reported, homes) else { continue };
        let is_queue =
            || matches!(blamed.why, Blame::Works | Blame::Serves) && queued.contains(&blamed.culprit.id);
        if matches!(own.whose(reported), Whose::Own | Whose::Unclear) || is_queue() {
            continue;
        }
        let at = process_of(ev, &blamed.culprit);
        let ends = blamed
            .tasks
            .iter()
            .map(|(pid, _)| (*pid, ev.task(*pid).map_or(*pid, |task| task.tgid)))
            .collect();
        match all.iter_mut().find(|found| found.blame == blamed.why && found.at == at) {
            Some(found) => found.add(ends, reported),
            None => all.push(Found::of(&blamed, at, ends, reported)),
        }
    }
    all
}

/// The process of a thread at the end of a chain; anything else by its kind and id.
fn process_of(ev: &Evidence<'_>, culprit: &Culprit) -> String {
    let thread = culprit.id.parse().ok().filter(|_| culprit.kind == SubjectKind::Task);
    let task = thread.and_then(|pid| ev.task(pid)).filter(|task| task.tgid != 0);
    task.map_or_else(|| format!("{:?} {}", culprit.kind, culprit.id), |task| format!("process {}", task.tgid))
}

fn fault(ev: &Evidence<'_>, tasks: &[Task], homes: &Homes, found: &Found) -> Option<Finding> {
    let victims = found.victims(tasks);
    let loss = found.lost(ev, &victims)?;
    let Found { cause, did, .. } = found;
    let head = cause.chain.hops.first()?;
    let what = match did.reason {
        Reason::Running if found.blame == Blame::Works => {
            format!("{} ({}), which was at other work when the request came", did.who, did.detail)
        }
        Reason::Running => format!("{} ({})", did.who, did.detail),
        _ => format!("{}, which waits for {}", did.who, did.detail),
    };
    let title = format!(
        "{} waited {} for {}; at the end: {what}{}",
        found.waiters(&victims),
        seconds(cause.time),
        head.detail,
        circle(&cause.chain)
    );
    let pid = found.thread();
    let mut finding = Finding::cause(RULE.id, homes.payer(ev, &victims, pid), loss.likely)
        .titled(title)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(cause.time)
        .by(found.culprit(ev));
    if let Some(pid) = pid {
        let status = command!("grep -E '^(Name|State):' /proc/{}/status", pid);
        finding = finding.check("what it does now", status);
        if is_at_another_epoll(did) {
            let title = command!("tr '\\0' ' ' < /proc/{}/cmdline", pid);
            finding = finding.check("its process title: many servers show there what they wait for", title);
        }
    }
    finding = finding.check("what each task waits for, over some seconds", "whyslow chains --for 10s");
    finding.chain.clone_from(&cause.chain.hops);
    finding.paid_by.clone_from(&cause.victims);
    Some(advised(finding, found))
}

/// A task that works on the waiters' requests is no fault, but the report names it as busy.
fn busy(ev: &Evidence<'_>, tasks: &[Task], found: &Found) -> Option<Finding> {
    let victims = found.victims(tasks);
    found.lost(ev, &victims)?;
    let (who, server) = (found.waiters(&victims), found.culprit(ev));
    let time = seconds(found.cause.time);
    let title = format!("works on what was requested ({}); {who} waited {time} for it", found.did.detail);
    let server = Subject::new(server.kind, server.id, server.name);
    let mut finding = Finding::busy(RULE.id, server).titled(title);
    finding.chain.clone_from(&found.cause.chain.hops);
    finding.paid_by.clone_from(&found.cause.victims);
    Some(finding)
}

/// Whether a service waits at an epoll that does not watch its client: for a lock of its own or a sibling, which the kernel does not know.
fn is_at_another_epoll(did: &Hop) -> bool {
    did.detail == Detail::Target(WaitTarget::EpollElsewhere)
}

fn advised(finding: Finding, found: &Found) -> Finding {
    let did = &found.did;
    match (found.blame, did.reason) {
        (Blame::Halted, Reason::Stopped) => match found.thread() {
            Some(pid) => finding.fix(
                format!("let {} go on (undo: {})", did.who, &*command!("kill -STOP {}", pid)),
                command!("kill -CONT {}", pid),
            ),
            None => finding,
        },
        (Blame::Halted, Reason::Frozen) => finding.advice(format!("thaw the cgroup of {} (undo: freeze it)", did.who)),
        (Blame::Halted, _) => finding.advice(format!("let the tracer of {} go on, or detach it", did.who)),
        (Blame::Holds, _) => {
            finding.advice(format!("let {} release the lock before its own work, or hold it for a shorter time", did.who))
        }
        (Blame::Works | Blame::Serves, _) => finding
            .advice(format!("let {} do that work in a separate process (costs memory), or in smaller pieces", did.who)),
        (Blame::Stuck, _) if is_at_another_epoll(did) => finding.advice(format!(
            "find out what {} waits for (its process title, its log, its table of locks), and give that wait a timeout (costs: the request \
             may fail)",
            did.who
        )),
        (Blame::Asks | Blame::Stuck, _) => {
            finding.advice(format!(
                "give {} a timeout for its wait for {} (costs: the request may fail)",
                did.who, did.detail
            ))
        }
        (Blame::Sleeps, _) => {
            finding.advice(format!("keep {} from sleeping while others wait for it", did.who))
        }
    }
}

#[cfg(test)]
mod tests;
