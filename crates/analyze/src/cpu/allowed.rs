//! Which CPUs a task may use, and which of them are common, that is, open to all tasks.
//!
//! Some CPUs are reserved: `isolcpus` and `nohz_full` on the kernel's command line, partitions of cpusets, exclusive
//! CPUs that the kubelet hands out. Reserved CPUs are idle on purpose, a task that may not use them is not bound by that, and no
//! task is sent there. The other CPUs are common: a task is bound if it may not use all of the common CPUs.

use whyslow_model::table::Task;

use crate::Evidence;
use crate::cpu::numbers;
use crate::hashing::Table;
use crate::parse::cpulist::{self, CpuList};
use crate::parse::kubelet;

/// CONFIG_NR_CPUS is 8192 at most on x86 and arm64.
const MOST: u32 = 8192;

/// A set of CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Cpus(Vec<u64>);

impl Cpus {
    /// The first `n`.
    #[must_use]
    pub fn first(n: u32) -> Self {
        (0..n.min(MOST)).collect()
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Whether the CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.0.iter().zip(0u32..);
        words.flat_map(|(word, at)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    /// The CPUs that are in `other`, too.
    #[must_use]
    pub fn and(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect()).trimmed()
    }

    /// The CPUs that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Cpus) -> Cpus {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        Cpus(self.0.iter().zip(others).map(|(a, b)| a & !b).collect()).trimmed()
    }

    /// Equal sets have equal words.
    fn trimmed(mut self) -> Cpus {
        let words = self.0.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        self.0.truncate(words);
        self
    }

    /// No CPU of the set is outside `other`.
    #[must_use]
    pub fn are_in(&self, other: &Cpus) -> bool {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter().zip(others).all(|(a, b)| a & !b == 0)
    }

    /// At least one CPU of the set is in `other`.
    #[must_use]
    pub fn meet(&self, other: &Cpus) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    /// As the kernel writes them: "0-3,8".
    #[must_use]
    pub fn list(&self) -> String {
        numbers::list(&self.iter().collect::<Vec<_>>())
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Cpus::default();
        for cpu in cpus.into_iter().filter(|cpu| *cpu < MOST) {
            let word = cpu as usize / 64;
            if set.0.len() <= word {
                set.0.resize(word + 1, 0);
            }
            set.0[word] |= 1 << (cpu % 64);
        }
        set
    }
}

impl From<&CpuList> for Cpus {
    fn from(list: &CpuList) -> Self {
        let ranges = list.ranges().into_iter().take_while(|(first, _)| *first < MOST);
        ranges.flat_map(|(first, last)| first..=last.min(MOST - 1)).collect()
    }
}

/// How many different masks are distinguished: each is compared with each other one. A host has some masks for each of its CPUs;
/// masks beyond this number count as not known.
const MOST_MASKS: usize = 4_096;

/// The masks of all tasks of a recording.
#[derive(Debug, Default)]
pub struct Allowed {
    online: Cpus,
    common: Cpus,
    /// Different masks, as far as their CPUs are online.
    masks: Vec<Cpus>,
    /// For each task the index of its mask; `None`: not known.
    of_task: Vec<Option<usize>>,
}

impl Allowed {
    /// The masks of these tasks.
    #[must_use]
    pub fn of(ev: &Evidence<'_>, tasks: &[Task]) -> Self {
        let online = online(ev);
        let (mut masks, mut known): (Vec<Cpus>, Table<&str, Option<usize>>) = Default::default();
        let mut numbers: Table<Cpus, usize> = Table::default();
        let mut mask = |task: &'_ Task, text| {
            *known.entry(text).or_insert_with(|| {
                let set = Cpus::from(&cpulist::parse(&task.allowed).ok()?).and(&online);
                if let Some(number) = numbers.get(&set) {
                    return Some(*number);
                }
                (!set.is_empty() && masks.len() < MOST_MASKS).then(|| {
                    numbers.insert(set.clone(), masks.len());
                    masks.push(set);
                    masks.len() - 1
                })
            })
        };
        let of_task: Vec<Option<usize>> =
            tasks.iter().map(|task| mask(task, task.allowed.as_str())).collect();
        let common = common(ev, tasks, &online, &masks, &of_task);
        Allowed { online, common, masks, of_task }
    }

    /// CPUs that are online.
    #[must_use]
    pub fn online(&self) -> &Cpus {
        &self.online
    }

    /// The common CPUs.
    #[must_use]
    pub fn common(&self) -> &Cpus {
        &self.common
    }

    /// Different masks.
    #[must_use]
    pub fn masks(&self) -> &[Cpus] {
        &self.masks
    }

    /// The index of a task's mask, if that is known.
    #[must_use]
    pub fn number(&self, task: usize) -> Option<usize> {
        self.of_task.get(task).copied().flatten()
    }

    /// The CPUs that a task may use, if that is known.
    #[must_use]
    pub fn mask(&self, task: usize) -> Option<&Cpus> {
        self.masks.get(self.number(task)?)
    }

    /// The task may not use some of the common CPUs.
    #[must_use]
    pub fn is_bound(&self, task: usize) -> bool {
        self.mask(task).is_some_and(|mask| !self.common.are_in(mask))
    }
}

fn online(ev: &Evidence<'_>) -> Cpus {
    let listed = ev.file("sys/devices/system/cpu/online", cpulist::parse).map(|list| Cpus::from(&list));
    listed.ok().filter(|set| !set.is_empty()).unwrap_or_else(|| Cpus::first(ev.recording().meta.cpus.max(1)))
}

/// At least this part of all tasks must have a mask inside pid 1's, or pid 1 is a special case and its mask does not count.
const MOST_TASKS: f64 = 0.5;

fn common(
    ev: &Evidence<'_>,
    tasks: &[Task],
    online: &Cpus,
    masks: &[Cpus],
    of_task: &[Option<usize>],
) -> Cpus {
    let mut common = online.clone();
    for file in ["isolated", "nohz_full"] {
        // Without the option the file is empty, or "(null)".
        if let Ok(list) = ev.file(&format!("sys/devices/system/cpu/{file}"), cpulist::parse) {
            common = common.without(&Cpus::from(&list));
        }
    }
    if let Ok(Some(shared)) = ev.file("var/lib/kubelet/cpu_manager_state", kubelet::shared_cpus) {
        common = common.and(&Cpus::from(&shared));
    }
    // A task without a mask of its own has the mask that it inherited from pid 1: partitions of cpusets, systemd's CPUAffinity.
    let mask = |at: usize| of_task.get(at).copied().flatten().and_then(|mask| masks.get(mask));
    let first = tasks.iter().position(|task| task.pid == 1 && !task.kthread).and_then(mask);
    if let Some(first) = first {
        let users = || tasks.iter().enumerate().filter(|(_, task)| !task.kthread);
        let like_it = users().filter(|(at, _)| mask(*at).is_none_or(|mask| mask.are_in(first))).count();
        if like_it as f64 >= MOST_TASKS * users().count() as f64 {
            common = common.and(first);
        }
    }
    if common.is_empty() { online.clone() } else { common }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    /// Four CPUs; tasks with these masks, the first of which is pid 1.
    fn host(masks: &[&str]) -> Fixture {
        let mut host = Fixture::second().end("sys/devices/system/cpu/online", "0-3\n");
        host.0.meta.cpus = 4;
        let task =
            |(mask, at): (&&str, u32)| Task { pid: at, allowed: (*mask).to_owned(), ..Task::default() };
        host.with(|tables| tables.tasks = Some(masks.iter().zip(1..).map(task).collect()))
    }

    /// The common CPUs, and which of the tasks are bound.
    fn bound(host: &Fixture) -> (String, Vec<u32>) {
        let tasks = host.ev().tasks().unwrap().to_vec();
        let allowed = Allowed::of(&host.ev(), &tasks);
        let bound = tasks.iter().enumerate().filter(|(at, _)| allowed.is_bound(*at));
        (allowed.common().list(), bound.map(|(_, task)| task.pid).collect())
    }

    #[test]
    fn task_barred_from_some_cpus_is_bound() {
        assert_eq!(bound(&host(&["0-3", "0-3", "0", "0-1,3", "", "x"])), ("0-3".into(), vec![3, 4]));
    }

    /// Each mask is compared with each other one: their number has a bound, and a mask beyond it is not known, so its task is not bound.
    #[test]
    fn different_masks_have_a_bound() {
        let mut host = Fixture::second();
        host.0.meta.cpus = 8_192;
        let all = MOST_MASKS as u32 + 500;
        let task = |at: u32| Task { pid: at + 1, allowed: format!("{at},{}", at + 1), ..Task::default() };
        let host = host
            .end("sys/devices/system/cpu/online", "0-8191\n")
            .with(|tables| tables.tasks = Some((0..all).map(task).collect()));
        let tasks = host.ev().tasks().unwrap().to_vec();
        let allowed = Allowed::of(&host.ev(), &tasks);
        assert_eq!(allowed.masks().len(), MOST_MASKS);
        let last = tasks.len() - 1;
        assert_eq!((allowed.number(last), allowed.is_bound(last)), (None, false));
        assert!(allowed.is_bound(0) && allowed.mask(0).unwrap().meet(allowed.mask(1).unwrap()));
        assert!(!allowed.mask(0).unwrap().meet(allowed.mask(2).unwrap()));
    }

    #[test]
    fn isolated_cpus_are_nobodys_business() {
        for (file, text) in [("isolated", "2-3\n"), ("nohz_full", "2-3\n")] {
            let host =
                host(&["0-1", "0-1", "0-3", "0", "3"]).end(&format!("sys/devices/system/cpu/{file}"), text);
            assert_eq!(bound(&host), ("0-1".into(), vec![4, 5]), "{file}");
        }
        let none = host(&["0-3", "1-3"]).end("sys/devices/system/cpu/nohz_full", "(null)\n");
        assert_eq!(bound(&none), ("0-3".into(), vec![2]));
    }

    #[test]
    fn a_partition_is_seen_by_the_mask_that_pid_1_handed_down() {
        assert_eq!(bound(&host(&["0-1", "0-1", "0", "2-3"])), ("0-1".into(), vec![3, 4]));
        // Pid 1 itself has an affinity mask of its own.
        assert_eq!(bound(&host(&["0", "0-3", "0-3", "0-3"])).0, "0-3");
    }

    #[test]
    fn exclusive_cpus_of_the_kubelet_are_their_containers() {
        let state =
            r#"{"policyName":"static","defaultCpuSet":"0-1","entries":{"u":{"c":"2-3"}},"checksum":1}"#;
        let host = host(&["0-3", "0-1", "0-1", "0", "2-3"]).end("var/lib/kubelet/cpu_manager_state", state);
        assert_eq!(bound(&host), ("0-1".into(), vec![4, 5]));
    }

    #[test]
    fn offline_cpus_do_not_count() {
        let host = host(&["0-7", "0-7", "0-3", "2-5"]);
        assert_eq!(bound(&host), ("0-3".into(), vec![4]));
        let all_isolated = host.end("sys/devices/system/cpu/isolated", "0-7\n");
        assert_eq!(bound(&all_isolated).0, "0-3", "if all CPUs are isolated, all are common");
    }

    #[test]
    fn sets_are_as_lists() {
        let set = Cpus::from_iter([0, 1, 65, 9999]);
        assert_eq!((set.list().as_str(), set.count()), ("0-1,65", 3));
        let low = set.and(&Cpus::first(64));
        assert_eq!((low.clone(), low.without(&set)), (Cpus::first(2), Cpus::default()));
        assert!(low.are_in(&set) && !set.are_in(&low));
        assert_eq!(Cpus::from(&cpulist::parse("0-4294967295").unwrap()).count(), MOST);
    }
}
