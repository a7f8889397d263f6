//! Why is *this* slow? Where one process, cgroup or unit spent its time, and which findings concern it.
//!
//! Its tasks' times are the kernel's own (`sum_exec_runtime`, `run_delay`) and, for sleeps, the tracer's. What they leave
//! of the tasks' lifetime is said as unexplained, not hidden.

use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::{Document, Finding, Kind, Probe, Recording, Share, Subject, SubjectKind, seconds, table};

/// What the user asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Focus {
    /// A process, or one thread.
    Pid(u32),
    /// A cgroup and all below it: its path below its hierarchy's root, or where its files are.
    Cgroup(String),
    /// A systemd unit: "web" or "web.service".
    Unit(String),
}

/// The subject is not in the recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unseen {
    /// No such process.
    #[error("cannot find process {0} in the window; `ps -e` lists what runs")]
    Pid(u32),
    /// No such cgroup, or no task in it.
    #[error(
        "cannot find a task of cgroup {0} in the window; `cat /proc/PID/cgroup` names a process's cgroups"
    )]
    Cgroup(String),
    /// No such unit, or no task in it.
    #[error("cannot find a task of unit {0} in the window; `systemctl list-units` lists what runs")]
    Unit(String),
}

/// Put first, in each kind, the findings that concern `on`, and say how its tasks spent the window.
pub fn focus(rec: &Recording, doc: &mut Document, on: &Focus) -> Result<(), Unseen> {
    let circle = Circle::around(rec, on);
    let how = match &rec.tables.tasks {
        Some(all) => spent(&circle.name, all.iter().filter(|t| circle.has(t)), rec.window())
            .ok_or_else(|| on.unseen())?,
        None => {
            format!("How {} spent its time cannot be said: {}.", circle.name, rec.why_untold(Probe::TaskList))
        }
    };
    let causes: Vec<_> = doc.findings.iter().filter(|f| f.kind == Kind::Cause).collect();
    let own = causes.iter().filter(|f| circle.concerns(f)).count();
    let whose = match (own, causes.len()) {
        (_, 0) => String::new(),
        (0, _) => format!(" None of the causes below was found to concern {}.", circle.name),
        (own, all) if own == all => " All causes below concern it.".to_owned(),
        (own, all) => format!(" {own} of the {all} causes below concern it: they come first."),
    };
    doc.account.notes.insert(0, format!("{how}{whose}"));
    doc.findings.sort_by_key(|f| (f.kind, !circle.concerns(f)));
    Ok(())
}

impl Focus {
    fn unseen(&self) -> Unseen {
        match self {
            Focus::Pid(pid) => Unseen::Pid(*pid),
            Focus::Cgroup(path) => Unseen::Cgroup(path.clone()),
            Focus::Unit(unit) => Unseen::Unit(unit.clone()),
        }
    }

    /// Whether the user means this cgroup.
    fn means(&self, cgroup: &table::Cgroup) -> bool {
        match self {
            Focus::Pid(_) => false,
            Focus::Cgroup(path) => {
                let asked = path.trim_matches('/');
                cgroup.path.trim_matches('/') == asked
                    || cgroup.files.as_ref().is_some_and(|f| f.trim_matches('/') == asked)
            }
            Focus::Unit(unit) => cgroup.name == *unit || cgroup.name.strip_suffix(".service") == Some(unit),
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
    fn around(rec: &Recording, on: &Focus) -> Self {
        let cgroups = rec.tables.cgroups.as_deref().unwrap_or_default();
        let tasks = rec.tables.tasks.as_deref().unwrap_or_default();
        let below: BTreeSet<u64> = match on {
            Focus::Pid(_) => BTreeSet::new(),
            _ => inside(cgroups, on),
        };
        let members: Vec<_> = match on {
            Focus::Pid(pid) => members_of(tasks, *pid),
            _ => tasks.iter().filter(|t| groups(t).iter().any(|g| below.contains(g))).collect(),
        };
        let mut held: BTreeSet<u64> = members.iter().flat_map(|t| groups(t)).collect();
        held.extend(&below);
        let ids = with_ancestors(cgroups, held);
        let leader = members.first().map(|t| t.comm.as_str()).unwrap_or_default();
        let name = match on {
            Focus::Pid(pid) if leader.is_empty() => format!("process {pid}"),
            Focus::Pid(pid) => format!("{leader} (pid {pid})"),
            Focus::Cgroup(path) => format!("cgroup {path}"),
            Focus::Unit(unit) => format!("unit {unit}"),
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

    fn concerns(&self, finding: &Finding) -> bool {
        let Subject { kind, id, .. } = &finding.victim;
        match kind {
            SubjectKind::Task => {
                id.parse().is_ok_and(|pid| self.threads.contains(&pid) || self.processes.contains(&pid))
            }
            SubjectKind::Cgroup => self.paths.contains(id),
            _ => false,
        }
    }
}

/// The threads of process `pid`; if there is no such process, the thread of that number.
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

/// Ids of the cgroups that `on` means, and of all below them.
fn inside(cgroups: &[table::Cgroup], on: &Focus) -> BTreeSet<u64> {
    let mut ids: BTreeSet<u64> = cgroups.iter().filter(|c| on.means(c)).map(|c| c.id).collect();
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
    let rest = lived.saturating_sub(known);
    let words = ["running", "ready but not running", "waiting for I/O", "blocked", "asleep", "unexplained"];
    let shares: Vec<_> = words
        .iter()
        .zip(states.into_iter().chain([rest]))
        // What rounds to 0.0 % is left out.
        .filter(|(word, ns)| ns.saturating_mul(2000) > lived || **word == "running")
        .map(|(word, ns)| format!("{word} {}", Share::of(ns as f64, lived as f64)))
        .collect();
    let threads = if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") };
    let time = seconds(Duration::from_nanos(lived));
    Some(format!("{name} ({threads}, {time} of their time): {}.", shares.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whyslow_model::Missing;

    const S: u64 = 1_000_000_000;

    fn cgroup(id: u64, parent: u64, path: &str) -> table::Cgroup {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let files = Some(format!("/sys/fs/cgroup/cpu{path}"));
        table::Cgroup { id, parent, name, path: path.to_owned(), files, ..Default::default() }
    }

    fn task(pid: u32, tgid: u32, cpu_cgroup: u64) -> table::Task {
        let times =
            table::Task { exec_ns: 2 * S, run_delay_ns: 5 * S, sleep_ns: 2 * S, ..Default::default() };
        table::Task { pid, tgid, cpu_cgroup, comm: format!("t{pid}"), lived_ns: 10 * S, ..times }
    }

    /// Process 7 (threads 7, 8) in /a/web.service, process 9 in /b.
    fn host() -> Recording {
        let mut rec = Recording::default();
        rec.meta.window_ns = 10 * S;
        rec.tables.cgroups = Some(vec![
            cgroup(1, 0, "/"),
            cgroup(2, 1, "/a"),
            cgroup(3, 2, "/a/web.service"),
            cgroup(4, 1, "/b"),
        ]);
        rec.tables.tasks = Some(vec![task(8, 7, 3), task(7, 7, 3), task(9, 9, 4)]);
        rec
    }

    fn document(rec: &Recording) -> Document {
        let lost =
            |kind, id: &str, s| Finding::cause("r", Subject::new(kind, id, id), Duration::from_secs(s));
        let mut doc = crate::examine(rec);
        doc.findings = vec![
            lost(SubjectKind::Cgroup, "/b", 9),
            lost(SubjectKind::Cgroup, "/a", 5),
            lost(SubjectKind::Task, "8", 3),
            Finding::risk("x", Subject::host()),
        ];
        doc
    }

    fn order(doc: &Document) -> Vec<&str> {
        doc.findings.iter().map(|f| f.victim.id.as_str()).collect()
    }

    #[test]
    fn findings_of_the_subject_its_tasks_and_the_cgroups_above_come_first() {
        let rec = host();
        for on in [
            Focus::Pid(7),
            Focus::Unit("web".into()),
            Focus::Unit("web.service".into()),
            Focus::Cgroup("a/web.service/".into()),
            Focus::Cgroup("/sys/fs/cgroup/cpu/a/web.service".into()),
            Focus::Cgroup("/a".into()),
        ] {
            let mut doc = document(&rec);
            focus(&rec, &mut doc, &on).unwrap();
            assert_eq!(order(&doc), ["/a", "8", "/b", "host"], "{on:?}");
            assert!(doc.account.notes[0].contains("2 of the 3 causes"), "{:?}", doc.account.notes);
        }
    }

    #[test]
    fn a_plain_sentence_says_where_its_time_went() {
        let rec = host();
        let mut doc = document(&rec);
        focus(&rec, &mut doc, &Focus::Pid(7)).unwrap();
        let note = &doc.account.notes[0];
        let want = "t7 (pid 7) (2 tasks, 20.0 s of their time): running 20 %, ready but not running 50 %, \
                    asleep 20 %, unexplained 10 %.";
        assert!(note.starts_with(want), "{note}");
    }

    #[test]
    fn a_thread_can_be_asked_about_alone() {
        let rec = host();
        let mut doc = document(&rec);
        focus(&rec, &mut doc, &Focus::Pid(8)).unwrap();
        assert!(doc.account.notes[0].starts_with("t8 (pid 8) (1 task, 10.0 s"), "{:?}", doc.account.notes);
    }

    #[test]
    fn what_was_not_there_is_an_error_with_a_way_out() {
        let rec = host();
        for on in [Focus::Pid(99), Focus::Cgroup("/c".into()), Focus::Unit("c".into())] {
            let error = focus(&rec, &mut document(&rec), &on).unwrap_err();
            assert!(error.to_string().starts_with("cannot find"), "{error}");
        }
    }

    #[test]
    fn says_so_when_the_tasks_were_not_recorded() {
        let mut rec = host();
        rec.tables.tasks = None;
        rec.missing.push(Missing::not_recorded("task list").into());
        let mut doc = document(&rec);
        focus(&rec, &mut doc, &Focus::Unit("web".into())).unwrap();
        assert_eq!(order(&doc), ["/a", "/b", "8", "host"]);
        assert!(doc.account.notes[0].contains("cannot be said: task list was not recorded"));
    }

    #[test]
    fn a_cgroup_that_is_its_own_parent_ends() {
        let mut rec = host();
        rec.tables.cgroups = Some(vec![cgroup(3, 3, "/a"), cgroup(4, 5, "/b"), cgroup(5, 4, "/c")]);
        let mut doc = document(&rec);
        focus(&rec, &mut doc, &Focus::Cgroup("/a".into())).unwrap();
        focus(&rec, &mut doc, &Focus::Pid(9)).unwrap();
        assert_eq!(order(&doc)[0], "/b");
    }

    #[test]
    fn impossible_counters_are_not_a_panic() {
        let mut rec = host();
        for t in rec.tables.tasks.iter_mut().flatten() {
            (t.exec_ns, t.run_delay_ns, t.lived_ns) = (u64::MAX, u64::MAX, u64::MAX);
        }
        focus(&rec, &mut document(&rec), &Focus::Pid(7)).unwrap();
    }
}
