//! Names of cgroups as their owners know them: pod and container, unit, login session or machine; a cgroup without such a name is named by the
//! first command of its tree. A path alone is the last resort. Tasks together are named by their processes.
//!
//! In one report each cgroup has one name: [`Names`] makes them all, from its path, from the table of groups and from its tasks.
//! The path itself stays the id, as raw as the kernel gave it; the code that prints it escapes what is unsafe to print.

mod first;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use whyslow_model::cgroup_path::CgroupPath;
use whyslow_model::table::{Cgroup, Group, Task};
use whyslow_model::{Recording, Share, Subject, SubjectKind};

use crate::MAX_DEPTH;
use crate::broods::Life;
use crate::hashing::Table;
use crate::{Evidence, process_names};
use first::First;

/// The names of a recording's cgroups.
#[derive(Debug, Default)]
pub struct Names<'r> {
    groups: Table<&'r str, &'r Group>,
    /// By the container's id, for paths that have no row.
    containers: Table<&'r str, &'r Group>,
    /// By the pod's uid.
    pods: Table<&'r str, &'r Group>,
    first: First<'r>,
}

impl<'r> Names<'r> {
    /// The names in `rec`.
    #[must_use]
    pub fn of(rec: &'r Recording) -> Self {
        let rows = rec.tables.groups.as_deref().unwrap_or_default();
        let named = |key: fn(&'r Group) -> Option<&'r String>| {
            rows.iter().filter_map(|row| Some((key(row)?.as_str(), row))).collect()
        };
        Names {
            groups: named(|row| Some(&row.path)),
            containers: named(|row| row.container_id.as_ref()),
            pods: named(|row| row.pod_uid.as_ref().filter(|_| row.pod.is_some())),
            first: First::of(rec),
        }
    }

    /// The cgroup as a victim.
    #[must_use]
    pub fn cgroup(&self, cgroup: &Cgroup) -> Subject {
        self.subject(&cgroup.path)
    }

    /// The cgroup at `path` (below its hierarchy's root) as a victim.
    #[must_use]
    pub fn subject(&self, path: &str) -> Subject {
        let known = CgroupPath::of(path);
        let group = self.group(path, &known);
        let of = |field: fn(&'r Group) -> Option<&'r String>| group.and_then(field).cloned();
        let pod = group.and_then(Group::full_pod).or_else(|| known.pod.clone());
        let container = container(&known, group).map(|container| match &pod {
            Some(pod) => format!("pod {pod}, {container}"),
            None => container,
        });
        let container = container.or_else(|| pod.as_ref().map(|pod| format!("pod {pod}")));
        let unit = unit(&known, group);
        let whole = match (&container, &unit) {
            (Some(container), Some(unit)) => Some(format!("{unit} in {container}")),
            (container, unit) => container.clone().or_else(|| unit.clone()),
        };
        let name = match whole {
            Some(name) => format!("{name}{}", known.below),
            None if path == "/" || path.is_empty() => "the root cgroup".to_owned(),
            None => match self.first.of_tree(path) {
                Some((pid, comm)) => format!("the cgroup of {comm} (pid {pid}): {path}"),
                None => path.to_owned(),
            },
        };
        Subject {
            unit: known.unit,
            description: of(|group| group.description.as_ref()),
            container,
            pod,
            image: of(|group| group.image.as_ref()),
            ..Subject::new(SubjectKind::Cgroup, path, name)
        }
    }

    /// The row of a path; if it has none, the row of the container or pod that holds it.
    pub(crate) fn group(&self, path: &str, known: &CgroupPath) -> Option<&'r Group> {
        let by_path = || {
            let above =
                std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(above, _)| above));
            let holder = CgroupPath { below: String::new(), ..known.clone() };
            let is_same = |path: &&str| CgroupPath { below: String::new(), ..CgroupPath::of(path) } == holder;
            above.take_while(is_same).take(MAX_DEPTH).find_map(|path| self.groups.get(path).copied())
        };
        let container = || self.containers.get(known.container.as_ref()?.id.as_str()).copied();
        let pod = || self.pods.get(known.pod.as_deref()?).copied().filter(|_| known.container.is_none());
        self.groups.get(path).copied().or_else(by_path).or_else(container).or_else(pod)
    }
}

/// The container alone.
fn container(known: &CgroupPath, group: Option<&Group>) -> Option<String> {
    if let Some(machine) = group.and_then(|group| group.machine.as_ref()) {
        return Some(format!("machine {machine}"));
    }
    let is = known.container.as_ref()?;
    let monitor = if is.is_monitor { "monitor " } else { "" };
    let named = group.filter(|group| group.container_id.as_ref() == Some(&is.id));
    if let Some(name) = named.and_then(|group| group.container.as_ref()) {
        let of = if is.is_monitor { "of " } else { "" };
        return Some(format!("{monitor}{of}container {name}"));
    }
    let id = is.short();
    let engine = is.engine.map(|engine| format!("{engine} {monitor}")).unwrap_or_default();
    Some(if known.pod.is_some() { format!("container {engine}{id}") } else { format!("{engine}{id}") })
}

/// The unit, unless its owner has a better name: for a session the user who is logged in, for a slice its user.
fn unit(known: &CgroupPath, group: Option<&Group>) -> Option<String> {
    let unit = known.unit.clone()?;
    if known.container.is_some() {
        return Some(unit);
    }
    let machine = group.is_some_and(|group| group.machine.is_some());
    let Some((group, user)) = group.and_then(|group| Some((group, group.user.as_ref()?))) else {
        return Some(unit).filter(|_| !machine);
    };
    if let Some(session) = &group.session {
        let tty = group.tty.as_ref().map(|tty| format!(" on {tty}"));
        let from = || group.remote_host.as_ref().map(|host| format!(" from {host}"));
        return Some(format!("session {session} of {user}{}", tty.or_else(from).unwrap_or_default()));
    }
    match known.uid {
        Some(uid) if unit == format!("user-{uid}.slice") => Some(format!("user {user}")),
        Some(_) if known.of_user => Some(format!("{unit} of {user}")),
        _ => Some(unit),
    }
}

/// This many tasks of an owner, in words; without a number if none lost noticeably.
#[must_use]
pub fn tasks_of(tasks: u64, whose: &str) -> String {
    match tasks {
        0 => format!("tasks of {whose}"),
        1 => format!("1 task of {whose}"),
        _ => format!("{tasks} tasks of {whose}"),
    }
}

/// Processes that are named; the processes beyond them are counted.
const NAMED: usize = 3;

/// "a, b and c"; of a long list the rest is counted.
#[must_use]
pub fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., last] if others.len() <= NAMED => format!("{} and {last}", others.join(", ")),
        _ => {
            let (named, others) = names.split_at(NAMED);
            format!("{} and {} others", named.join(", "), others.len())
        }
    }
}

/// What must change beside the subject of a title: "; those of a, b and 4998 others must change with it".
pub fn must_change(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("; that of {one} must change with it"),
        _ => format!("; those of {} must change with it", listed(names)),
    }
}

/// The `tasks` (by place) with a part in something, named by their processes: the one with the largest part first, each
/// with its share. Any other order could begin with the one that has the least part. `None`: no task has a part.
#[must_use]
pub fn processes(tasks: &[Task], parts: impl IntoIterator<Item = (usize, u64)>) -> Option<Subject> {
    let mut by_process: BTreeMap<u32, (u64, u64, &Task)> = BTreeMap::new();
    for (task, part) in parts.into_iter().filter_map(|(at, part)| Some((tasks.get(at)?, part))) {
        let sum = by_process.entry(task.tgid).or_insert((0, 0, task));
        let most = if part > sum.1 { (part, task) } else { (sum.1, sum.2) };
        *sum = (sum.0.saturating_add(part), most.0, most.1);
    }
    let whole = by_process.values().map(|(part, ..)| *part as f64).sum::<f64>();
    let mut sorted: Vec<(u32, u64, &Task)> =
        by_process.into_iter().map(|(id, (sum, _, task))| (id, sum, task)).collect();
    sorted.sort_by_key(|(tgid, part, _)| (std::cmp::Reverse(*part), *tgid));
    let id = sorted.first()?.0;
    // Threads have names of their own: a process is named after its first thread.
    let name = |tgid: u32, most: &Task| {
        let leader = tasks.iter().find(|task| task.pid == tgid && task.tgid == tgid);
        leader.map_or_else(|| most.comm.clone(), process_names::of_row)
    };
    let one = |(tgid, part, most): &(u32, u64, &Task)| {
        let share =
            if whole > 0.0 { format!(" ({})", Share::of(*part as f64, whole)) } else { String::new() };
        format!("{}{share}", name(*tgid, most))
    };
    let named = match &sorted[..] {
        [(tgid, _, most)] => name(*tgid, most),
        all => {
            let mut words: Vec<String> = all.iter().take(NAMED).map(one).collect();
            match all.len().saturating_sub(NAMED) {
                0 => {}
                1 => words.push("1 other process".to_owned()),
                others => words.push(format!("{others} other processes")),
            }
            let last = words.pop().unwrap_or_default();
            format!("{} and {last}", words.join(", "))
        }
    };
    Some(Subject::new(SubjectKind::Task, id.to_string(), named))
}

/// A part as large as this counts as all.
const NEARLY_ALL: f64 = 0.9;

/// The same for tasks that use what others want: short-lived commands are named by the process that starts them.
#[must_use]
pub(crate) fn culprits(
    ev: &Evidence<'_>,
    tasks: &[Task],
    parts: impl IntoIterator<Item = (usize, u64)>,
) -> Option<Subject> {
    let parts: Vec<(usize, u64)> = parts.into_iter().collect();
    let broods = ev.broods();
    let brood_of = |at: usize| broods.of_task(tasks.get(at)?).filter(|brood| brood.tgid != 0);
    let mut by_brood: BTreeMap<Life, (u64, usize)> = BTreeMap::new();
    for (brood, part) in parts.iter().filter_map(|(at, part)| Some((brood_of(*at)?, part))) {
        let sum = by_brood.entry(brood.life).or_default();
        *sum = (sum.0.saturating_add(*part), sum.1 + 1);
    }
    let whole = parts.iter().map(|(_, part)| *part as f64).sum::<f64>();
    let all = by_brood.iter().find(|(_, (part, many))| *many > NAMED && *part as f64 >= NEARLY_ALL * whole);
    let brood = all
        .and_then(|(life, _)| parts.iter().find_map(|(at, _)| brood_of(*at).filter(|one| one.life == *life)));
    match brood {
        Some(brood) => Some(Subject::new(SubjectKind::Task, brood.tgid.to_string(), brood.together())),
        None => processes(tasks, parts),
    }
}
