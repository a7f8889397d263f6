//! Cgroups that belong to a test, under v1, v2 and hybrids of both.

mod hierarchy;
mod limits;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use hierarchy::{Controller, Hierarchies, Place, Version};

use crate::sys;

/// A killed task leaves its cgroup only after it was scheduled once more.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// One cgroup, under the same path in every hierarchy that matters.
#[derive(Debug, Clone)]
pub struct Group {
    path: String,
    places: Vec<Place>,
}

/// A limit on direct I/O of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoLimit {
    /// Bytes a second.
    Bytes(u64),
    /// Requests a second.
    Requests(u64),
}

impl Group {
    /// Make `path` ("/a/b") in all hierarchies. On v2 its parents delegate their controllers.
    pub fn make(hierarchies: &Hierarchies, path: &str) -> io::Result<Self> {
        let group = Group { path: path.to_owned(), places: hierarchies.places().to_vec() };
        for place in &group.places {
            let dir = group.dir_in(place);
            if place.version == Version::V2 && place.controller != Controller::Unified {
                let parent = dir.parent().unwrap_or(&place.root);
                // The root may have the controller on already, or may refuse the change: the file of the limit then shows whether it
                // worked.
                let _ = fs::write(parent.join("cgroup.subtree_control"), place.controller.v2_switch());
            }
            match fs::create_dir(&dir) {
                Err(err) if err.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(cannot("make", &dir, &err));
                }
                _ => {}
            }
        }
        Ok(group)
    }

    /// A cgroup that is in no hierarchy.
    #[cfg(test)]
    pub(crate) fn nowhere(path: &str) -> Self {
        Group { path: path.to_owned(), places: Vec::new() }
    }

    /// Path below the roots of the hierarchies: "/whyslow-test-1-2/victim".
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The files to write a pid to.
    #[must_use]
    pub fn procs_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            self.places.iter().map(|place| self.dir_in(place).join("cgroup.procs")).collect();
        files.sort();
        files.dedup();
        files
    }

    /// Number of periods in which its quota ran out.
    pub fn throttled_periods(&self) -> io::Result<u64> {
        self.number_of(Controller::Cpu, "cpu.stat", "nr_throttled")
    }

    /// Number of times that its memory reached the limit.
    pub fn limit_hits(&self) -> io::Result<u64> {
        match self.version(Controller::Memory)? {
            Version::V1 => {
                let text = self.read(Controller::Memory, "memory.failcnt")?;
                text.trim().parse().map_err(io::Error::other)
            }
            Version::V2 => self.number_of(Controller::Memory, "memory.events", "max"),
        }
    }

    /// Number of its processes that the kernel killed for their memory.
    pub fn oom_kills(&self) -> io::Result<u64> {
        match self.version(Controller::Memory)? {
            Version::V1 => self.number_of(Controller::Memory, "memory.oom_control", "oom_kill"),
            Version::V2 => self.number_of(Controller::Memory, "memory.events", "oom_kill"),
        }
    }

    /// Number of tasks in it and below.
    pub fn tasks(&self) -> io::Result<u64> {
        self.read(Controller::Pids, "pids.current")?.trim().parse().map_err(io::Error::other)
    }

    /// Pages that it swapped out since it was made. v1 before 6.x has no such counter: then the bytes that it has in swap.
    pub fn swapped_out(&self) -> io::Result<u64> {
        match self.number_of(Controller::Memory, "memory.stat", "pswpout") {
            Ok(pages) => Ok(pages),
            Err(_) if self.version(Controller::Memory)? == Version::V1 => {
                self.number_of(Controller::Memory, "memory.stat", "swap")
            }
            Err(err) => Err(err),
        }
    }

    /// CPU time that all its tasks used.
    pub fn cpu_used(&self) -> io::Result<Duration> {
        match self.version(Controller::Cpuacct) {
            Ok(Version::V1) => {
                let text = self.read(Controller::Cpuacct, "cpuacct.usage")?;
                text.trim().parse().map(Duration::from_nanos).map_err(io::Error::other)
            }
            _ => self.number_of(Controller::Cpu, "cpu.stat", "usage_usec").map(Duration::from_micros),
        }
    }

    /// Kill all tasks in it and below, then remove it.
    pub fn remove(&self) {
        for place in &self.places {
            remove_group(&self.dir_in(place));
        }
    }

    fn dir_in(&self, place: &Place) -> PathBuf {
        place.root.join(self.path.trim_start_matches('/'))
    }

    fn place(&self, controller: Controller) -> io::Result<&Place> {
        self.places
            .iter()
            .find(|place| place.controller == controller)
            .ok_or_else(|| io::Error::other(format!("this host has no {controller:?} cgroup controller")))
    }

    fn version(&self, controller: Controller) -> io::Result<Version> {
        self.place(controller).map(|place| place.version)
    }

    fn write(&self, controller: Controller, name: &str, text: &str) -> io::Result<()> {
        let file = self.dir_in(self.place(controller)?).join(name);
        fs::write(&file, text).map_err(|err| cannot(&format!("write \"{text}\" to"), &file, &err))
    }

    fn read(&self, controller: Controller, name: &str) -> io::Result<String> {
        let file = self.dir_in(self.place(controller)?).join(name);
        fs::read_to_string(&file).map_err(|err| cannot("read", &file, &err))
    }

    fn number_of(&self, controller: Controller, file: &str, name: &str) -> io::Result<u64> {
        let text = self.read(controller, file)?;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
            .ok_or_else(|| io::Error::other(format!("{file} of {} has no {name}", self.path)))
    }
}

/// Kill the tasks of a cgroup directory and of those below, and remove the directories. Returns true if the directory is gone.
pub fn remove_group(dir: &Path) -> bool {
    let began = Instant::now();
    loop {
        if remove_tree(dir) {
            return true;
        }
        if began.elapsed() > LEAVE_WITHIN {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn remove_tree(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return !dir.exists() };
    let below: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    let all_gone = below.iter().all(|child| remove_tree(child));
    let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    procs.lines().filter_map(|pid| pid.parse().ok()).filter(|pid: &i32| *pid > 1).for_each(sys::kill);
    all_gone && fs::remove_dir(dir).is_ok()
}

fn cannot(verb: &str, path: &Path, err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("cannot {verb} {}: {err}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(version: Version, root: &Path) -> Group {
        let controllers = [Controller::Cpu, Controller::Memory, Controller::Io, Controller::Pids];
        let place = |controller| Place { controller, version, root: root.to_owned() };
        fs::create_dir_all(root.join("t/v")).unwrap();
        Group { path: "/t/v".to_owned(), places: controllers.map(place).to_vec() }
    }

    fn said(root: &Path, name: &str) -> String {
        fs::read_to_string(root.join("t/v").join(name)).unwrap()
    }

    #[test]
    fn limits_are_spoken_in_v1() {
        let root = tempfile::tempdir().unwrap();
        let g = group(Version::V1, root.path());
        g.set_quota(Some((Duration::from_millis(20), Duration::from_millis(50)))).unwrap();
        g.set_memory_limit(Some(1 << 20)).unwrap();
        g.set_io_limit("254:0", false, Some(IoLimit::Requests(70))).unwrap();
        assert_eq!(said(root.path(), "cpu.cfs_quota_us"), "20000");
        assert_eq!(said(root.path(), "cpu.cfs_period_us"), "50000");
        assert_eq!(said(root.path(), "memory.limit_in_bytes"), "1048576");
        assert_eq!(said(root.path(), "blkio.throttle.read_iops_device"), "254:0 70");
        assert_eq!(said(root.path(), "blkio.throttle.read_bps_device"), "254:0 0");
    }

    #[test]
    fn limits_are_spoken_in_v2() {
        let root = tempfile::tempdir().unwrap();
        let g = group(Version::V2, root.path());
        g.set_quota(Some((Duration::from_millis(20), Duration::from_millis(50)))).unwrap();
        g.set_memory_limit(None).unwrap();
        g.set_io_limit("254:0", true, Some(IoLimit::Bytes(4096))).unwrap();
        assert_eq!(said(root.path(), "cpu.max"), "20000 50000");
        assert_eq!(said(root.path(), "memory.max"), "max");
        assert_eq!(said(root.path(), "io.max"), "254:0 wbps=4096 wiops=max");
    }

    #[test]
    fn a_missing_controller_is_named() {
        let g = Group { path: "/t".to_owned(), places: Vec::new() };
        assert_eq!(g.set_pids_limit(1).unwrap_err().to_string(), "this host has no Pids cgroup controller");
    }
}
