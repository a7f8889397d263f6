//! Which tasks are there, in which cgroups, and what has the kernel counted for them? The kernel half is `tasks.bpf.c`.

use std::collections::HashMap;
use std::io::Read as _;
use std::mem::{MaybeUninit, size_of};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::{missing, value};

skeleton!("tasks");
pub use skel::types::{tasks_cgroup, tasks_one};

// SAFETY: generated from the C structs; integers and bytes only, without padding.
unsafe impl plain::Plain for tasks_one {}
// SAFETY: as above.
unsafe impl plain::Plain for tasks_cgroup {}

/// The name of this probe in reports.
pub const WHAT: &str = "task list";

/// Bits of `tasks_cgroup::controllers`.
pub const CONTROLLERS: [(u64, &str); 4] = [(1, "cpu"), (2, "memory"), (4, "io"), (8, "unified")];

/// The loaded iterator.
pub struct Tasks<'slot> {
    skel: skel::TasksSkel<'slot>,
    link: libbpf_rs::Link,
}

/// All tasks and their cgroups at one moment.
#[derive(Default)]
pub struct Snapshot {
    /// One a thread.
    pub tasks: Vec<tasks_one>,
    /// By kernfs id: those with a task in them, and their ancestors.
    pub cgroups: HashMap<u64, tasks_cgroup>,
}

impl<'slot> Tasks<'slot> {
    /// Load. The kernel's copy of the program lives in `slot`.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        Self::load(slot).map_err(|err| missing(WHAT, &err))
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let skel = skel::TasksSkelBuilder::default().open(slot)?.load()?;
        let link = skel.progs.walk.attach()?;
        Ok(Self { skel, link })
    }

    /// Walk all tasks once.
    pub fn snapshot(&mut self) -> Result<Snapshot, Missing> {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.pass += 1;
        }
        let mut bytes = Vec::new();
        Iter::new(&self.link)
            .map_err(|err| missing(WHAT, &err))?
            .read_to_end(&mut bytes)
            .map_err(|err| Missing::broken(WHAT, err))?;
        let tasks = bytes.chunks_exact(size_of::<tasks_one>()).map(value).collect();
        Ok(Snapshot { tasks, cgroups: self.cgroups() })
    }

    fn cgroups(&self) -> HashMap<u64, tasks_cgroup> {
        let pass = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.pass);
        let map = &self.skel.maps.cgroups;
        let mut all = HashMap::new();
        for key in map.keys() {
            // A cgroup that left since the key was listed is not an error.
            let Ok(Some(bytes)) = map.lookup(&key, MapFlags::ANY) else {
                continue;
            };
            let facts: tasks_cgroup = value(&bytes);
            if facts.pass == pass {
                all.insert(u64::from_ne_bytes(key.try_into().expect("the key is a u64")), facts);
            }
        }
        all
    }

    /// Tasks and cgroups that the kernel half saw but had no room to note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_snapshot_holds_this_process_and_its_cgroups() {
        let mut slot = MaybeUninit::uninit();
        let mut tasks = Tasks::start(&mut slot).expect("root may load the task iterator");
        let seen = tasks.snapshot().unwrap();
        let me = seen.tasks.iter().find(|t| t.tgid == std::process::id()).expect("this process is listed");
        for id in [me.cpu_cgroup, me.memory_cgroup, me.io_cgroup, me.unified_cgroup] {
            assert!(id == 0 || seen.cgroups.contains_key(&id), "cgroup {id} has no row");
        }
        assert_eq!(tasks.lost(), 0);
    }
}
