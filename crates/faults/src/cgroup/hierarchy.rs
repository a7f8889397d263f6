//! Where each cgroup controller is: on a v1 hierarchy of its own, on a shared v1 hierarchy, or on v2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A controller that faults and fences use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are their own words")]
pub enum Controller {
    Cpu,
    Cpuacct,
    Memory,
    Io,
    Pids,
    /// The v2 hierarchy itself, with or without controllers.
    Unified,
}

/// The two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are their own words")]
pub enum Version {
    V1,
    V2,
}

/// Where a controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The controller.
    pub controller: Controller,
    /// The version of its interface.
    pub version: Version,
    /// Mount point of its hierarchy.
    pub root: PathBuf,
}

/// Where all controllers are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies(Vec<Place>);

const ALL: [(Controller, &str, &str); 5] = [
    (Controller::Cpu, "cpu", "cpu"),
    (Controller::Cpuacct, "cpuacct", ""), // v2: a part of cpu
    (Controller::Memory, "memory", "memory"),
    (Controller::Io, "blkio", "io"),
    (Controller::Pids, "pids", "pids"),
];

impl Controller {
    /// The text that enables the controller for children, to write to the parent's `cgroup.subtree_control`.
    #[must_use]
    pub fn v2_switch(self) -> String {
        let name = ALL.iter().find(|(c, ..)| *c == self).map_or("", |(.., v2)| v2);
        format!("+{name}")
    }
}

impl Hierarchies {
    /// The controllers of this host.
    pub fn here() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Self::parse(&mounts, |root| {
            fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default()
        }))
    }

    /// Parse the text of mountinfo, and the v2 controllers at a mount point.
    #[must_use]
    pub fn parse(mountinfo: &str, v2_controllers: impl Fn(&Path) -> String) -> Self {
        let mut places: Vec<Place> = Vec::new();
        let mut put = |controller, version, root: &Path| {
            if !places.iter().any(|place| place.controller == controller) {
                places.push(Place { controller, version, root: root.to_owned() });
            }
        };
        let mounts: Vec<(&Path, &str, &str)> = mountinfo.lines().filter_map(mount).collect();
        for (at, _, options) in mounts.iter().filter(|(_, kind, _)| *kind == "cgroup") {
            for (controller, ..) in ALL.iter().filter(|(_, v1, _)| options.split(',').any(|o| o == *v1)) {
                put(*controller, Version::V1, at);
            }
        }
        for (at, ..) in mounts.iter().filter(|(_, kind, _)| *kind == "cgroup2") {
            let have = v2_controllers(at);
            for (controller, ..) in
                ALL.iter().filter(|(.., v2)| have.split_whitespace().any(|name| name == *v2))
            {
                put(*controller, Version::V2, at);
            }
            put(Controller::Unified, Version::V2, at);
        }
        Hierarchies(places)
    }

    /// One row for each controller.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.0
    }
}

/// Mount point, type and super options of a line of mountinfo.
fn mount(line: &str) -> Option<(&Path, &str, &str)> {
    let (left, right) = line.split_once(" - ")?;
    let at = left.split(' ').nth(4)?;
    let mut right = right.split(' ');
    Some((Path::new(at), right.next()?, right.nth(1).unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
torn";

    #[test]
    fn a_hybrid_host_has_both() {
        let found = Hierarchies::parse(HYBRID, |_| "io pids\n".to_owned());
        let place = |c| found.places().iter().find(|p| p.controller == c).unwrap();
        assert_eq!(place(Controller::Cpuacct).root, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(place(Controller::Memory).version, Version::V1);
        assert_eq!(place(Controller::Io).version, Version::V2);
        assert_eq!(place(Controller::Unified).root, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn a_v2_host_has_all_in_one_place() {
        let line = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let found = Hierarchies::parse(line, |_| "cpuset cpu io memory pids".to_owned());
        assert!(found.places().iter().all(|p| p.version == Version::V2 && p.root.ends_with("cgroup")));
        assert_eq!(found.places().len(), 5);
    }
}
