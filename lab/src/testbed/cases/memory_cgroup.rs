//! A memory cgroup that belongs to a case, for cgroups that come and go in it.

use std::fs;
use std::path::{Path, PathBuf};

use whyslow_faults::Draw;
use whyslow_faults::cgroup::{Controller, Group, Hierarchies};
use whyslow_faults::rounds::Trouble;

use crate::testbed::TestBed;

/// A cgroup inside the fence, removed with everything in it. Members leave a child by moving to `HOME`.
pub struct Room {
    group: Group,
    root: PathBuf,
    dir: PathBuf,
}

/// The child for all other processes: on v2 a cgroup with controlled children has no members itself.
pub const HOME: &str = "home";

impl Room {
    /// Make it. The kernel keeps about 10 KB for each cgroup and charges the parent: the fence's memory limit is not meant for that, and is
    /// lifted.
    pub fn make(testbed: &TestBed, draw: &mut Draw) -> Result<Self, Trouble> {
        let here = Hierarchies::here()?;
        let place = here.places().iter().find(|place| place.controller == Controller::Memory);
        let root = place.ok_or("there is no memory controller")?.root.clone();
        let group = testbed.fence.group(&draw.word(6))?;
        testbed.fence.top().set_memory_limit(None)?;
        let dir = root.join(group.path().trim_start_matches('/'));
        let room = Room { group, root, dir };
        let switch = room.dir.join("cgroup.subtree_control");
        if switch.exists() {
            fs::write(switch, "+memory")?;
        }
        fs::create_dir(room.dir.join(HOME))?;
        Ok(room)
    }

    /// The root of its hierarchy.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its path as /proc/PID/cgroup has it.
    #[must_use]
    pub fn path(&self) -> &str {
        self.group.path()
    }

    /// The files that its processes join.
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        self.dir.join(HOME).join("cgroup.procs")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.group.remove();
    }
}
