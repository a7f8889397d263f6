//! Which CPUs are measured and sampled: not those that one process has for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::bpf::tasks::tasks_one;
use crate::host;

/// The most real-time tasks whose CPU is looked up; a host with more of them is a real-time host.
const MOST_ASKED: usize = 256;
/// A task that is bound to so few CPUs owns them.
const OWNED: u32 = 8;
const PF_KTHREAD: u32 = 0x0020_0000; // include/linux/sched.h

/// CPUs that the kernel's command line keeps free, and why: tasks there must not be disturbed by our timer.
pub fn isolated(root: &Path) -> BTreeMap<u32, &'static str> {
    let mut isolated = BTreeMap::new();
    for (file, why) in [("isolated", "it is isolated"), ("nohz_full", "it runs without a tick (nohz_full)")] {
        for cpu in host::cpu_list(&root.join("sys/devices/system/cpu").join(file)) {
            isolated.entry(cpu).or_insert(why);
        }
    }
    isolated
}

/// CPUs that are online and not kept free; all that are online, if there are no others.
pub fn unisolated(root: &Path) -> Vec<u32> {
    let (online, isolated) = (host::online_cpus(root), isolated(root));
    let open: Vec<u32> = online.iter().copied().filter(|cpu| !isolated.contains_key(cpu)).collect();
    if open.is_empty() { online } else { open }
}

/// The CPUs among `cpus` that no process has for itself: a sampler there does not disturb a process that was given a CPU alone.
pub fn unowned(cpus: &[u32], owned: &BTreeMap<u32, u32>) -> Vec<u32> {
    cpus.iter().copied().filter(|cpu| !owned.contains_key(cpu)).collect()
}

/// CPUs that one process has for itself, by its id: the masks of all other processes keep them off (a partition of cpusets, an
/// exclusive core). A CPU is not a process's own just because that process is bound to it. Bits of a mask beyond the `online` CPUs
/// mean nothing; if `online` is empty, all bits count.
pub fn owned(tasks: &[tasks_one], online: &[u32]) -> BTreeMap<u32, u32> {
    let users = tasks.iter().filter(|task| task.flags & PF_KTHREAD == 0);
    let mut owners: BTreeMap<u32, Option<u32>> = BTreeMap::new();
    let (mut first, mut differ) = (None, false);
    for task in users {
        let mut allowed = task.allowed;
        if !online.is_empty() {
            keep(&mut allowed, online);
        }
        differ |= *first.get_or_insert(allowed) != allowed;
        for cpu in bits(&allowed) {
            let owner = owners.entry(cpu).or_insert(Some(task.tgid));
            *owner = owner.filter(|owner| *owner == task.tgid);
        }
    }
    // A namespace with one process shows nothing about the host.
    owners.into_iter().filter_map(|(cpu, owner)| Some((cpu, owner.filter(|_| differ)?))).collect()
}

fn keep(words: &mut [u64], cpus: &[u32]) {
    let has = |word: usize, bit: u32| cpus.binary_search(&(word as u32 * 64 + bit)).is_ok();
    for (at, word) in words.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
        *word &= (0..64).filter(|bit| has(at, *bit)).fold(0, |kept, bit| kept | 1 << bit);
    }
}

fn bits(words: &[u64]) -> impl Iterator<Item = u32> {
    let words = words.iter().zip(0u32..);
    words.flat_map(|(word, at)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit))
}

/// CPUs that must not be measured, and why.
pub fn spared(root: &Path, tasks: &[tasks_one]) -> BTreeMap<u32, String> {
    let isolated = isolated(root).into_iter();
    let mut spared: BTreeMap<u32, String> =
        isolated.map(|(cpu, why)| (cpu, format!("{why}; --all-cpus measures it"))).collect();
    for (cpu, owner) in owned(tasks, &host::online_cpus(root)) {
        let why = format!("a process has it for itself (pid {owner}); --all-cpus measures it");
        spared.entry(cpu).or_insert(why);
    }
    let urgent = tasks.iter().filter(|task| is_urgent(task)).take(MOST_ASKED);
    for task in urgent {
        for cpu in places(root, task) {
            let why = format!("a real-time task runs on it (pid {}); --all-cpus measures it", task.pid);
            spared.entry(cpu).or_insert(why);
        }
    }
    spared
}

/// A real-time or deadline task of a user. The kernel's own ones (migration, watchdog, threaded interrupts) are everywhere.
fn is_urgent(task: &tasks_one) -> bool {
    const FIFO: u32 = 1;
    const RR: u32 = 2;
    const DEADLINE: u32 = 6;
    matches!(task.policy, FIFO | RR | DEADLINE) && task.flags & PF_KTHREAD == 0
}

/// The CPU where it ran last, and the CPUs that it is bound to.
fn places(root: &Path, task: &tasks_one) -> BTreeSet<u32> {
    let stat = root.join(format!("proc/{}/stat", task.pid));
    let mut places: BTreeSet<u32> =
        std::fs::read_to_string(stat).ok().and_then(|text| processor(&text)).into_iter().collect();
    if task.allowed_count <= OWNED {
        places.extend(bits(&task.allowed));
    }
    places
}

/// Field 39 of /proc/PID/stat; the name in field 2 may hold anything.
fn processor(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(policy: u32, flags: u32, allowed: u64) -> tasks_one {
        let mut task = tasks_one { policy, flags, pid: 7, ..tasks_one::default() };
        task.allowed[0] = allowed;
        task.allowed_count = allowed.count_ones();
        task
    }

    #[test]
    fn cpus_that_somebody_keeps_for_himself_are_spared() {
        let folder = std::env::temp_dir().join(format!("whyslow-test-which-{}", std::process::id()));
        let cpus = folder.join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpus).unwrap();
        std::fs::write(cpus.join("isolated"), "2\n").unwrap();
        std::fs::write(cpus.join("nohz_full"), "2-3\n").unwrap();
        let another = tasks_one { tgid: 9, ..task(0, 0, 1) };
        let spared =
            spared(&folder, &[task(1, 0, 0b10_0000), task(1, PF_KTHREAD, 1), task(0, 0, 1), another]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(spared.keys().copied().collect::<Vec<_>>(), [2, 3, 5]);
        assert!(spared[&2].starts_with("it is isolated") && spared[&5].starts_with("a process has it"));
    }

    #[test]
    fn samplers_go_where_no_process_has_a_cpu_for_itself() {
        let owned = BTreeMap::from([(0, 7), (3, 9)]);
        assert_eq!(unowned(&[0, 1, 2, 3, 4], &owned), [1, 2, 4]);
        assert_eq!(unowned(&[0, 3], &owned), [0; 0]);
        assert_eq!(unowned(&[0, 3], &BTreeMap::new()), [0, 3]);
    }

    #[test]
    fn a_cpu_is_owned_if_all_others_are_kept_off_it() {
        let of = |tgid: u32, allowed: u64| tasks_one { tgid, ..task(0, 0, allowed) };
        // All may use 0-1; 2 belongs to process 7 with two threads; on 3 are two processes.
        let tasks = [of(1, 0b11), of(2, 0b11), of(7, 0b100), of(7, 0b100), of(8, 0b1000), of(9, 0b1000)];
        assert_eq!(owned(&tasks, &[]), BTreeMap::from([(2, 7)]));
        let mut torn = tasks;
        torn[0].allowed[5] = 1;
        assert_eq!(owned(&torn, &[0, 1, 2, 3]), BTreeMap::from([(2, 7)]), "CPU 320 does not exist");
        // One worker is bound to each CPU, but other tasks may use the CPUs as well.
        assert_eq!(owned(&[of(1, 0b11), of(2, 0b11), of(7, 0b01), of(8, 0b10)], &[]), BTreeMap::new());
        assert_eq!(owned(&[of(1, 0b11)], &[]), BTreeMap::new());
        let mut kernel = of(2, 0b100);
        kernel.flags = PF_KTHREAD;
        assert_eq!(owned(&[of(1, 0b11), of(3, 0b11), of(7, 0b100), kernel], &[]), BTreeMap::from([(2, 7)]));
    }

    #[test]
    fn the_cpu_it_ran_on_last_is_found_behind_any_name() {
        let mut stat = "7 (a) b) S".to_owned();
        stat.push_str(&" 1".repeat(35));
        stat.push_str(" 3 0 0");
        assert_eq!(processor(&stat), Some(3));
        assert_eq!((processor(""), processor("7 (x"), processor("7 (x) S 1")), (None, None, None));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            processor(&text);
        }
    }
}
