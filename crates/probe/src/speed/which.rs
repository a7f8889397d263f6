//! Which CPUs are measured: not those that their owner keeps for himself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::bpf::tasks::tasks_one;
use crate::host;

/// Real-time tasks whose CPU is asked for; a host with more of them is a real-time host.
const MOST_ASKED: usize = 256;
/// A task bound to so few CPUs owns them.
const OWNED: u32 = 8;
const PF_KTHREAD: u32 = 0x0020_0000; // include/linux/sched.h

/// CPUs that are not to be measured, and why.
pub fn spared(root: &Path, tasks: &[tasks_one]) -> BTreeMap<u32, String> {
    let mut spared = BTreeMap::new();
    for (file, why) in [("isolated", "it is isolated"), ("nohz_full", "it runs without a tick (nohz_full)")] {
        for cpu in host::cpu_list(&root.join("sys/devices/system/cpu").join(file)) {
            spared.entry(cpu).or_insert_with(|| format!("{why}; --all-cpus measures it"));
        }
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

/// A real-time or deadline task of a user. The kernel's own (migration, watchdog, threaded interrupts) are everywhere.
fn is_urgent(task: &tasks_one) -> bool {
    const FIFO: u32 = 1;
    const RR: u32 = 2;
    const DEADLINE: u32 = 6;
    matches!(task.policy, FIFO | RR | DEADLINE) && task.flags & PF_KTHREAD == 0
}

/// Where it ran last, and the CPUs that it is bound to.
fn places(root: &Path, task: &tasks_one) -> BTreeSet<u32> {
    let stat = root.join(format!("proc/{}/stat", task.pid));
    let mut places: BTreeSet<u32> =
        std::fs::read_to_string(stat).ok().and_then(|text| processor(&text)).into_iter().collect();
    if task.allowed_count <= OWNED {
        let words = task.allowed.iter().zip(0u32..);
        places.extend(words.flat_map(|(word, at)| {
            (0..64u32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        }));
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
        let spared = spared(&folder, &[task(1, 0, 0b10_0000), task(1, PF_KTHREAD, 1), task(0, 0, 1)]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(spared.keys().copied().collect::<Vec<_>>(), [2, 3, 5]);
        assert!(spared[&2].starts_with("it is isolated") && spared[&5].contains("pid 7"));
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
