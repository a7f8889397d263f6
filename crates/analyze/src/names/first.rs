//! The first command of a cgroup's tree: the name of a group without an owner. The oldest process of a job is the one that was
//! started there; all others are its children, or came later.

use whyslow_model::Recording;
use whyslow_model::table::Task;

use crate::hashing::{Table, with_room};

/// A process, older ones first.
type Oldest<'r> = (u64, u32, &'r str);

/// The oldest process by path.
#[derive(Debug, Default)]
pub(super) struct First<'r>(Table<&'r str, Oldest<'r>>);

impl<'r> First<'r> {
    /// The hierarchies of v1 each have a group of the same path: they count as one.
    pub fn of(rec: &'r Recording) -> Self {
        let groups = rec.tables.cgroups.as_deref().unwrap_or_default();
        let paths: Table<u64, &str> = groups.iter().map(|group| (group.id, group.path.as_str())).collect();
        let mut all: Table<&str, Oldest<'_>> = with_room(paths.len());
        for task in rec.tables.tasks.iter().flatten().filter(|task| is_process(task)) {
            let one = (task.begun_ns, task.pid, task.comm.as_str());
            for home in [task.unified_cgroup, task.cpu_cgroup, task.memory_cgroup, task.io_cgroup] {
                if let Some(path) = paths.get(&home) {
                    all.entry(path).and_modify(|first| *first = one.min(*first)).or_insert(one);
                }
            }
        }
        let mut first = First(all);
        first.climb(paths.values().copied());
        first
    }

    /// A group without processes takes the first command of the only group below it that has some; with several such groups it has none.
    fn climb(&mut self, paths: impl Iterator<Item = &'r str>) {
        let depth = |path: &str| path.bytes().filter(|byte| *byte == b'/').count();
        let mut by_depth: Vec<(usize, &str)> = paths.map(|path| (depth(path), path)).collect();
        by_depth.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        by_depth.dedup();
        let mut below: Table<&str, Option<Oldest<'_>>> = Table::default();
        for (_, path) in by_depth {
            let only = below.get(path).copied().flatten();
            if let (None, Some(only)) = (self.0.get(path), only) {
                self.0.insert(path, only);
            }
            let is_populated = self.0.contains_key(path) || below.contains_key(path);
            if let Some((above, _)) = path.rsplit_once('/').filter(|_| is_populated) {
                let one = self.0.get(path).copied();
                below.entry(above).and_modify(|only| *only = None).or_insert(one);
            }
        }
    }

    /// The number and the name of the first process of the tree at `path`.
    pub fn of_tree(&self, path: &str) -> Option<(u32, &'r str)> {
        self.0.get(path).map(|(_, pid, comm)| (*pid, *comm))
    }
}

/// For other rows the start is not known, or they are no processes.
fn is_process(task: &Task) -> bool {
    task.pid == task.tgid && task.begun_ns > 0 && task.folded == 0 && !task.kthread && !task.comm.is_empty()
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Cgroup, Tables};

    use super::*;

    #[test]
    fn the_oldest_of_a_tree_is_its_first_and_of_several_trees_none() {
        let group = |id, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
        let task = |pid, begun_ns, home, comm: &str| Task {
            pid,
            tgid: pid,
            begun_ns,
            unified_cgroup: home,
            comm: comm.into(),
            ..Task::default()
        };
        let groups = vec![
            group(1, "/"),
            group(2, "/jobs"),
            group(3, "/jobs/17"),
            group(4, "/a/b/c"),
            group(5, "/a/b"),
            group(6, "/jobs/18"),
        ];
        let mut tasks =
            vec![task(9, 7, 3, "cc1"), task(4711, 5, 3, "make"), task(8, 5, 4, "job"), task(7, 0, 6, "old")];
        let of = |tasks: &[Task], path| {
            let tables =
                Tables { cgroups: Some(groups.clone()), tasks: Some(tasks.to_vec()), ..Tables::default() };
            let rec = Recording { tables, ..Recording::default() };
            First::of(&rec).of_tree(path).map(|(pid, comm)| (pid, comm.to_owned()))
        };
        assert_eq!(of(&tasks, "/jobs/17"), Some((4711, "make".into())));
        assert_eq!(of(&tasks, "/jobs"), Some((4711, "make".into())), "no other process is below");
        assert_eq!(of(&tasks, "/a/b"), Some((8, "job".into())));
        assert_eq!(of(&tasks, "/jobs/18"), None, "when it began is not known");
        tasks.push(task(5, 3, 6, "other"));
        assert_eq!(of(&tasks, "/jobs"), None, "two trees have no first command");
    }
}
