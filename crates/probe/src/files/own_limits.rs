//! The limits of whyslow itself: of its own cgroup and all groups above it, in both versions of cgroups.
//!
//! Read before the first map is made: memory of maps is charged to the cgroup of the process that makes them (v5.11, 3ac1f01b43b6),
//! and a process that meets the limit there is killed. The hierarchies are looked for in the usual places, as for all cgroups:
//! mountinfo waits for mounts in progress. A mount that shows only a part of its hierarchy (a container without a cgroup
//! namespace) is recognized by our path, which is not below it. Memory limits above the visible groups are read from the kernel's own
//! memory: `own_limits/above.rs`.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use whyslow_model::Missing;

use super::cgroups::Mounts;
use super::root::{Reads, Root};

mod above;
#[cfg(test)]
mod tests;

/// The inode of the first cgroup namespace's file, PROC_CGROUP_INIT_INO of include/linux/proc_ns.h: part of the ABI.
const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFB;
/// A limit of this size and more means "no limit": v1 shows the largest multiple of a page that fits a long.
const NO_LIMIT: u64 = 1 << 60;
/// The most that is read of a file. A group with more processes than fit is not that of a container's only program.
const CAP: usize = 64 << 10;

/// The tightest memory limit above us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The cgroup that has it, as /proc/self/cgroup would name it.
    pub cgroup: String,
    /// Bytes.
    pub limit: u64,
    /// What is left of it for us; page cache of files can be given back and counts as free.
    pub left: u64,
    /// No visible file shows it: how much of the used memory is page cache is not known, and there may be more left.
    pub is_hidden: bool,
}

/// The tightest CPU quota above us.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuLimit {
    /// The cgroup that has it.
    pub cgroup: String,
    /// In CPUs.
    pub cpus: f64,
}

/// The limits of this process.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnLimits {
    /// `None`: there is none.
    pub memory: Result<Option<MemoryLimit>, Missing>,
    /// `None`: there is none.
    pub cpu: Result<Option<CpuLimit>, Missing>,
    /// There are cgroups above the visible ones, whose limits cannot be known: of memory, of CPU time.
    pub hides_memory: bool,
    pub hides_cpu: bool,
}

/// What files show of the groups that limit our memory.
#[derive(Debug, Clone, Copy, Default)]
struct Shown {
    /// How many groups, from our own up.
    groups: u32,
    /// Page cache of files in the topmost of them.
    cache: u64,
}

impl OwnLimits {
    /// The limits of this process.
    #[must_use]
    pub fn read() -> Self {
        let namespace = std::fs::metadata("/proc/self/ns/cgroup").map(|found| found.ino());
        // Before v4.6 there is no such file, and no such namespace.
        let is_initial = namespace.map_or(true, |inode| inode == INITIAL_NAMESPACE);
        let (limits, shown) = Self::shown(Path::new("/"), std::process::id(), is_initial);
        limits.with_what_is_above(shown, crate::bpf::own_memory::groups)
    }

    fn shown(root: &Path, pid: u32, is_initial: bool) -> (Self, Shown) {
        let root = Root::open(root);
        let look = Look { root: &root, mounts: Mounts::find(&root), pid, is_initial };
        let (memory, groups) = tightest(&look, "memory", MEMORY_WHAT, memory_at, |m| m.left as f64);
        let (cpu, of_cpu) = tightest(&look, "cpu", CPU_WHAT, cpu_at, |c| c.cpus);
        let hides = |groups: Option<&Groups>| !is_initial || groups.is_some_and(|groups| groups.is_part);
        let (hides_memory, hides_cpu) = (hides(groups.as_ref()), hides(of_cpu.as_ref()));
        let shown = groups.map_or_else(Shown::default, |groups| look.shown(&groups));
        (OwnLimits { memory, cpu, hides_memory, hides_cpu }, shown)
    }
}

const MEMORY_WHAT: &str = "the memory limit of whyslow itself";
const CPU_WHAT: &str = "the CPU quota of whyslow itself";

struct Look<'a> {
    root: &'a Root,
    mounts: Mounts,
    pid: u32,
    is_initial: bool,
}

/// Our groups of one controller, from our own up.
struct Groups {
    /// Folder below the root, and name.
    dirs: Vec<(Vec<u8>, String)>,
    is_v2: bool,
    /// The groups above the mount's root are missing.
    is_part: bool,
}

/// The limit of one group: folder, name, whether it is of version 2.
type LimitAt<T> = fn(&Look<'_>, &[u8], &str, bool) -> Result<Option<T>, String>;

/// The tightest limit of all our groups. A limit that cannot be read hides no other; alone it is "cannot tell".
fn tightest<T>(
    look: &Look<'_>,
    controller: &str,
    what: &str,
    at: LimitAt<T>,
    size: fn(&T) -> f64,
) -> (Result<Option<T>, Missing>, Option<Groups>) {
    let groups = match look.groups(controller) {
        Ok(Some(groups)) => groups,
        Ok(None) => return (Ok(None), None),
        Err(reason) => return (Err(Missing::unclear(what, reason)), None),
    };
    let (mut found, mut bad) = (Vec::new(), None);
    for (dir, name) in &groups.dirs {
        match at(look, dir, name, groups.is_v2) {
            Ok(limit) => found.extend(limit),
            Err(reason) => bad = Some(reason),
        }
    }
    let least = found.into_iter().min_by(|a, b| size(a).total_cmp(&size(b)));
    let answer = match (least, bad) {
        (None, Some(reason)) => Err(Missing::unclear(what, reason)),
        (least, _) => Ok(least),
    };
    (answer, Some(groups))
}

impl Look<'_> {
    /// `None`: there are no cgroups with this controller.
    fn groups(&self, controller: &str) -> Result<Option<Groups>, String> {
        let Ok(text) = self.text(b"proc/self", "cgroup") else { return Ok(None) };
        let v1 = own_path(&text, |controllers| controllers.split(',').any(|word| word == controller));
        let (path, base, is_v2) = match (v1, self.mounts.v1.get(controller)) {
            (Some(path), Some(base)) => (path, base, false),
            (Some(_), None) => return Err(format!("the {controller} hierarchy is not at /sys/fs/cgroup")),
            (None, _) => match (own_path(&text, str::is_empty), &self.mounts.v2) {
                (Some(path), Some(base)) => (path, base, true),
                (Some(_), None) => return Err("no cgroup hierarchy is at /sys/fs/cgroup".to_owned()),
                (None, _) => return Ok(None),
            },
        };
        self.levels(path, base, is_v2).map(Some)
    }

    fn levels(&self, path: &str, base: &[u8], is_v2: bool) -> Result<Groups, String> {
        let path = path.trim_end_matches('/');
        let below = |path: &str| [base, path.as_bytes()].concat();
        let is_there = |dir: Vec<u8>| CString::new(dir).is_ok_and(|dir| self.root.exists(&dir));
        let is_outside = path.split('/').any(|part| part == "..");
        // In a namespace the path may name another group: only the group of our own process is ours.
        if !is_outside && is_there(below(path)) && (self.is_initial || self.is_ours(&below(path))) {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            let mut above: Vec<&str> = ends.filter_map(|end| path.get(..end)).collect();
            above.dedup();
            let named = |path: &str| if path.is_empty() { "/".to_owned() } else { path.to_owned() };
            let dirs = above.iter().rev().map(|path| (below(path), named(path))).collect();
            return Ok(Groups { dirs, is_v2, is_part: !self.is_initial });
        }
        if self.is_ours(base) {
            return Ok(Groups { dirs: vec![(base.to_owned(), "/".to_owned())], is_v2, is_part: true });
        }
        let base = String::from_utf8_lossy(base);
        Err(format!("our cgroup {path} is not below /{base}: the mount shows another part of the hierarchy"))
    }

    fn shown(&self, groups: &Groups) -> Shown {
        let cache = groups.dirs.last().map_or(0, |(dir, _)| self.cache(dir, groups.is_v2));
        Shown { groups: u32::try_from(groups.dirs.len()).unwrap_or(u32::MAX), cache }
    }

    /// Page cache of files in a group and all below it.
    fn cache(&self, dir: &[u8], is_v2: bool) -> u64 {
        let labels = if is_v2 {
            ["inactive_file ", "active_file "]
        } else {
            ["total_inactive_file ", "total_active_file "]
        };
        let stat = self.text(dir, "memory.stat").unwrap_or_default();
        let of =
            |label: &str| stat.lines().find_map(|line| line.strip_prefix(label)?.trim().parse::<u64>().ok());
        labels.into_iter().filter_map(of).fold(0, u64::saturating_add)
    }

    fn is_ours(&self, dir: &[u8]) -> bool {
        let text = self.text(dir, "cgroup.procs").unwrap_or_default();
        text.lines().any(|line| line.parse() == Ok(self.pid))
    }

    fn text(&self, dir: &[u8], file: &str) -> io::Result<String> {
        let path = CString::new([dir, b"/", file.as_bytes()].concat())?;
        let mut text = Vec::new();
        self.root.read(&path, CAP, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// A file's number; `None`: no limit, or no such file. In v2 the root has none, nor has a group without the controller.
    fn limit(&self, dir: &[u8], file: &str) -> Result<Option<u64>, String> {
        match self.text(dir, file) {
            Ok(text) if text.trim() == "max" => Ok(None),
            Ok(text) => {
                let said = || format!("expected a number in {file} of /{}", String::from_utf8_lossy(dir));
                let number: u64 = text.trim().parse().map_err(|_| said())?;
                Ok((number < NO_LIMIT).then_some(number))
            }
            Err(err) => absent(&err, dir, file).map(|()| None),
        }
    }
}

/// Our path in the hierarchy for whose controllers `is_it` holds: a line of /proc/self/cgroup is `4:memory:/a/b`.
fn own_path(text: &str, is_it: impl Fn(&str) -> bool) -> Option<&str> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        (is_it(controllers) && path.starts_with('/')).then_some(path)
    })
}

fn absent(err: &io::Error, dir: &[u8], file: &str) -> Result<(), String> {
    match err.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(format!("cannot read {file} of /{}: {err}", String::from_utf8_lossy(dir))),
    }
}

fn memory_at(look: &Look<'_>, dir: &[u8], name: &str, is_v2: bool) -> Result<Option<MemoryLimit>, String> {
    let (limit, usage) = if is_v2 {
        // Above memory.high each allocation has to wait: no process is killed, but none comes to its end.
        let both = ["memory.max", "memory.high"].map(|file| look.limit(dir, file));
        (least_known(both)?, "memory.current")
    } else {
        (look.limit(dir, "memory.limit_in_bytes")?, "memory.usage_in_bytes")
    };
    let Some(limit) = limit else { return Ok(None) };
    let used = look.limit(dir, usage)?.unwrap_or(0);
    let left = limit.saturating_sub(used.saturating_sub(look.cache(dir, is_v2)));
    Ok(Some(MemoryLimit { cgroup: name.to_owned(), limit, left, is_hidden: false }))
}

/// The tighter of two limits of one group. A limit that cannot be read hides no other; alone it is not "none".
fn least_known(both: [Result<Option<u64>, String>; 2]) -> Result<Option<u64>, String> {
    match both {
        [Ok(None), Err(reason)] | [Err(reason), Ok(None) | Err(_)] => Err(reason),
        both => Ok(both.into_iter().flatten().flatten().min()),
    }
}

fn cpu_at(look: &Look<'_>, dir: &[u8], name: &str, is_v2: bool) -> Result<Option<CpuLimit>, String> {
    let read = |file| match look.text(dir, file) {
        Ok(text) => Ok(Some(text)),
        Err(err) => absent(&err, dir, file).map(|()| None),
    };
    let pair = if is_v2 {
        read("cpu.max")?.map(|text| {
            let mut words = text.split_ascii_whitespace().map(str::to_owned);
            (words.next().unwrap_or_default(), words.next().unwrap_or_default())
        })
    } else {
        read("cpu.cfs_quota_us")?.zip(read("cpu.cfs_period_us")?)
    };
    let Some((quota, period)) = pair else { return Ok(None) };
    if quota == "max" || quota.trim() == "-1" {
        return Ok(None);
    }
    let (quota, period) = (quota.trim().parse::<u64>(), period.trim().parse::<u64>());
    match (quota, period) {
        (Ok(quota), Ok(period)) if quota > 0 && period > 0 => {
            Ok(Some(CpuLimit { cgroup: name.to_owned(), cpus: quota as f64 / period as f64 }))
        }
        _ => Err(format!("expected a quota and a period in /{}", String::from_utf8_lossy(dir))),
    }
}
