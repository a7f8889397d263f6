//! A cgroup as people call it: from its path to a systemd unit, a container, a pod. Tasks together: by their processes.
//!
//! The path itself stays the id, as raw as the kernel gave it; what is unsafe to print is escaped by who prints.

use std::collections::BTreeMap;

use whyslow_model::table::{Cgroup, Task};
use whyslow_model::{Share, Subject, SubjectKind};

/// Container ids are 64 hex digits; this many tell them apart, and fit in a line.
const ID_SHOWN: usize = 12;

/// What a path says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    unit: Option<String>,
    container: Option<String>,
    pod: Option<String>,
    /// What lies below the unit or container: "/init".
    below: String,
}

/// The cgroup as a victim.
#[must_use]
pub fn cgroup_subject(cgroup: &Cgroup) -> Subject {
    subject(&cgroup.path)
}

/// The cgroup at `path` (below its hierarchy's root) as a victim.
#[must_use]
pub fn subject(path: &str) -> Subject {
    let known = known(path);
    let container = match (&known.pod, &known.container) {
        (Some(pod), Some(id)) => Some(format!("pod {pod}, container {id}")),
        (Some(pod), None) => Some(format!("pod {pod}")),
        (None, id) => id.clone(),
    };
    let name = match container.as_ref().or(known.unit.as_ref()) {
        Some(name) => format!("{name}{}", known.below),
        None if path == "/" || path.is_empty() => "the root cgroup".to_owned(),
        None => path.to_owned(),
    };
    Subject { unit: known.unit, container, ..Subject::new(SubjectKind::Cgroup, path, name) }
}

/// So many tasks of somebody, as one says it; how many is not said where none noticed.
#[must_use]
pub fn tasks_of(tasks: u64, whose: &str) -> String {
    match tasks {
        0 => format!("tasks of {whose}"),
        1 => format!("1 task of {whose}"),
        _ => format!("{tasks} tasks of {whose}"),
    }
}

/// Processes that are named; what more there are is counted.
const NAMED: usize = 3;

/// What must change beside that which a title is about: "; those of a, b and 4998 others must change with it".
pub fn must_change(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("; that of {one} must change with it"),
        [others @ .., last] if others.len() <= NAMED => {
            format!("; those of {} and {last} must change with it", others.join(", "))
        }
        _ => {
            let (named, others) = names.split_at(NAMED);
            format!("; those of {} and {} others must change with it", named.join(", "), others.len())
        }
    }
}

/// Those of `tasks` (by place) that have a part in something, by their processes: the one with the largest part first, each
/// with its share. One with the least part may be the first by any other order. `None`: nobody has one.
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
    // Threads have names of their own: a process is called after its first.
    let name = |tgid: u32, most: &Task| {
        let leader = tasks.iter().find(|task| task.pid == tgid && task.tgid == tgid);
        leader.map_or_else(|| most.comm.clone(), |task| task.comm.clone())
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

/// Reads the path from its root down: what is named deeper wins, and slices count only if nothing else is known.
fn known(path: &str) -> Known {
    let mut known = Known::default();
    let mut slice = None;
    let mut above = "";
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if let Some(pod) = pod(part) {
            known = Known { pod: Some(pod), ..Known::default() };
        } else if let Some(container) = container(above, part) {
            known.container = Some(container);
            known.unit = None;
            known.below.clear();
        } else if part.ends_with(".slice") {
            if known.pod.is_none() {
                known = Known::default();
                slice = Some(unescaped(part));
            }
        } else if is_unit(part) && known.container.is_none() {
            known.unit = Some(unescaped(part));
            known.below.clear();
        } else if known != Known::default() {
            known.below = format!("{}/{part}", known.below);
        }
        above = part;
    }
    if known == Known::default() && path.ends_with(".slice") {
        known.unit = slice;
    }
    known
}

fn is_unit(part: &str) -> bool {
    [".service", ".scope", ".socket", ".mount", ".swap", ".timer"].iter().any(|kind| part.ends_with(kind))
}

/// `kubepods-burstable-pod<uid>.slice` (systemd driver; "_" for "-") or `pod<uid>` (cgroupfs driver).
fn pod(part: &str) -> Option<String> {
    let uid = match part.strip_suffix(".slice") {
        Some(slice) => slice.strip_prefix("kubepods")?.rsplit_once("-pod")?.1.replace('_', "-"),
        None => part.strip_prefix("pod")?.to_owned(),
    };
    let is_uid = uid.len() >= 32 && uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_uid.then_some(uid)
}

/// A container by its own name (`docker-<id>.scope`) or by the name and the folder above it (`/docker/<id>`).
fn container(above: &str, part: &str) -> Option<String> {
    const ENGINES: [(&str, &str); 9] = [
        ("docker-", "docker"),
        ("cri-containerd-", "containerd"),
        ("containerd-", "containerd"),
        ("nerdctl-", "containerd"),
        ("crio-conmon-", "cri-o monitor"),
        ("crio-", "cri-o"),
        ("libpod-conmon-", "podman monitor"),
        ("libpod-payload-", "podman"),
        ("libpod-", "podman"),
    ];
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    let engine =
        ENGINES.iter().find_map(|(prefix, engine)| Some((*engine, short_id(scope.strip_prefix(prefix)?)?)));
    if let Some((engine, id)) = engine {
        return Some(format!("{engine} {id}"));
    }
    if let Some(machine) = part.strip_suffix(".scope").and_then(|p| p.strip_prefix("machine-")) {
        return Some(format!("machine {}", unescaped(machine)));
    }
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return Some(format!("lxc {name}"));
    }
    match above {
        "lxc" => Some(format!("lxc {part}")),
        "docker" | "kubepods" | "burstable" | "besteffort" => Some(format!("docker {}", short_id(part)?)),
        _ if pod(above).is_some() => short_id(part),
        // ECS: /ecs/<task>/<id>; others keep ids below folders of their own.
        _ => (part.len() == 64).then(|| short_id(part)).flatten(),
    }
}

fn short_id(id: &str) -> Option<String> {
    let is_id = id.len() >= ID_SHOWN && id.bytes().all(|b| b.is_ascii_hexdigit());
    if is_id { id.get(..ID_SHOWN).map(str::to_owned) } else { None }
}

/// systemd writes bytes that it cannot have in a unit's name as `\x2d`. What is no such escape stays.
fn unescaped(name: &str) -> String {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("\\x") {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        match escape.get(2..4).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = escape.get(4..).unwrap_or_default();
            }
            None => {
                out.extend_from_slice(b"\\x");
                rest = escape.get(2..).unwrap_or_default();
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out).unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn named(path: &str) -> (String, Option<String>, Option<String>) {
        let subject = subject(path);
        assert_eq!(subject.id, path, "the id stays the path");
        (subject.name, subject.unit, subject.container)
    }

    fn unit(path: &str, want: &str) {
        assert_eq!(named(path), (want.to_owned(), Some(want.to_owned()), None), "{path}");
    }

    fn container(path: &str, want: &str) {
        assert_eq!(named(path), (want.to_owned(), None, Some(want.to_owned())), "{path}");
    }

    #[test]
    fn units_of_the_system_and_of_users() {
        unit("/system.slice/nginx.service", "nginx.service");
        unit("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service");
        unit("/user.slice/user-1000.slice/session-5.scope", "session-5.scope");
        unit(
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox.service",
            "app-firefox.service",
        );
        unit("/user.slice/user-1000.slice", "user-1000.slice");
        unit(r"/system.slice/dev-disk-by\x2dlabel-SWAP.swap", "dev-disk-by-label-SWAP.swap");
        assert_eq!(named("/system.slice/ssh.service/inner").0, "ssh.service/inner");
    }

    #[test]
    fn containers_of_every_engine() {
        container(&format!("/system.slice/docker-{ID}.scope"), "docker 0123456789ab");
        container(&format!("/docker/{ID}"), "docker 0123456789ab");
        container(&format!("/machine.slice/libpod-{ID}.scope"), "podman 0123456789ab");
        container(&format!("/system.slice/crio-{ID}.scope"), "cri-o 0123456789ab");
        container(r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", "machine qemu-1-web");
        container("/lxc/web1", "lxc web1");
        container("/lxc.payload.web1", "lxc web1");
        container(&format!("/ecs/3c1f/{ID}"), "0123456789ab");
        assert_eq!(named(&format!("/docker/{ID}/init")).0, "docker 0123456789ab/init");
        let nested = format!("/system.slice/docker-{ID}.scope/system.slice/nginx.service");
        assert_eq!(named(&nested).1.as_deref(), Some("nginx.service"), "a container that runs systemd");
    }

    #[test]
    fn pods_of_both_drivers() {
        let uid = "11111111_2222_3333_4444_555555555555";
        let pod = "11111111-2222-3333-4444-555555555555";
        let systemd = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
        container(&systemd, &format!("pod {pod}"));
        let full = format!("pod {pod}, container containerd 0123456789ab");
        container(&format!("{systemd}/cri-containerd-{ID}.scope"), &full);
        let cgroupfs = format!("/kubepods/burstable/pod{pod}/{ID}");
        container(&cgroupfs, &format!("pod {pod}, container 0123456789ab"));
    }

    #[test]
    fn other_paths_are_their_own_names() {
        for path in ["/web", "/jobs/a b", "/podcast", "/docker/not-an-id", "/a\nb\x1b[31m"] {
            assert_eq!(named(path), (path.to_owned(), None, None));
        }
        assert_eq!(named("/").0, "the root cgroup");
    }

    fn task(pid: u32, tgid: u32, comm: &str) -> Task {
        Task { pid, tgid, comm: comm.into(), ..Task::default() }
    }

    /// One thread of 19 is a process of its own; the others are a pool, which has nearly all.
    #[test]
    fn processes_are_named_by_their_shares() {
        let mut tasks = vec![task(5, 5, "vilamogu79")];
        tasks.extend((0..18).map(|n| task(7 + n, 7, if n == 0 { "pool" } else { "worker" })));
        let of =
            |part: fn(usize) -> u64| processes(&tasks, (0..tasks.len()).map(|at| (at, part(at)))).unwrap();
        let all = of(|_| 10);
        assert_eq!((all.id.as_str(), all.name.as_str()), ("7", "pool (95 %) and vilamogu79 (5 %)"));
        assert_eq!(processes(&tasks, [(3, 1), (2, 1)]).unwrap().name, "pool", "one process needs no share");
        assert_eq!(of(|at| if at == 0 { 90 } else { 1 }).id, "5");
        assert_eq!(processes(&tasks, [(99, 1)]), None);
    }

    #[test]
    fn of_many_processes_the_largest_are_named_and_the_others_counted() {
        let tasks: Vec<Task> = (1..=7).map(|n| task(n, n, &format!("p{n}"))).collect();
        let parts = |n: usize| processes(&tasks, (0..n).map(|at| (at, at as u64 + 1))).unwrap().name;
        assert_eq!(parts(3), "p3 (50 %), p2 (33 %) and p1 (17 %)");
        assert_eq!(parts(4), "p4 (40 %), p3 (30 %), p2 (20 %) and 1 other process");
        assert!(parts(7).ends_with("and 4 other processes"), "{}", parts(7));
        let nothing = processes(&tasks, [(0, 0), (1, 0)]).unwrap();
        assert_eq!((nothing.id.as_str(), nothing.name.as_str()), ("1", "p1 and p2"));
        // The leader has ended: its busiest thread's name is all there is.
        assert_eq!(processes(&[task(9, 8, "a"), task(10, 8, "b")], [(0, 1), (1, 2)]).unwrap().name, "b");
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescaped(r"a\x2"), r"a\x2");
        assert_eq!(unescaped(r"a\xzz\x2db"), r"a\xzz-b");
        assert_eq!(unescaped(r"\xff"), r"\xff", "half a character is no name");
        assert_eq!(unescaped("\\x\u{e9}x"), "\\x\u{e9}x");
    }
}
