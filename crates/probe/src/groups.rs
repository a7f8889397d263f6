//! Which names do the owners of cgroups give them? Pods, containers, units, sessions and machines are looked up in files on disk: no
//! socket is opened, and no daemon is asked.
//!
//! Read once, after the window, by a disposable child: a disk may hang. Files in memory (/run) come first; home folders come last,
//! because they may be on another host. The names that were found before the deadline are kept. A name is taken only from a file
//! that itself says which cgroup it belongs to.

mod containers;
mod disk;
mod found;
mod login;
#[cfg(test)]
mod tests;
mod unit;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_model::cgroup_path::CgroupPath;
use whyslow_model::table::{Group, Tables, User};
use whyslow_model::{Missing, MissingNote};

use crate::child;
use crate::pid_map::Scope;
use containers::Containers;
use disk::Disk;
use login::Account;
use units::Units;

/// The time for reading: 1,000 names take 20 ms from memory; from a cold disk some 50 files can be read in it.
const DEADLINE: Duration = Duration::from_millis(400);
/// The child's answer is cut here: 32,768 groups with 500 bytes each.
const MAX_ANSWER: usize = 16 << 20;
/// The most that is read of a small file: of the account file, too, where there are many users.
const SMALL: usize = 1 << 20;
/// The name of the missing note.
const WHAT: &str = "names of pods and containers";

/// A cgroup, what its path says, and what was found about it so far.
struct PendingGroup {
    known: CgroupPath,
    group: Group,
}

impl PendingGroup {
    fn at(path: &str) -> Self {
        let group = Group { path: path.to_owned(), ..Group::default() };
        PendingGroup { known: CgroupPath::of(path), group }
    }
}

/// One line of the child's answer. If a path comes twice, the last line counts.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Group(Box<Group>),
    User(User),
    /// There was more to read than is allowed.
    RanOut,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Named {
    /// Groups that have a name.
    pub groups: Vec<Group>,
    /// Users that were requested.
    pub users: Vec<User>,
    /// Everything was read.
    pub is_whole: bool,
}

/// Fills the tables of groups and users.
pub(crate) fn note(root: &Path, tables: &mut Tables, missing: &mut Vec<MissingNote>) {
    let Some(cgroups) = &tables.cgroups else { return };
    let paths: BTreeSet<&str> = cgroups.iter().map(|group| group.path.as_str()).collect();
    let contained =
        |path: &&&str| CgroupPath::of(path).container.is_some_and(|container| !container.is_monitor);
    let contained: Vec<&str> = paths.iter().filter(contained).copied().collect();
    if is_elsewhere(root) {
        if !contained.is_empty() {
            missing.push(
                Missing::skipped(WHAT, "the files with these names are on the host, not in this container")
                    .into(),
            );
        }
        return;
    }
    let uids = tables.tasks.iter().flatten().filter_map(|task| task.uid).collect();
    let named = read(root, paths.iter().copied(), &uids);
    let has_name = |path: &&str| {
        named
            .groups
            .iter()
            .any(|group| group.path == **path && (group.container.is_some() || group.machine.is_some()))
    };
    if !named.is_whole && !contained.iter().all(has_name) {
        let reason = format!("not all files were read within {} ms", DEADLINE.as_millis());
        missing.push(Missing::skipped(WHAT, reason).into());
    }
    (tables.groups, tables.users) = (Some(named.groups), Some(named.users));
}

/// In a container the tasks and cgroups are those of the host, but the files may be the container's: their names belong to other groups.
/// That is the case in a pid namespace, and where the first process has another root.
fn is_elsewhere(root: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    if matches!(Scope::of(root), Scope::Own { .. }) {
        return true;
    }
    let place = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let first = place(&root.join("proc/1/root/."));
    first.is_some() && first != place(root)
}

/// The names of cgroups and users of this machine.
#[must_use]
pub fn here<'p>(paths: impl Iterator<Item = &'p str>, uids: &BTreeSet<u32>) -> Named {
    let root = Path::new("/");
    if is_elsewhere(root) { Named::default() } else { read(root, paths, uids) }
}

/// The names of these cgroups and users. A file that cannot be read gives none.
fn read<'p>(root: &Path, paths: impl Iterator<Item = &'p str>, uids: &BTreeSet<u32>) -> Named {
    let asked: Vec<PendingGroup> = paths.map(PendingGroup::at).collect();
    let Ok(told) = child::run(DEADLINE, MAX_ANSWER, |out| search(root, asked, uids, out)) else {
        return Named::default();
    };
    heard(&told.bytes, told.finished)
}

/// Parses the child's answer.
fn heard(bytes: &[u8], finished: bool) -> Named {
    let mut named = Named { is_whole: finished, ..Named::default() };
    let mut groups = BTreeMap::new();
    // The last line of a killed child may be incomplete.
    for line in bytes.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Line::Group(group)) => drop(groups.insert(group.path.clone(), *group)),
            Ok(Line::User(user)) => named.users.push(user),
            Ok(Line::RanOut) => named.is_whole = false,
            Err(_) => {}
        }
    }
    named.groups = groups.into_values().collect();
    named
}

/// Where names may be, in the order of the search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// /run: memory.
    Memory,
    /// /etc, /usr, /var.
    Disk,
    /// Home folders.
    Homes,
}

fn search(root: &Path, mut asked: Vec<PendingGroup>, uids: &BTreeSet<u32>, out: &mut dyn Write) {
    let disk = Disk::below(root);
    let mut told = vec![Group::default(); asked.len()];
    let mut accounts: Vec<Account> = Vec::new();
    let (mut containers, mut units) = (Containers::default(), Units::default());
    for place in [Place::Memory, Place::Disk, Place::Homes] {
        if place == Place::Disk {
            accounts = login::accounts(&disk.read("etc/passwd", SMALL).unwrap_or_default());
            tell_users(&accounts, uids, out);
        }
        containers.look(&disk, place, &accounts, &mut asked);
        units.look(&disk, place, &accounts, &mut asked);
        for (one, told) in asked.iter().zip(&mut told) {
            if one.group != *told && !one.group.is_nameless() {
                told.clone_from(&one.group);
                tell(&Line::Group(Box::new(one.group.clone())), out);
            }
        }
    }
    if disk.ran_out() {
        tell(&Line::RanOut, out);
    }
}

fn tell_users(accounts: &[Account], uids: &BTreeSet<u32>, out: &mut dyn Write) {
    for account in accounts.iter().filter(|account| uids.contains(&account.uid)) {
        tell(&Line::User(User { uid: account.uid, name: account.name.clone() }), out);
    }
}

fn tell(line: &Line, out: &mut dyn Write) {
    // If the parent is gone, nothing reads the line: the error does not matter.
    if let Ok(mut text) = serde_json::to_vec(line) {
        text.push(b'\n');
        let _ = out.write_all(&text);
    }
}
