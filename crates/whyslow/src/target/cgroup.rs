//! Cgroups by name: their folders, their processes, their ids in the kernel.
//!
//! Only directories and cgroup.procs are read: no lock is held for long that other processes wait for.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder where all distributions mount the hierarchies.
const USUAL: &str = "/sys/fs/cgroup";
/// At most so many cgroups are read. On a host with more, the user gives the folder.
const MOST: usize = 200_000;
/// The number of a v1 hierarchy is in a file that takes cgroup_mutex before Linux 6.7: whyslow waits no longer than this for it.
const PATIENCE: Duration = Duration::from_millis(250);

/// The folders that `path` means, one per hierarchy.
pub fn folders(path: &str) -> Vec<PathBuf> {
    let below = path.trim_start_matches('/');
    let named = [PathBuf::from(path), Path::new("/").join(below)];
    if let Some(folder) = named.into_iter().find(|folder| folder.starts_with(USUAL) && is_cgroup(folder)) {
        return vec![folder];
    }
    roots().into_iter().map(|root| root.join(below)).filter(|folder| is_cgroup(folder)).collect()
}

/// Whether a cgroup of this path would have a folder here. In a container only its own cgroups have folders, while /proc may name
/// cgroups of the host. A whole hierarchy is known by its root: in v1 only the root has release_agent, in v2 only the root has no
/// cgroup.events (kernel/cgroup/cgroup*.c).
pub fn would_be_here(path: &str) -> bool {
    let is_whole = |root: PathBuf| match magic(&root) {
        Some(libc::CGROUP2_SUPER_MAGIC) => !root.join("cgroup.events").exists(),
        _ => root.join("release_agent").exists(),
    };
    let mut roots = roots().into_iter().peekable();
    path.starts_with("/sys/") || roots.peek().is_some() && roots.all(is_whole)
}

/// Where systemd keeps its units on v1; other hierarchies mirror parts of it.
pub const SYSTEMD: &str = "/sys/fs/cgroup/systemd";

/// All cgroups of all hierarchies: their paths below the roots, and their folders.
pub fn all() -> Vec<(String, PathBuf)> {
    let path = |root: &Path, folder: &Path| {
        let below = folder.strip_prefix(root).ok()?.to_str()?.to_owned();
        Some(format!("/{below}"))
    };
    let of_root = |root: &PathBuf| {
        let folders = below(root).into_iter();
        folders.filter_map(|folder| Some((path(root, &folder)?, folder))).collect::<Vec<_>>()
    };
    roots().iter().flat_map(of_root).collect()
}

/// The processes of a cgroup and of the cgroups below it.
pub fn processes(folder: &Path) -> Vec<u32> {
    // In a threaded cgroup the kernel refuses the read; the domain cgroup above lists its processes.
    let read = |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let groups = below(folder);
    // 0 stands for a process of another pid namespace.
    groups
        .iter()
        .flat_map(|g| read(g).lines().filter_map(|l| l.parse().ok()).collect::<Vec<u32>>())
        .filter(|p| *p != 0)
        .collect()
}

/// `Cgroup::id`: the kernfs id, which is the inode number, with the hierarchy's number in the top byte.
pub fn id(folder: &Path) -> Option<u64> {
    let hierarchy = if magic(folder)? == libc::CGROUP2_SUPER_MAGIC { 0 } else { hierarchy(folder)? };
    let inode = fs::metadata(folder).ok()?.ino();
    Some(hierarchy << 56 | inode & 0x00ff_ffff_ffff_ffff)
}

/// The number of the v1 hierarchy that `folder` is in.
fn hierarchy(folder: &Path) -> Option<u64> {
    let root = roots().into_iter().find(|root| folder.starts_with(root))?;
    let root = fs::canonicalize(root).ok()?;
    let name = root.file_name()?.to_str()?;
    let reported = whyslow_probe::child::run(PATIENCE, 1 << 16, |out| {
        let _ = out.write_all(&fs::read("/proc/self/cgroup").unwrap_or_default());
    });
    number_of(name, &String::from_utf8_lossy(&reported.ok()?.bytes))
}

/// From /proc/PID/cgroup: "4:cpu,cpuacct:/web", "1:name=systemd:/".
fn number_of(name: &str, text: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, _) = rest.split_once(':')?;
        let is_it = controllers == name
            || controllers.strip_prefix("name=") == Some(name)
            || controllers.split(',').any(|controller| controller == name);
        let number: u8 = number.parse().ok()?;
        is_it.then_some(number.into())
    })
}

/// The roots of all mounted hierarchies.
fn roots() -> Vec<PathBuf> {
    if magic(Path::new(USUAL)) == Some(libc::CGROUP2_SUPER_MAGIC) {
        return vec![USUAL.into()];
    }
    let Ok(entries) = fs::read_dir(USUAL) else { return Vec::new() };
    let mut roots: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_cgroup(path)).collect();
    roots.sort();
    roots
}

fn is_cgroup(folder: &Path) -> bool {
    let kinds = [libc::CGROUP2_SUPER_MAGIC, libc::CGROUP_SUPER_MAGIC];
    magic(folder).is_some_and(|kind| kinds.contains(&kind)) && folder.is_dir()
}

/// The type of the file system that a path is on.
fn magic(path: &Path) -> Option<libc::c_long> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: an all-zero statfs is valid and has room for the answer; the path ends in NUL.
    let (done, reported) = unsafe {
        let mut reported = MaybeUninit::<libc::statfs>::zeroed().assume_init();
        (libc::statfs(path.as_ptr(), &raw mut reported), reported)
    };
    (done == 0).then_some(reported.f_type)
}

/// A cgroup and all cgroups below it, level by level.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut next = VecDeque::from([folder.to_owned()]);
    while let Some(group) = next.pop_front() {
        // A cgroup that was removed meanwhile has nothing below it.
        for entry in fs::read_dir(&group).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && all.len() + next.len() < MOST {
                next.push_back(entry.path());
            }
        }
        all.push(group);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const CGROUP: &str =
        "13:misc:/\n4:cpu,cpuacct:/web\n1:name=systemd:/init.scope\n0::/x\nbroken\n999:big:/\n";

    #[test]
    fn a_hierarchy_is_known_by_its_controllers_or_its_name() {
        for (name, number) in [("cpu", 4), ("cpu,cpuacct", 4), ("cpuacct", 4), ("systemd", 1), ("misc", 13)] {
            assert_eq!(number_of(name, CGROUP), Some(number), "{name}");
        }
        for name in ["memory", "big", "c"] {
            assert_eq!(number_of(name, CGROUP), None, "{name}");
        }
    }

    #[test]
    fn path_that_is_no_cgroup_has_no_folder() {
        for path in ["/nope/nope", "../../..", "/tmp", "/sys/fs/cgroup/nope/nope"] {
            let found = folders(path);
            assert!(found.is_empty(), "{path}: {found:?}");
        }
    }
}
