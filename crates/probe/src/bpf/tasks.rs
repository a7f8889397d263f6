//! Which tasks exist, in which cgroups, and what has the kernel counted for them? The kernel half is `tasks.bpf.c`.

use std::collections::HashMap;
use std::mem::{MaybeUninit, size_of};
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::constants::tasks_c;
use super::{missing, value, walk};

skeleton!("tasks");
pub use skel::types::{tasks_cgroup, tasks_one};

// SAFETY: generated from the C structs; integers and bytes only, without padding.
unsafe impl plain::Plain for tasks_one {}
// SAFETY: as above.
unsafe impl plain::Plain for tasks_cgroup {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::TaskList.word();

/// Bits of `tasks_cgroup::controllers`.
pub const CONTROLLERS: [(u64, &str); 4] = [
    (tasks_c::CPU as u64, "cpu"),
    (tasks_c::MEMORY as u64, "memory"),
    (tasks_c::IO as u64, "io"),
    (tasks_c::UNIFIED as u64, "unified"),
];

/// The loaded iterator.
pub struct Tasks<'slot> {
    skel: skel::TasksSkel<'slot>,
    link: libbpf_rs::Link,
}

/// All tasks and their cgroups at one moment.
#[derive(Default)]
pub struct Snapshot {
    /// One row per thread.
    pub tasks: Vec<tasks_one>,
    /// By kernfs id: cgroups with a task in them, and their ancestors.
    pub cgroups: HashMap<u64, tasks_cgroup>,
}

impl<'slot> Tasks<'slot> {
    /// Load. The kernel's copy of the program lives in `slot`.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        Self::load(slot).map_err(|err| missing(WHAT, &err))
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut skel = skel::TasksSkelBuilder::default().open(slot)?.load()?;
        let link = skel.progs.walk.attach()?;
        // Without it the age of a cgroup that had no task is not known: its counters are not reported.
        skel.links.group_made = skel.progs.group_made.attach().ok();
        Ok(Self { skel, link })
    }

    /// Walk all tasks once.
    pub fn snapshot(&mut self) -> Result<Snapshot, Missing> {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.pass += 1;
        }
        let bytes = walk(WHAT, &self.link)?;
        let tasks = bytes.chunks_exact(size_of::<tasks_one>()).map(value).collect();
        Ok(Snapshot { tasks, cgroups: self.cgroups() })
    }

    /// The cost to enter a program and to leave it, which the kernel's statistics leave out. The calls with an empty program attached, less
    /// those without; nothing where it cannot be measured.
    #[must_use]
    pub fn entry_cost(&self) -> Option<Duration> {
        let without = renaming();
        let link = self.skel.progs.entered.attach().ok()?;
        let with = renaming();
        drop(link);
        Some(with.saturating_sub(without))
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

    /// Tasks and cgroups for which the kernel half had no room.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

/// Calls in a row that are timed together: 0.1 ms.
const CALLS: u32 = 200;
/// Of so many rows the quickest counts: the others were interrupted.
const ROWS: usize = 10;

/// The least cost of a call in which this thread gives itself the name that it has.
fn renaming() -> Duration {
    let mut name = [0u8; 16];
    let ask = |what: libc::c_int, name: &mut [u8; 16]| {
        // SAFETY: both calls take 16 bytes of ours, which the kernel ends with a zero byte.
        unsafe { libc::prctl(what, name.as_mut_ptr()) }
    };
    ask(libc::PR_GET_NAME, &mut name);
    let row = |_| {
        let began = Instant::now();
        for _ in 0..CALLS {
            ask(libc::PR_SET_NAME, &mut name);
        }
        began.elapsed() / CALLS
    };
    (0..ROWS).map(row).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_an_entry_costs_something_and_the_thread_keeps_its_name() {
        let mut slot = MaybeUninit::uninit();
        let tasks = Tasks::start(&mut slot).expect("root may load the task iterator");
        let named = || std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let before = named();
        let cost = tasks.entry_cost().expect("every kernel that has BTF has an event for a renamed task");
        assert!(cost > Duration::ZERO && cost < renaming() * 20, "{cost:?} beside {:?}", renaming());
        assert_eq!(named(), before);
    }

    #[test]
    fn root_snapshot_holds_this_process_and_its_cgroups() {
        let mut slot = MaybeUninit::uninit();
        let mut tasks = Tasks::start(&mut slot).expect("root may load the task iterator");
        let seen = tasks.snapshot().unwrap();
        let me = seen.tasks.iter().find(|t| t.tgid == std::process::id()).expect("this process is listed");
        // SAFETY: takes nothing, cannot fail.
        let uid = unsafe { libc::getuid() };
        assert!(me.uid == uid && me.start_ns > 0, "uid {} and not {uid}", me.uid);
        for id in [me.cpu_cgroup, me.memory_cgroup, me.io_cgroup, me.unified_cgroup] {
            assert!(id == 0 || seen.cgroups.contains_key(&id), "cgroup {id} has no row");
        }
        assert_eq!(tasks.lost(), 0);
    }

    /// One cgroup was there, and empty; one is made after the window began; a task goes into both.
    #[test]
    fn root_a_cgroup_that_is_older_than_the_window_is_not_taken_for_a_new_one() {
        use crate::test_group::{Group, Victim};

        let Some(old) = Group::new("cpu") else { return };
        let mut slot = MaybeUninit::uninit();
        let mut tasks = Tasks::start(&mut slot).expect("root may load the task iterator");
        let start = tasks.snapshot().unwrap();
        let made = old.file("made");
        std::fs::create_dir(&made).unwrap();
        let sleeper = |folder: &std::path::Path| {
            let sleeper = Victim(std::process::Command::new("sleep").arg("60").spawn().unwrap());
            std::fs::write(folder.join("cgroup.procs"), sleeper.0.id().to_string()).unwrap();
            sleeper
        };
        let (one, other) = (sleeper(&old.file("")), sleeper(&made));
        let end = tasks.snapshot().unwrap();
        let group_of = |pid: u32| end.tasks.iter().find(|task| task.pid == pid).unwrap().cpu_cgroup;
        let (was, is) = (group_of(one.0.id()), group_of(other.0.id()));
        drop((one, other));
        while std::fs::remove_dir(&made).is_err() {
            std::thread::yield_now();
        }
        assert!(was == old.key() && !start.cgroups.contains_key(&was) && !start.cgroups.contains_key(&is));
        assert_eq!((end.cgroups[&was].fresh & 1, end.cgroups[&is].fresh & 1), (0, 1));
    }
}
