//! Why is *this* slow? Where one process, cgroup or unit spent its time, and which findings concern it.
//!
//! The times of its tasks are the kernel's own (`sum_exec_runtime`, `run_delay`) and, for sleeps, the tracer's. The part of
//! the tasks' lifetime that these do not cover is reported as unexplained, not hidden.

mod select;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::wait::Reason;
use whyslow_model::{
    About, Document, Finding, Kind, Probe, Recording, Share, Subject, SubjectKind, counted, seconds, table,
};

use crate::names::Names;
use crate::{Evidence, process_names};
pub use select::{Picked, pick};

/// The subject that the user asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Focus {
    /// A process, or one thread.
    Pid(u32),
    /// The processes of this name.
    Name(String),
    /// A cgroup and all below it: its path below its hierarchy's root, or the path of its folder.
    Cgroup(String),
    /// A systemd unit: "web" or "web.service".
    Unit(String),
    /// A pod: "web-0", "shop/web-0", its uid or the beginning of it.
    Pod(String),
    /// A container: its name, its id or the beginning of it.
    Container(String),
    /// A user: name or number.
    User(String),
}

/// The subject is not in the recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unseen {
    /// No such process.
    #[error("cannot find process {0} in the window; `ps -e` lists what runs")]
    Pid(u32),
    /// No process of this name.
    #[error("cannot find a process named {0} in the window; `ps -e` lists what runs")]
    Name(String),
    /// No such cgroup, or no task in it.
    #[error(
        "cannot find a task of cgroup {0} in the window; `cat /proc/PID/cgroup` names a process's cgroups"
    )]
    Cgroup(String),
    /// The subject exists, and has no task.
    #[error("cannot find a task of {0} {1} in the window")]
    Idle(&'static str, String),
    /// No pod, container, unit or user has this name.
    #[error("cannot find {what} {asked} in the window; {}", seen_words(seen))]
    Nothing { what: &'static str, asked: String, seen: String },
    /// Several have this name.
    #[error("cannot tell which {what} {asked} is meant: {seen}; one alone is named by {way_out}")]
    Several { what: &'static str, asked: String, seen: String, way_out: &'static str },
}

fn seen_words(seen: &str) -> String {
    if seen.is_empty() { "none was seen".to_owned() } else { format!("there are {seen}") }
}

/// Reduces a report of the whole host to what concerns `on`: its findings and its chains, and how its tasks spent the window. A cause
/// that costs all tasks alike (a clock) is reported, too.
pub fn focus(rec: &Recording, doc: &mut Document, on: &Focus) -> Result<(), Unseen> {
    let circle = Circle::around(rec, on, select::pick(rec, on)?);
    let own = || rec.tables.tasks.iter().flatten().filter(|task| circle.has(task));
    let how = match &rec.tables.tasks {
        Some(_) => spent(&circle.name, own(), rec.window()).ok_or_else(|| on.unseen())?,
        None => {
            format!("How {} spent its time cannot be said: {}.", circle.name, rec.why_untold(Probe::TaskList))
        }
    };
    // A cause that costs the whole host may be this subject's loss, too; a kill of another process does not explain its loss.
    let had_cause = doc.findings.iter().any(|found| found.kind == Kind::Cause && found.lost.is_some());
    let all = doc.findings.len();
    doc.findings.retain(|finding| circle.concerns(finding));
    let others = match all - doc.findings.len() {
        0 => String::new(),
        1 => " One finding about others is left out.".to_owned(),
        many => format!(" {many} findings about others are left out."),
    };
    doc.account.notes.insert(0, format!("{how}{others}"));
    let ev = Evidence::of(rec);
    let is_awaited = ev.host_chains().iter().any(|reported| circle.is_behind(&reported.chain));
    let held = share(own(), |task| task.run_delay_ns.saturating_add(task.blocked_ns));
    if held >= HELD && !had_cause && !has(doc, Kind::Busy) {
        doc.findings.push(Finding::cannot_tell(
            UNEXPLAINED,
            format!(
                "{} was ready or blocked for {} of its time, and no rule says why",
                circle.name,
                Share::of(held, 1.0)
            ),
        ));
    }
    doc.chains =
        ev.graph().map(|graph| graph.chains_around(circle.threads.iter().copied())).unwrap_or_default();
    let is_told = has(doc, Kind::Cause) || has(doc, Kind::Busy);
    let rests = doc.chains.iter().all(is_rest);
    let idle = !is_awaited && !is_told && rests && share(own(), |task| task.sleep_ns) >= ASLEEP;
    doc.about = Some(About { name: circle.name, idle });
    Ok(())
}

/// A subject that sleeps for this part of the time has nothing to do ...
const ASLEEP: f64 = 0.95;
/// ... and a subject that is ready or blocked for this part is held back by something.
const HELD: f64 = 0.5;
/// Stands in the place of a rule's id.
const UNEXPLAINED: &str = "focus";

fn has(doc: &Document, kind: Kind) -> bool {
    doc.findings.iter().any(|finding| finding.kind == kind)
}

/// A wait for something to do, with no task behind it.
fn is_rest(chain: &Chain) -> bool {
    const RESTS: [Reason; 9] = [
        Reason::Timer,
        Reason::Epoll,
        Reason::Poll,
        Reason::Futex,
        Reason::Signal,
        Reason::Tty,
        Reason::Pipe,
        Reason::Child,
        Reason::Thread,
    ];
    matches!(chain.hops.as_slice(), [hop] if RESTS.contains(&hop.reason))
}

fn share<'t>(tasks: impl Iterator<Item = &'t table::Task>, of: impl Fn(&table::Task) -> u64) -> f64 {
    let (mut part, mut whole) = (0.0, 0.0);
    for task in tasks {
        part += of(task) as f64;
        whole += task.lived_ns as f64;
    }
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl Focus {
    fn unseen(&self) -> Unseen {
        match self {
            Focus::Pid(pid) => Unseen::Pid(*pid),
            Focus::Name(name) => Unseen::Name(name.clone()),
            Focus::Cgroup(path) => Unseen::Cgroup(path.clone()),
            Focus::Unit(unit) => Unseen::Idle("unit", unit.clone()),
            Focus::Pod(pod) => Unseen::Idle("pod", pod.clone()),
            Focus::Container(container) => Unseen::Idle("container", container.clone()),
            Focus::User(user) => Unseen::Idle("user", user.clone()),
        }
    }

    /// Whether the user means this cgroup.
    fn means(&self, cgroup: &table::Cgroup) -> bool {
        match self {
            Focus::Cgroup(path) => {
                let asked = path.trim_matches('/');
                cgroup.path.trim_matches('/') == asked
                    || cgroup.files.as_ref().is_some_and(|f| f.trim_matches('/') == asked)
            }
            _ => false,
        }
    }
}

/// The subject, its tasks, and the cgroups that hold it.
struct Circle {
    name: String,
    threads: BTreeSet<u32>,
    processes: BTreeSet<u32>,
    /// Paths of its cgroups, of those below and of those above.
    paths: BTreeSet<String>,
}

impl Circle {
    fn around(rec: &Recording, on: &Focus, picked: Option<Picked>) -> Self {
        let cgroups = rec.tables.cgroups.as_deref().unwrap_or_default();
        let tasks = rec.tables.tasks.as_deref().unwrap_or_default();
        let seeds = match &picked {
            Some(picked) => picked.groups.clone(),
            None => cgroups.iter().filter(|c| on.means(c)).map(|c| c.id).collect(),
        };
        let below = inside(cgroups, seeds.clone());
        let members: Vec<_> = match (on, picked.as_ref().and_then(|picked| picked.uid)) {
            (Focus::Pid(pid), _) => match members_of(tasks, *pid) {
                own if own.first().is_some_and(|task| task.tgid == *pid) => with_children(tasks, own),
                thread => thread,
            },
            (Focus::Name(name), _) => with_children(tasks, named(tasks, name)),
            (_, Some(uid)) => tasks.iter().filter(|t| t.uid == Some(uid) && !t.kthread).collect(),
            _ => tasks.iter().filter(|t| groups(t).iter().any(|g| below.contains(g))).collect(),
        };
        let mut held: BTreeSet<u64> = members.iter().flat_map(|t| groups(t)).collect();
        held.extend(&below);
        let ids = with_ancestors(cgroups, held);
        let leader = members.first().map(|t| process_names::of_row(t)).unwrap_or_default();
        let name = match on {
            Focus::Pid(pid) if leader.is_empty() => format!("process {pid}"),
            Focus::Pid(pid) => format!("{leader} (pid {pid})"),
            Focus::Name(name) => name.clone(),
            Focus::Cgroup(path) => of_group(rec, &seeds).unwrap_or_else(|| format!("cgroup {path}")),
            Focus::Unit(asked) | Focus::Pod(asked) | Focus::Container(asked) | Focus::User(asked) => {
                let said = picked.map(|picked| picked.name).filter(|name| !name.is_empty());
                said.or_else(|| of_group(rec, &seeds)).unwrap_or_else(|| asked.clone())
            }
        };
        Circle {
            name,
            threads: members.iter().map(|t| t.pid).collect(),
            processes: members.iter().map(|t| t.tgid).collect(),
            paths: cgroups.iter().filter(|c| ids.contains(&c.id)).map(|c| c.path.clone()).collect(),
        }
    }

    fn has(&self, task: &table::Task) -> bool {
        self.threads.contains(&task.pid)
    }

    /// A thread of the subject is behind another task's wait.
    fn is_behind(&self, chain: &Chain) -> bool {
        chain.tasks.iter().skip(1).flatten().any(|(pid, _)| self.threads.contains(pid))
    }

    /// The subject pays for the finding, or makes others pay.
    fn concerns(&self, finding: &Finding) -> bool {
        let Subject { kind, id, .. } = &finding.victim;
        let culprit = finding.culprit.as_ref();
        finding.kind == Kind::CannotTell
            || finding.kind == Kind::Busy && finding.chain.is_empty()
            || finding.paid_by.iter().any(|pid| self.threads.contains(pid))
            || self.is_one(*kind, id)
            || culprit.is_some_and(|culprit| self.is_one(culprit.kind, &culprit.id))
    }

    fn is_one(&self, kind: SubjectKind, id: &str) -> bool {
        match kind {
            SubjectKind::Host => true,
            SubjectKind::Task => {
                id.parse().is_ok_and(|pid| self.threads.contains(&pid) || self.processes.contains(&pid))
            }
            SubjectKind::Cgroup => self.paths.contains(id),
            _ => false,
        }
    }
}

/// The threads of processes of this name: the kernel's, which ends after 15 bytes, or the program's.
fn named<'t>(tasks: &'t [table::Task], name: &str) -> Vec<&'t table::Task> {
    let is_it = |task: &&table::Task| task.comm == shortened(name) || process_names::of_row(task) == name;
    let leads = |task: &&table::Task| task.pid == task.tgid;
    let processes: BTreeSet<u32> = tasks.iter().filter(leads).filter(is_it).map(|task| task.tgid).collect();
    tasks.iter().filter(|task| processes.contains(&task.tgid)).collect()
}

/// The name as the kernel keeps it (TASK_COMM_LEN).
#[must_use]
pub fn shortened(name: &str) -> &str {
    const MOST: usize = 15;
    let end = (0..=MOST.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    name.get(..end.unwrap_or(0)).unwrap_or(name)
}

/// ... with the processes that it started, and their children.
fn with_children<'t>(tasks: &'t [table::Task], own: Vec<&'t table::Task>) -> Vec<&'t table::Task> {
    let mut children: BTreeMap<u32, Vec<&table::Task>> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.tgid != 0 && !task.kthread) {
        children.entry(task.ppid).or_default().push(task);
    }
    let mut known: BTreeSet<u32> = own.iter().map(|task| task.pid).collect();
    let (mut all, mut at) = (own, 0);
    while let Some(task) = all.get(at) {
        let of = children.get(&task.tgid).into_iter().flatten().copied();
        all.extend(of.filter(|child| known.insert(child.pid)).collect::<Vec<_>>());
        at += 1;
    }
    all
}

/// The threads of process `pid`; if there is no such process, the thread with that id.
fn members_of(tasks: &[table::Task], pid: u32) -> Vec<&table::Task> {
    let mut all: Vec<_> = tasks.iter().filter(|t| t.tgid == pid).collect();
    if all.is_empty() {
        all = tasks.iter().filter(|t| t.pid == pid).collect();
    }
    all.sort_by_key(|t| t.pid != pid);
    all
}

fn groups(task: &table::Task) -> [u64; 4] {
    [task.cpu_cgroup, task.memory_cgroup, task.io_cgroup, task.unified_cgroup]
}

/// The report's name of the uppermost of these cgroups.
fn of_group(rec: &Recording, ids: &BTreeSet<u64>) -> Option<String> {
    let all = rec.tables.cgroups.iter().flatten().filter(|c| ids.contains(&c.id));
    let path = &all.min_by_key(|c| c.path.matches('/').count())?.path;
    let name = Names::of(rec).subject(path).name;
    Some(if name == *path { format!("cgroup {path}") } else { name })
}

/// These cgroups and all below them.
fn inside(cgroups: &[table::Cgroup], mut ids: BTreeSet<u64>) -> BTreeSet<u64> {
    ids.remove(&0);
    loop {
        let more: Vec<_> = cgroups
            .iter()
            .filter(|c| ids.contains(&c.parent) && !ids.contains(&c.id))
            .map(|c| c.id)
            .collect();
        if more.is_empty() {
            return ids;
        }
        ids.extend(more);
    }
}

fn with_ancestors(cgroups: &[table::Cgroup], mut ids: BTreeSet<u64>) -> BTreeSet<u64> {
    ids.remove(&0);
    loop {
        let more: Vec<_> = cgroups
            .iter()
            .filter(|c| ids.contains(&c.id) && c.parent != 0 && !ids.contains(&c.parent))
            .map(|c| c.parent)
            .collect();
        if more.is_empty() {
            return ids;
        }
        ids.extend(more);
    }
}

/// One sentence about the tasks' time; `None` if there is no task.
fn spent<'t>(name: &str, tasks: impl Iterator<Item = &'t table::Task>, window: Duration) -> Option<String> {
    let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    let (mut count, mut lived, mut states) = (0u64, 0u64, [0u64; 5]);
    for t in tasks {
        count = count.saturating_add(1);
        lived = lived.saturating_add(if t.lived_ns == 0 { window_ns } else { t.lived_ns });
        let times = [t.exec_ns, t.run_delay_ns, t.io_ns, t.blocked_ns, t.sleep_ns];
        for (sum, ns) in states.iter_mut().zip(times) {
            *sum = sum.saturating_add(ns);
        }
    }
    if count == 0 {
        return None;
    }
    let known = states.iter().fold(0u64, |all, ns| all.saturating_add(*ns));
    // The kernel's counters are not all read at one moment: shares are parts of the larger of the two.
    let (told, lived) = (lived, lived.max(known));
    let rest = lived - known;
    let words = ["running", "ready but not running", "waiting for I/O", "blocked", "asleep", "unexplained"];
    let shares: Vec<_> = words
        .iter()
        .zip(states.into_iter().chain([rest]))
        // A part that rounds to 0.0 % is left out.
        .filter(|(word, ns)| ns.saturating_mul(2000) > lived || **word == "running")
        .map(|(word, ns)| format!("{word} {}", Share::of(ns as f64, lived as f64)))
        .collect();
    let threads = counted(count, "task");
    let time = seconds(Duration::from_nanos(told));
    Some(format!("{name} ({threads}, {time} of their time): {}.", shares.join(", ")))
}
