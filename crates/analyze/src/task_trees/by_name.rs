//! Joins trees of one name in one place.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{TaskTree, TaskTrees};
use crate::Evidence;

/// Trees of one script: trees with a common command are copies. A script that gets different work each time makes several: a
/// judge's, for example.
#[derive(Debug, Default)]
struct Copies<'r>(Vec<(BTreeSet<&'r str>, Option<String>)>);

impl<'r> Copies<'r> {
    fn add(&mut self, commands: BTreeSet<&'r str>) {
        let (alike, mut apart): (Vec<_>, Vec<_>) =
            self.0.drain(..).partition(|(known, _)| !known.is_disjoint(&commands));
        let all = alike.into_iter().flat_map(|(known, _)| known).chain(commands).collect();
        apart.push((all, None));
        self.0 = apart;
    }

    /// The name of the first tree of this script that was joined; else the tree's own name.
    fn name(&mut self, own: String, commands: &BTreeSet<&'r str>) -> String {
        match self.0.iter_mut().find(|(known, _)| !known.is_disjoint(commands)) {
            Some((_, name)) => name.get_or_insert(own).clone(),
            None => own,
        }
    }
}

impl TaskTrees {
    /// Trees of one name in one place become one: jobs of a kind, each in a session of its own. Copies of one script have the name of
    /// the largest: the leading command of a copy depends on what ran in the window. Only processes that ran in the window have a command
    /// line: a tree whose leader did not run is joined with trees whose leader has the same kernel name, if these have one name.
    #[must_use]
    pub fn by_name(ev: &Evidence<'_>) -> Self {
        let mut by_name: BTreeMap<(String, String, Option<u32>), TaskTree> = BTreeMap::new();
        let tasks = ev.tasks().unwrap_or_default();
        let user =
            |tree: &TaskTree| tree.tasks.first().and_then(|at| tasks.get(*at)).and_then(|task| task.uid);
        let (mut all, mut trees) = (Vec::new(), ev.trees().all.clone());
        // The largest tree gives the name.
        trees.sort_by_key(|tree| std::cmp::Reverse(tree.used_ns));
        let script = |tree: &TaskTree| Some((tree.place()?, tree.script(ev)?, user(tree)));
        let mut scripts: BTreeMap<(String, &str, Option<u32>), Copies<'_>> = BTreeMap::new();
        for (tree, script) in trees.iter().filter_map(|tree| Some((tree, script(tree)?))) {
            scripts.entry(script).or_default().add(tree.commands(tasks));
        }
        let kind =
            |tree: &TaskTree| tree.leader(ev).map(|task| (tree.place(), task.comm.as_str(), user(tree)));
        let mut told: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        let mut named = Vec::new();
        for tree in trees {
            let own = tree.subject(ev).name;
            let name = match script(&tree).and_then(|script| scripts.get_mut(&script)) {
                Some(copies) => Some(copies.name(own, &tree.commands(tasks))),
                None => tree.leader(ev).is_some_and(|task| task.cmdline.is_some()).then_some(own),
            };
            if let Some((kind, name)) = kind(&tree).zip(name.clone()) {
                told.entry(kind).or_default().insert(name);
            }
            named.push((tree, name));
        }
        for (tree, name) in named {
            let Some(place) = tree.place() else {
                all.push(tree);
                continue;
            };
            let of_kind = || told.get(&kind(&tree)?).filter(|names| names.len() == 1)?.first().cloned();
            // A sleeping process of that name may be any program: the shell of a terminal.
            let name = name
                .or_else(|| of_kind().filter(|_| !tree.is_asleep(tasks)))
                .unwrap_or_else(|| tree.subject(ev).name);
            match by_name.entry((place, name, user(&tree))) {
                Entry::Vacant(free) => {
                    free.insert(tree);
                }
                Entry::Occupied(mut known) => known.get_mut().join(tree),
            }
        }
        all.extend(by_name.into_values());
        TaskTrees { all }
    }
}
