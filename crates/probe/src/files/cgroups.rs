//! Where the cgroup hierarchies are mounted (version 1, 2 or both), and which groups there are.
//!
//! mountinfo has the mounts, but reading it waits for mounts in progress (namespace_sem). On a live host the usual places are checked
//! first, by the type of their filesystem, which waits for nothing. The walk is bounded in groups and in time: a host
//! may have 100,000 of them.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::budget::Budget;
use super::devices::{Device, Devices};
use super::name::raw_name;
use super::root::{Reads, Root};

/// The controllers whose files are read; blkio is what version 1 calls io.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuacct", "memory", "io", "pids", "cpuset"];
const USUAL: &str = "sys/fs/cgroup";

/// Paths below the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mounts {
    /// Version 1, by controller.
    pub v1: BTreeMap<String, Vec<u8>>,
    /// Version 2.
    pub v2: Option<Vec<u8>>,
}

impl Mounts {
    /// Checks the usual places; in a folder, its mountinfo first.
    pub fn find(root: &Root) -> Mounts {
        let mut text = Vec::new();
        if !root.live {
            for file in [c"proc/self/mountinfo", c"proc/1/mountinfo"] {
                if root.read(file, super::table::LARGE, &mut text).is_ok() {
                    let mounts = Mounts::parse(&text);
                    if !mounts.is_empty() {
                        return mounts;
                    }
                }
            }
        }
        Mounts::at_usual_places(root)
    }

    fn at_usual_places(root: &Root) -> Mounts {
        let mut mounts = Mounts::default();
        if is_v2(root, USUAL.as_bytes()) {
            mounts.v2 = Some(USUAL.into());
            return mounts;
        }
        let mut dirs = Vec::new();
        let _ = root.list(c"sys/fs/cgroup", |name, is_dir| {
            if is_dir {
                dirs.push(name.to_vec());
            }
            dirs.len() < 64
        });
        for name in dirs {
            let path = [USUAL.as_bytes(), b"/", &name].concat();
            if is_v2(root, &path) {
                mounts.v2 = Some(path);
            } else if is_v1(root, &path) {
                mounts.add_v1(String::from_utf8_lossy(&name).split(','), &path);
            }
        }
        mounts
    }

    /// From mountinfo. A mount of a hierarchy's root is preferred to one of a group in it.
    pub fn parse(mountinfo: &[u8]) -> Mounts {
        let mut mounts = Mounts::default();
        let text = String::from_utf8_lossy(mountinfo);
        let mut lines: Vec<_> = text.lines().filter_map(Mount::parse).collect();
        lines.sort_by_key(|mount| mount.from != "/");
        for mount in lines {
            let path = raw_name(mount.at.trim_start_matches('/')).into_vec();
            match mount.kind {
                "cgroup2" if mounts.v2.is_none() => mounts.v2 = Some(path),
                "cgroup" => mounts.add_v1(mount.options.split(','), &path),
                _ => {}
            }
        }
        mounts
    }

    fn add_v1<'a>(&mut self, words: impl Iterator<Item = &'a str>, path: &[u8]) {
        for word in words {
            let controller = if word == "blkio" { "io" } else { word };
            if CONTROLLERS.contains(&controller) {
                self.v1.entry(controller.to_owned()).or_insert_with(|| path.to_owned());
            }
        }
    }

    /// No hierarchy was found.
    pub fn is_empty(&self) -> bool {
        self.v1.is_empty() && self.v2.is_none()
    }

    /// Controller ("cpu", "memory", "io", ..., "unified") to path, as seen by the host: with the leading "/". A
    /// controller that lives on version 2 has the path of "unified".
    pub fn by_controller(&self, root: &Root) -> BTreeMap<String, PathBuf> {
        let full = |path: &[u8]| PathBuf::from(std::ffi::OsString::from_vec([b"/", path].concat()));
        let mut all: BTreeMap<_, _> = self.v1.iter().map(|(name, path)| (name.clone(), full(path))).collect();
        let Some(v2) = &self.v2 else { return all };
        all.insert("unified".to_owned(), full(v2));
        let mut text = Vec::new();
        if let Ok(file) = CString::new([v2, &b"/cgroup.controllers"[..]].concat())
            && root.read(&file, 4096, &mut text).is_ok()
        {
            for word in String::from_utf8_lossy(&text).split_ascii_whitespace() {
                if CONTROLLERS.contains(&word) {
                    all.entry(word.to_owned()).or_insert_with(|| full(v2));
                }
            }
        }
        all
    }
}

/// One line of mountinfo: `32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu`.
struct Mount<'a> {
    from: &'a str,
    at: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        Some(Mount { from: before.next()?, at: before.next()?, kind: after.next()?, options: after.nth(1)? })
    }
}

fn is_v2(root: &Root, path: &[u8]) -> bool {
    let Ok(dir) = CString::new(path) else { return false };
    if root.live {
        return root.filesystem(&dir).is_ok_and(|kind| kind == libc::CGROUP2_SUPER_MAGIC);
    }
    CString::new([path, b"/cgroup.controllers"].concat()).is_ok_and(|file| root.exists(&file))
}

fn is_v1(root: &Root, path: &[u8]) -> bool {
    let Ok(dir) = CString::new(path) else { return false };
    !root.live || root.filesystem(&dir).is_ok_and(|kind| kind == libc::CGROUP_SUPER_MAGIC)
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Paths below the root; the hierarchy's root first, then level by level.
    groups: Vec<Vec<u8>>,
    /// How many of them are the root or right below it.
    top: usize,
    /// Groups seen but left out.
    left: usize,
    /// The walk did not enter all groups: there may be more.
    unfinished: bool,
}

/// The groups of a hierarchy: at most `most`, as long as the budget lasts.
pub(super) fn walk(root: &Root, base: &[u8], most: usize, budget: Budget) -> Walk {
    let mut found = Walk { groups: vec![base.to_vec()], top: 1, ..Walk::default() };
    let mut queue = VecDeque::from([base.to_vec()]);
    while let Some(dir) = queue.pop_front() {
        if found.left > 0 || budget.spent() {
            found.unfinished = true;
            break;
        }
        let Ok(path) = CString::new(dir.clone()) else { continue };
        // kernfs counts directories as links, so a leaf need not be listed: a listing costs ten times as much.
        if root.live && root.links(&path).is_ok_and(|links| links == 2) {
            continue;
        }
        let mut seen = 0_u32;
        let _ = root.list(&path, |name, is_dir| {
            seen = seen.wrapping_add(1);
            if is_dir && found.groups.len() < most {
                let group = [&dir[..], b"/", name].concat();
                queue.push_back(group.clone());
                found.groups.push(group);
            } else if is_dir {
                found.left += 1;
            }
            !seen.is_multiple_of(256) || !budget.spent()
        });
        if dir == base {
            found.top = found.groups.len();
        }
    }
    found
}

/// Adds the groups of every hierarchy to `devices`; calls `skipped` for groups that are left out: where, taken, at least left.
pub(super) fn discover(
    root: &Root,
    mounts: &Mounts,
    (most, most_top): (usize, usize),
    budget: Budget,
    devices: &mut Devices,
    mut skipped: impl FnMut(&str, usize, usize),
) {
    let v1 = mounts.v1.iter().map(|(controller, path)| (format!("v1:{controller}"), path));
    let v2 = mounts.v2.iter().map(|path| ("v2".to_owned(), path));
    let mut known: BTreeMap<&[u8], Walk> = BTreeMap::new();
    let all: Vec<_> = v2.chain(v1).collect();
    for (at, (key, base)) in all.iter().enumerate() {
        let share = budget.share(all.len() - at);
        let walked = known.entry(base).or_insert_with(|| walk(root, base, most, share));
        if walked.left > 0 || walked.unfinished {
            skipped(&String::from_utf8_lossy(base), walked.groups.len(), walked.left);
        }
        let named: Vec<_> = walked.groups.iter().map(|group| Device::new(group, root.live)).collect();
        devices.insert(format!("{key}:top"), named[..walked.top.min(most_top)].to_vec());
        devices.insert(format!("{key}:below"), named.get(1..).unwrap_or_default().to_vec());
        devices.insert(key.clone(), named);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime shared:3 - cgroup cgroup rw,blkio
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw
torn 31 0:3";

    const LONG: Duration = Duration::from_secs(20);

    fn soon() -> Budget {
        Budget::new(LONG, LONG)
    }

    fn make(dir: &Path, groups: &[&str]) {
        for group in groups {
            fs::create_dir_all(dir.join(group)).unwrap();
        }
    }

    #[test]
    fn mountinfo_of_a_hybrid_host_is_understood_and_a_torn_line_is_left_out() {
        let mounts = Mounts::parse(HYBRID.as_bytes());
        assert_eq!(mounts.v1["cpuacct"], b"sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(mounts.v1["io"], b"sys/fs/cgroup/blkio");
        assert_eq!(mounts.v2.as_deref(), Some(&b"sys/fs/cgroup/uni fied"[..]));
    }

    #[test]
    fn version_2_is_known_by_its_files_in_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), &["sys/fs/cgroup/system.slice"]);
        fs::write(dir.path().join("sys/fs/cgroup/cgroup.controllers"), "cpu io memory\n").unwrap();
        let root = Root::open(dir.path());
        let mounts = Mounts::find(&root);
        assert_eq!(mounts.v2.as_deref(), Some(&b"sys/fs/cgroup"[..]));
        let by = mounts.by_controller(&root);
        assert_eq!(by["memory"], Path::new("/sys/fs/cgroup"));
        assert_eq!(by["unified"], by["memory"]);
        assert!(!by.contains_key("pids"));
    }

    #[test]
    fn version_1_is_known_by_its_directories_in_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), &["sys/fs/cgroup/cpu,cpuacct/web", "sys/fs/cgroup/blkio", "sys/fs/cgroup/memory"]);
        let root = Root::open(dir.path());
        let by = Mounts::find(&root).by_controller(&root);
        assert_eq!(by["io"], Path::new("/sys/fs/cgroup/blkio"));
        assert_eq!(by["cpu"], by["cpuacct"]);
        assert!(!by.contains_key("unified"));
    }

    #[test]
    fn groups_come_level_by_level_and_those_beyond_the_cap_are_counted() {
        let dir = super::super::tests::roomy();
        make(dir.path(), &["g/a/deep", "g/b"]);
        for n in 0..3000 {
            make(dir.path(), &[&format!("g/a/{n}")]);
        }
        let root = Root::open(dir.path());
        let walked = walk(&root, b"g", 1000, soon());
        assert_eq!((walked.groups.len(), walked.top), (1000, 3));
        assert_eq!(walked.left, 3004 - 1000);
        assert!(walked.groups[3].starts_with(b"g/a/"));
        let whole = walk(&root, b"g", 10_000, soon());
        assert_eq!((whole.groups.len(), whole.left), (3004, 0));
    }

    #[test]
    fn a_walk_ends_at_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), &["g/a/b/c"]);
        let walked = walk(&Root::open(dir.path()), b"g", 1000, Budget::new(LONG, Duration::ZERO));
        assert_eq!(walked.groups, [b"g".to_vec()]);
        assert!(walked.unfinished);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<Vec<u8>>(), line in "[ -~]* - cgroup2? [ -~]*") {
            Mounts::parse(&text);
            Mounts::parse(line.as_bytes());
        }
    }
}
