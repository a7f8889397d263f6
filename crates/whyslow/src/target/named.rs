//! Units, pods, containers and users by name: resolved from the cgroups of this host and from the files that name them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use whyslow_analyze::focus::{Focus, Picked, Unseen, pick, shortened};
use whyslow_analyze::names::Names;
use whyslow_model::Recording;
use whyslow_model::table::{Cgroup, Task};
use whyslow_probe::groups;

use super::{Target, cgroup};
use crate::suggest::suggest;

impl Target {
    /// The processes of the one unit, pod, container or user that `on` names.
    pub fn named(on: &Focus) -> Result<Self> {
        match on {
            Focus::User(_) => of_user(on),
            _ => of_groups(on),
        }
    }
}

/// Checks that exactly one subject has this name now. If whyslow cannot read which subjects exist, the check passes, and the
/// recording of the window decides.
pub fn must_be_here(on: &Focus) -> Result<()> {
    let here = match on {
        Focus::Pid(_) => return Ok(()),
        Focus::Name(name) => return called(name).map(drop),
        Focus::Cgroup(path) if cgroup::folders(path).is_empty() && cgroup::would_be_here(path) => {
            bail!("cannot find cgroup {path}; `cat /proc/PID/cgroup` names a process's cgroups")
        }
        Focus::Cgroup(_) => return Ok(()),
        Focus::User(_) => users_here(),
        _ => groups_here(on, &cgroup::all()),
    };
    let is_known = |rows: Option<usize>| rows.is_some_and(|rows| rows > 0);
    let tables = &here.tables;
    if is_known(tables.tasks.as_ref().map(Vec::len)) || is_known(tables.cgroups.as_ref().map(Vec::len)) {
        one(&here, on).context("cannot focus")?;
    }
    Ok(())
}

/// The processes of this name, by the kernel's name for them (comm): a read of a command line takes a lock of the process.
pub fn called(name: &str) -> Result<Vec<u32>> {
    let all = comms();
    let found: Vec<u32> =
        all.iter().filter(|(_, comm)| comm == shortened(name)).map(|(pid, _)| *pid).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let known: BTreeSet<&str> = all.iter().map(|(_, comm)| comm.as_str()).collect();
    let meant = suggest(name, known.iter().copied()).map(|meant| format!("did you mean {meant}? "));
    bail!("cannot find a process named {name}; {}`ps -e` lists what runs", meant.unwrap_or_default())
}

fn comms() -> Vec<(u32, String)> {
    let own = std::process::id();
    let one = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok().filter(|pid| *pid != own)?;
        let comm = fs::read(entry.path().join("comm")).ok()?;
        Some((pid, String::from_utf8_lossy(&comm).trim_end_matches('\n').to_owned()))
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(one).collect()
}

/// The meaning of a word: a number is a process id; another word is the unit of that name, else the processes of that name.
pub fn meant(word: &str) -> Focus {
    if let Ok(pid) = word.parse() {
        return Focus::Pid(pid);
    }
    let unit = Focus::Unit(word.to_owned());
    match must_be_here(&unit).is_ok() && !cgroup::all().is_empty() {
        true => unit,
        false => Focus::Name(word.to_owned()),
    }
}

/// The users that have processes.
fn users_here() -> Recording {
    let mut rec = Recording::default();
    let tasks = processes();
    let uids: BTreeSet<u32> = tasks.iter().filter_map(|task| task.uid).collect();
    rec.tables.users = Some(groups::here(std::iter::empty(), &uids).users);
    rec.tables.tasks = Some(tasks);
    rec
}

fn of_user(on: &Focus) -> Result<Target> {
    let rec = users_here();
    let picked = one(&rec, on).context("cannot attach")?;
    let is_his = |task: &&Task| task.uid.is_some() && task.uid == picked.uid;
    let pids = rec.tables.tasks.iter().flatten().filter(is_his).map(|task| task.pid).collect();
    Ok(Target { subject: picked.name, pids, ..Target::default() })
}

/// All processes, with their users.
fn processes() -> Vec<Task> {
    let own = std::process::id();
    let one = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok().filter(|pid| *pid != own)?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let uid =
            status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().next()?;
        Some(Task { pid, tgid: pid, uid: uid.parse().ok(), ..Task::default() })
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(one).collect()
}

/// Cgroups as rows, numbered from 1 in the order of `folders`, with the names of their owners.
fn groups_here(on: &Focus, folders: &[(String, PathBuf)]) -> Recording {
    let mut rec = Recording::default();
    let row = |(at, (path, _)): (usize, &(String, PathBuf))| Cgroup {
        id: at as u64 + 1,
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        path: path.clone(),
        ..Cgroup::default()
    };
    let rows: Vec<Cgroup> = folders.iter().enumerate().map(row).collect();
    // The path of a unit contains its name.
    if !matches!(on, Focus::Unit(_)) {
        let paths: BTreeSet<&str> = rows.iter().map(|row| row.path.as_str()).collect();
        rec.tables.groups = Some(groups::here(paths.into_iter(), &BTreeSet::new()).groups);
    }
    (rec.tables.cgroups, rec.tables.tasks) = (Some(rows), Some(Vec::new()));
    rec
}

fn of_groups(on: &Focus) -> Result<Target> {
    let folders = cgroup::all();
    let rec = groups_here(on, &folders);
    let picked = one(&rec, on).context("cannot attach")?;
    let is_it = |at: &usize| picked.groups.contains(&(*at as u64 + 1));
    let mut found: Vec<&(String, PathBuf)> =
        (0..folders.len()).filter(is_it).filter_map(|at| folders.get(at)).collect();
    // The topmost cgroup holds the others. Cgroups of systemd's own hierarchy come first.
    found.sort_by_key(|(path, folder)| (!folder.starts_with(cgroup::SYSTEMD), path.matches('/').count()));
    let Some((path, _)) = found.first() else { bail!("cannot attach: no cgroup is there") };
    let name = match on {
        Focus::Unit(unit) => unit.clone(),
        _ if picked.name.is_empty() => Names::of(&rec).subject(path).name,
        _ => picked.name,
    };
    let what = if matches!(on, Focus::Unit(_)) { format!("unit {name}") } else { name.clone() };
    let found: Vec<PathBuf> = found.into_iter().map(|(_, folder)| folder.clone()).collect();
    Target::folders(&what, &name, &found)
}

fn one(rec: &Recording, on: &Focus) -> Result<Picked> {
    let picked = pick(rec, on).map_err(|why| match why {
        Unseen::Nothing { what, asked, seen } => anyhow!(nobody(what, &asked, &seen)),
        why => anyhow!("{why}"),
    })?;
    picked.ok_or_else(|| anyhow!("no name is given"))
}

/// The reason of an error: "no pod here is called web-7; there are web-0, web-1".
fn nobody(what: &str, asked: &str, seen: &str) -> String {
    let who = match what {
        _ if asked.is_empty() => return format!("the name of the {what} is empty"),
        "user" => format!("no process here belongs to user {asked}"),
        _ => format!("no {what} here is called {asked}"),
    };
    if seen.is_empty() {
        format!("{who}; whyslow finds no {what} here")
    } else {
        format!("{who}; there are {seen}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_a_process_and_another_word_its_processes_that_must_be_here() {
        assert_eq!(meant("4242"), Focus::Pid(4242));
        let word = "no-such-word-here";
        assert_eq!(meant(word), Focus::Name(word.to_owned()));
        let missed = called(word).unwrap_err().to_string();
        assert!(missed.starts_with("cannot find a process named no-such-word-here; "), "{missed}");
        let first = fs::read_to_string("/proc/1/comm").unwrap();
        assert!(called(first.trim_end()).unwrap().contains(&1), "{first}");
    }

    #[test]
    fn attach_error_says_which_target_is_missing_and_which_users_exist() {
        let said = |on| format!("{:#}", Target::named(&on).unwrap_err());
        let user = said(Focus::User("no such user".into()));
        assert!(
            user.starts_with("cannot attach: no process here belongs to user no such user; there are "),
            "{user}"
        );
        let pod = said(Focus::Pod("no-such-pod".into()));
        assert!(pod.starts_with("cannot attach: no pod here is called no-such-pod"), "{pod}");
        let empty = said(Focus::Container(String::new()));
        assert!(empty.starts_with("cannot attach: the name of the container is empty"), "{empty}");
    }

    #[test]
    fn lookup_error_wording_fits_kind_name_and_known_subjects() {
        assert_eq!(nobody("pod", "x", ""), "no pod here is called x; whyslow finds no pod here");
        assert_eq!(nobody("pod", "x", "a, b"), "no pod here is called x; there are a, b");
        assert_eq!(nobody("user", "x", "root (0)"), "no process here belongs to user x; there are root (0)");
        assert_eq!(nobody("unit", "", "/a.service"), "the name of the unit is empty");
    }

    #[test]
    fn unknown_user_is_refused_before_the_window() {
        let said = |on| format!("{:#}", must_be_here(&on).unwrap_err());
        let user = said(Focus::User("no such user".into()));
        assert!(user.starts_with("cannot focus: no process here belongs to user no such user; "), "{user}");
        must_be_here(&Focus::Pid(1)).unwrap();
        // SAFETY: takes nothing, cannot fail.
        let uid = unsafe { libc::getuid() };
        let sleeper = std::process::Command::new("sleep").arg("30").spawn();
        let mut sleeper = sleeper.expect("sleep(1) is everywhere");
        let known = must_be_here(&Focus::User(uid.to_string()));
        let _ = sleeper.kill();
        let _ = sleeper.wait();
        known.unwrap();
    }

    #[test]
    fn the_processes_of_a_user_are_those_with_his_number() {
        let sleeper = std::process::Command::new("sleep").arg("30").spawn();
        let mut sleeper = sleeper.expect("sleep(1) is everywhere");
        // SAFETY: takes nothing, cannot fail.
        let uid = unsafe { libc::getuid() };
        let target = Target::named(&Focus::User(uid.to_string()));
        let _ = sleeper.kill();
        let _ = sleeper.wait();
        let target = target.unwrap();
        assert!(target.pids.contains(&sleeper.id()) && target.subject.starts_with("user "), "{target:?}");
        assert!(!target.pids.contains(&std::process::id()), "not ourselves");
    }
}
