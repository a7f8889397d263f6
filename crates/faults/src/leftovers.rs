//! Things that dead tests left behind: the name contains the owner, and a thing is removed only if its owner is dead.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::{Hierarchies, remove_group};
use crate::{swap, sys};

/// The prefix of all names of a test.
pub const PREFIX: &str = "whyslow-test-";

/// A process that owns things: pid and start time, because another process may have got its pid by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pid: u32,
    started: u64,
}

impl Owner {
    /// This process.
    #[must_use]
    pub fn me() -> Self {
        let pid = std::process::id();
        Owner { pid, started: started(pid).unwrap_or(0) }
    }

    /// The name that its things carry.
    #[must_use]
    pub fn name(self) -> String {
        format!("{PREFIX}{}-{}", self.pid, self.started)
    }

    /// Parse the name of a thing.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let (pid, started) = name.strip_prefix(PREFIX)?.split_once('-')?;
        Some(Owner { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    /// Whether no living process has this pid and this start time.
    #[must_use]
    pub fn is_dead(self) -> bool {
        started(self.pid) != Some(self.started)
    }
}

/// When a process began, in clock ticks since boot.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain blanks and brackets; the fields after its last bracket do not.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Remove cgroups, swap, devices and files of dead owners. Returns the names of what was removed.
pub fn sweep(hierarchies: &Hierarchies, files: &Path) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    let roots: Vec<&Path> = hierarchies.places().iter().map(|place| place.root.as_path()).collect();
    for dir in roots.into_iter().flat_map(of_the_dead) {
        if remove_group(&dir) {
            removed.push(dir);
        }
    }
    for dir in of_the_dead(files) {
        clear(&dir);
        removed.push(dir);
    }
    removed
}

/// Remove a directory of a test, after disabling its swap.
pub fn clear(dir: &Path) {
    let entries = fs::read_dir(dir).map(|all| all.flatten().map(|e| e.path()).collect::<Vec<_>>());
    for path in entries.unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(id) = name.strip_prefix(swap::ZRAM_MARK).and_then(|id| id.parse().ok()) {
            swap::remove_zram(id);
        } else if name == swap::FILE {
            let _ = sys::swap_off(&path);
        }
    }
    let _ = fs::remove_dir_all(dir);
}

fn of_the_dead(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).map(|all| all.flatten().map(|e| e.path()).collect::<Vec<_>>());
    let mut dead = entries.unwrap_or_default();
    dead.retain(|path| {
        let owner = path.file_name().and_then(|name| Owner::of(name.to_str()?));
        // A symbolic link with our name does not belong to a test.
        owner.is_some_and(Owner::is_dead) && fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
    });
    dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_back_from_its_name() {
        let me = Owner::me();
        assert_eq!(Owner::of(&me.name()), Some(me));
        assert!(!me.is_dead());
        assert!(Owner { started: me.started + 1, ..me }.is_dead());
        assert_eq!(Owner::of("whyslow-test-12"), None);
        assert_eq!(Owner::of("somebody-12-13"), None);
    }

    #[test]
    fn only_things_of_the_dead_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let [mine, dead, other] =
            [Owner::me().name(), "whyslow-test-4194999-1".to_owned(), "whyslow".to_owned()]
                .map(|name| dir.path().join(name));
        for path in [&mine, &dead, &other] {
            fs::create_dir(path).unwrap();
        }
        fs::write(dead.join("file"), "x").unwrap();
        let removed = sweep(&Hierarchies::default(), dir.path());
        assert_eq!(removed, std::slice::from_ref(&dead));
        assert!(mine.exists() && other.exists() && !dead.exists());
    }
}
