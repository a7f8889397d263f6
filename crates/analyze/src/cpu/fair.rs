//! How much CPU each task would get from an ideal scheduler: weighted max-min fairness over the tree of cgroups.
//!
//! CFS and EEVDF aim at this over a window (kernel: Documentation/scheduler/sched-design-CFS.rst): at each level of
//! the tree siblings share by weight, no task gets more than it wants, and what one leaves the others take. Affinity is
//! modelled by giving the tasks of one mask no more than the CPUs of the mask. Not modelled: caches, SMT, wake-up latency.
//!
//! A host has thousands of groups, and hundreds of them are asked "what if". So the tree is built and sorted once
//! (`Shares::of`), and a question visits only the nodes that it changes and the tasks that it asks for.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::MAX_DEPTH;
use crate::hashing::{Table, with_room};

mod claims;
use claims::{Claim, Claims};

/// A task that wants CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Want<'t> {
    /// The cgroup of the task.
    pub group: u64,
    /// CPU time it would use if it never waited.
    pub wants: f64,
    /// Its weight among its siblings (1024 at nice 0).
    pub weight: f64,
    /// CPUs it may use, as any text that is equal for equal masks; empty: all.
    pub mask: &'t str,
    /// The number of CPUs in the mask.
    pub mask_cpus: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Its parent; a parent that is not in the tree makes it a root.
    pub parent: u64,
    /// Its weight among its siblings.
    pub weight: f64,
    /// CPU time it may use at most (a quota), if it has one.
    pub cap: Option<f64>,
}

/// The weight of a task that is served before all others, in group 0, above all groups: the weights of a thousand groups are a
/// millionth of it, and sums of both are still exact.
pub const BEFORE_ALL: f64 = 1e12;

/// The change of a counterfactual.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// These groups have no cap.
    pub uncapped: BTreeSet<u64>,
    /// These tasks (places in the list) may use any CPU.
    pub unmasked: BTreeSet<usize>,
    /// These tasks want this much CPU time instead.
    pub wants: BTreeMap<usize, f64>,
}

/// A node of the tree: the root, above all groups, is the first.
#[derive(Debug, Default)]
struct Node {
    parent: usize,
    depth: usize,
    weight: f64,
    cap: Option<f64>,
    children: Vec<usize>,
    members: Vec<usize>,
    /// What its children and members want together; the node asks its parent for no more than its cap.
    wanted: f64,
    queue: Queue,
}

impl Node {
    fn demand(&self, wanted: f64, uncapped: bool) -> f64 {
        self.cap.filter(|_| !uncapped).map_or(wanted, |cap| wanted.min(cap)).max(0.0)
    }
}

/// Claims (amount, weight) on one capacity, sorted by amount per weight, as running sums.
#[derive(Debug, Default)]
struct Queue {
    levels: Vec<f64>,
    /// Of the first n claims: amount, weight.
    sums: Vec<(f64, f64)>,
}

impl Queue {
    fn of(claims: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut sorted: Vec<(f64, f64, f64)> = claims.map(|(c, w)| (c / w, c, w)).collect();
        if sorted.is_empty() {
            return Queue::default(); // most groups of a host are empty
        }
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sums = Vec::with_capacity(sorted.len() + 1);
        let (mut amount, mut weight) = (0.0, 0.0);
        sums.push((amount, weight));
        for (_, c, w) in &sorted {
            (amount, weight) = (amount + c, weight + w);
            sums.push((amount, weight));
        }
        Queue { levels: sorted.into_iter().map(|(level, ..)| level).collect(), sums }
    }

    fn all(&self) -> (f64, f64) {
        self.sums.last().copied().unwrap_or_default()
    }

    /// What all take together if no claim gets more than `level` for a weight of one.
    fn taken(&self, level: f64) -> f64 {
        let below = self.levels.partition_point(|at| *at <= level);
        let (amount, weight) = self.sums.get(below).copied().unwrap_or_default();
        amount + level * (self.all().1 - weight).max(0.0)
    }

    /// The level at which `capacity` is used up, where claims are changed: (amount before, amount now, weight).
    fn level(&self, changed: &[Claim], capacity: f64) -> f64 {
        let differs: f64 = changed.iter().map(|(before, now, _)| now - before).sum();
        if self.all().0 + differs <= capacity {
            return f64::INFINITY;
        }
        let taken = |level: f64| {
            let one = |(before, now, weight): &Claim| now.min(level * weight) - before.min(level * weight);
            self.taken(level) + changed.iter().map(one).sum::<f64>()
        };
        let highest = changed.iter().map(|(_, now, weight)| now / weight);
        let (mut low, mut high) = (0.0, highest.fold(self.levels.last().copied().unwrap_or(0.0), f64::max));
        // After 60 halvings the interval is smaller than the precision of the sums.
        for _ in 0..60 {
            let middle = low + (high - low) / 2.0;
            if taken(middle) <= capacity { low = middle } else { high = middle }
        }
        low
    }
}

/// The CPU time that each task gets.
#[derive(Debug)]
pub struct Shares {
    capacity: f64,
    cpu: f64,
    nodes: Vec<Node>,
    by_id: Table<u64, usize>,
    /// For each task: its node, its weight, what it can use at most.
    tasks: Vec<(usize, f64, f64)>,
    wants: Vec<f64>,
    /// Tasks of one mask, and how many CPUs it has.
    masks: Vec<(Vec<usize>, f64)>,
    /// For each task its mask, if any.
    mask_of: Vec<Option<usize>>,
    known: RefCell<Known>,
}

/// The intermediate results of one question, by index. The memory is kept from question to question, so that none has to clear all of it.
#[derive(Debug, Default)]
struct Memo<T> {
    question: u64,
    of: Vec<(u64, T)>,
}

impl<T: Copy + Default> Memo<T> {
    fn places(n: usize) -> Self {
        Memo { question: 0, of: vec![(0, T::default()); n] }
    }

    /// Begins the next question: nothing is known yet.
    fn forget(&mut self) {
        self.question += 1;
    }

    fn get(&self, at: usize) -> Option<T> {
        self.of.get(at).filter(|(question, _)| *question == self.question).map(|(_, found)| *found)
    }

    fn set(&mut self, at: usize, found: T) {
        if let Some(known) = self.of.get_mut(at) {
            *known = (self.question, found);
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    /// What a task can use at most, by task: only tasks for which the change may matter.
    limits: Memo<f64>,
    /// How much a node gives for a weight of one, by node.
    levels: Memo<f64>,
    /// The index of a changed node among the changed ones, by node.
    changed: Memo<usize>,
    /// The last change and its nodes: the same change is often asked for some tasks first, and then for all.
    asked: Option<(Change, Table<usize, Changed>)>,
}

impl Shares {
    /// Shares of `capacity` in all. `cpu` is what one CPU can give.
    #[must_use]
    pub fn of(wants: &[Want<'_>], groups: &BTreeMap<u64, Group>, capacity: f64, cpu: f64) -> Self {
        let (mut masks, mut mask_of) = (Vec::<(Vec<usize>, f64)>::new(), vec![None; wants.len()]);
        let mut by_mask: Table<&str, usize> = Table::default();
        for (at, want) in wants.iter().enumerate().filter(|(_, w)| !w.mask.is_empty()) {
            let mask = *by_mask.entry(want.mask).or_insert_with(|| {
                masks.push((Vec::new(), want.mask_cpus));
                masks.len() - 1
            });
            masks[mask].0.push(at);
            mask_of[at] = Some(mask);
        }
        let mut by_id = with_room(groups.len());
        by_id.extend(groups.keys().enumerate().map(|(at, id)| (*id, at + 1)));
        let (nodes, order) = tree(groups, &by_id);
        let task = |w: &Want<'_>| (by_id.get(&w.group).copied().unwrap_or(0), w.weight.max(1.0), 0.0);
        let mut shares = Shares {
            capacity: capacity.max(0.0),
            cpu,
            tasks: wants.iter().map(task).collect(),
            wants: wants.iter().map(|w| w.wants).collect(),
            nodes,
            by_id,
            masks,
            mask_of,
            known: RefCell::default(),
        };
        let (tasks, nodes) = (shares.tasks.len(), shares.nodes.len());
        *shares.known.get_mut() = Known {
            limits: Memo::places(tasks),
            levels: Memo::places(nodes),
            changed: Memo::places(nodes),
            asked: None,
        };
        shares.limit();
        shares.sum_up(&order);
        shares
    }

    /// What each task can use at most, given that the tasks of one mask share its CPUs.
    fn limit(&mut self) {
        let Shares { tasks, wants, masks, cpu, .. } = self;
        for (task, wants) in tasks.iter_mut().zip(wants.iter()) {
            task.2 = wants.clamp(0.0, *cpu);
        }
        for (members, cpus) in masks {
            let level =
                Queue::of(members.iter().map(|at| (tasks[*at].2, tasks[*at].1))).level(&[], *cpus * *cpu);
            for at in members.iter() {
                tasks[*at].2 = tasks[*at].2.min(level * tasks[*at].1);
            }
        }
    }

    /// Sums up demands from the leaves up: `order` has parents before their children.
    fn sum_up(&mut self, order: &[usize]) {
        for (at, (node, ..)) in self.tasks.iter().enumerate() {
            self.nodes[*node].members.push(at);
        }
        for at in order.iter().rev() {
            let node = &self.nodes[*at];
            let members = node.members.iter().map(|at| (self.tasks[*at].2, self.tasks[*at].1));
            let children = node.children.iter().map(|at| {
                let child = &self.nodes[*at];
                (child.demand(child.wanted, false), child.weight)
            });
            let queue = Queue::of(members.chain(children));
            let node = &mut self.nodes[*at];
            node.wanted = queue.all().0;
            node.queue = queue;
        }
    }

    /// CPU time for each task.
    #[must_use]
    pub fn all(&self) -> Vec<f64> {
        self.with(&Change::default(), 0..self.tasks.len()).into_iter().map(|(_, got)| got).collect()
    }

    /// CPU time for the tasks `whom` if `change` were so.
    pub fn with(&self, change: &Change, whom: impl IntoIterator<Item = usize>) -> Vec<(usize, f64)> {
        let Known { limits, levels, changed, asked } = &mut *self.known.borrow_mut();
        if asked.as_ref().is_none_or(|(before, _)| before != change) {
            limits.forget();
            levels.forget();
            changed.forget();
            let others = self.changed_limits(change, limits);
            *asked = Some((change.clone(), self.changed_nodes(change, &others, changed)));
        }
        let none = Table::default();
        let changes = asked.as_ref().map_or(&none, |(_, changes)| changes);
        let mut got = |at: usize| {
            let (node, weight, most) = *self.tasks.get(at)?;
            let most = limits.get(at).unwrap_or(most);
            let level = levels.get(node).unwrap_or_else(|| self.level(node, changes, levels));
            Some(most.min(level * weight))
        };
        whom.into_iter().map(|at| (at, got(at).unwrap_or(0.0))).collect()
    }

    /// Tasks that can use another amount after the change, in order, with the new amount.
    fn changed_limits(&self, change: &Change, limits: &mut Memo<f64>) -> Vec<(usize, f64)> {
        let wants = |at: usize| {
            let wants = change.wants.get(&at).or(self.wants.get(at)).copied().unwrap_or(0.0);
            wants.clamp(0.0, self.cpu)
        };
        let mut others = Vec::new();
        let mut masks = BTreeSet::new();
        for at in change.unmasked.iter().chain(change.wants.keys()) {
            limits.set(*at, wants(*at));
            others.push(*at);
            masks.extend(self.mask_of.get(*at).copied().flatten());
        }
        for (members, cpus) in masks.into_iter().filter_map(|mask| self.masks.get(mask)) {
            let left = without(members, &change.unmasked);
            let claims: Vec<(f64, f64)> = left.iter().map(|at| (wants(*at), self.tasks[*at].1)).collect();
            let level = Queue::of(claims.iter().copied()).level(&[], cpus * self.cpu);
            for (at, (wants, weight)) in left.iter().zip(claims) {
                limits.set(*at, wants.min(level * weight));
            }
            others.extend(left);
        }
        others.sort_unstable(); // sums of floats depend on their order
        others.dedup();
        let now = |at: usize| Some((at, limits.get(at)?)).filter(|(at, now)| self.tasks[*at].2 != *now);
        others.into_iter().filter_map(now).collect()
    }

    /// For each node with a changed claim: its changed claims, and what the node wants in all.
    fn changed_nodes(
        &self,
        change: &Change,
        others: &[(usize, f64)],
        numbers: &mut Memo<usize>,
    ) -> Table<usize, Changed> {
        let place = |node: usize| {
            // Tasks in deeper groups get nothing.
            let depth = self.nodes.get(node).map(|node| node.depth).filter(|depth| *depth <= MAX_DEPTH);
            depth.map(|depth| (Reverse(depth), node))
        };
        let mut first: Vec<(usize, Changed)> = Vec::new();
        for (at, now) in others {
            let (node, weight, before) = self.tasks[*at];
            let number = numbers.get(node).unwrap_or(first.len());
            if number == first.len() {
                numbers.set(node, number);
                first.push((node, Changed::default()));
            }
            first[number].1.claims.push((before, *now, weight));
        }
        let mut waiting: BTreeMap<(Reverse<usize>, usize), Changed> =
            first.into_iter().filter_map(|(node, changed)| Some((place(node)?, changed))).collect();
        for id in &change.uncapped {
            if let Some(place) = self.by_id.get(id).and_then(|node| place(*node)) {
                waiting.entry(place).or_default().uncapped = true;
            }
        }
        let mut changed = with_room(waiting.len());
        while let Some(((depth, at), here)) = waiting.pop_first() {
            let node = &self.nodes[at];
            let differs: f64 = here.claims.all().iter().map(|(before, now, _)| now - before).sum();
            let (before, now) =
                (node.demand(node.wanted, false), node.demand(node.wanted + differs, here.uncapped));
            if depth.0 > 0 && before != now {
                let above = waiting.entry((Reverse(depth.0 - 1), node.parent)).or_default();
                above.claims.push((before, now, node.weight));
            }
            changed.insert(at, Changed { demand: now, ..here });
        }
        changed
    }

    /// How much a node gives for a weight of one; nothing if it is not connected to the root.
    fn level(&self, of: usize, changes: &Table<usize, Changed>, known: &mut Memo<f64>) -> f64 {
        let (mut way, mut at, mut above) = (vec![], of, None);
        // Walks from the node up to one that is known, and down again.
        while let Some(node) = self.nodes.get(at).filter(|node| node.depth <= MAX_DEPTH) {
            above = known.get(at);
            if above.is_some() {
                break;
            }
            way.push((at, node));
            if at == 0 {
                break;
            }
            at = node.parent;
        }
        for (at, node) in way.into_iter().rev() {
            let change = changes.get(&at);
            let demand = change.map_or_else(|| node.demand(node.wanted, false), |change| change.demand);
            let own = if at == 0 { self.capacity } else { demand.min(above.unwrap_or(0.0) * node.weight) };
            let level = node.queue.level(change.map_or(&[], |change| change.claims.all()), own);
            known.set(at, level);
            above = Some(level);
        }
        above.unwrap_or(0.0)
    }
}

/// Those of `members` that are not among `others`; both are in order.
fn without(members: &[usize], others: &BTreeSet<usize>) -> Vec<usize> {
    let mut others = others.iter().peekable();
    let is_left = |at: &usize| {
        while others.next_if(|other| *other < at).is_some() {}
        others.peek().is_none_or(|other| *other != at)
    };
    members.iter().copied().filter(is_left).collect()
}

/// The change in one node.
#[derive(Debug, Default)]
struct Changed {
    claims: Claims,
    uncapped: bool,
    demand: f64,
}

/// The nodes, and those of them that are connected to the root, parents before their children. A node in a cycle gets nothing.
fn tree(groups: &BTreeMap<u64, Group>, by_id: &Table<u64, usize>) -> (Vec<Node>, Vec<usize>) {
    let mut nodes = vec![Node { weight: 1.0, ..Node::default() }];
    nodes.extend(groups.iter().map(|(id, group)| Node {
        parent: by_id.get(&group.parent).copied().filter(|_| group.parent != *id).unwrap_or(0),
        depth: usize::MAX,
        weight: group.weight.max(1.0),
        cap: group.cap,
        ..Node::default()
    }));
    for at in 1..nodes.len() {
        let parent = nodes[at].parent;
        nodes[parent].children.push(at);
    }
    let mut order = vec![0];
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        let depth = nodes[at].depth + 1;
        if depth > MAX_DEPTH {
            continue;
        }
        let first = order.len();
        order.extend_from_slice(&nodes[at].children);
        for child in &order[first..] {
            nodes[*child].depth = depth;
        }
    }
    (nodes, order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn want(group: u64, wants: f64) -> Want<'static> {
        Want { group, wants, weight: 1024.0, mask: "", mask_cpus: 2.0 }
    }

    fn share_out(wants: &[Want<'_>], groups: &BTreeMap<u64, Group>, capacity: f64, cpu: f64) -> Vec<f64> {
        Shares::of(wants, groups, capacity, cpu).all()
    }

    #[test]
    fn small_demand_is_met_and_the_rest_is_shared() {
        let got =
            share_out(&[want(0, 0.1), want(0, 1.0), want(0, 1.0), want(0, 1.0)], &BTreeMap::new(), 2.0, 1.0);
        assert!((got[0] - 0.1).abs() < 1e-9 && (got[1] - 1.9 / 3.0).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn a_group_gets_its_share_however_many_its_neighbours_are() {
        let group = |cap| Group { parent: 0, weight: 1024.0, cap };
        let wants: Vec<Want<'_>> =
            (0..4).map(|_| want(1, 1.0)).chain((0..40).map(|_| want(2, 1.0))).collect();
        let free = share_out(&wants, &BTreeMap::from([(1, group(None)), (2, group(None))]), 2.0, 1.0);
        assert!((free[0] - 0.25).abs() < 1e-9, "{free:?}");
        let held = share_out(&wants, &BTreeMap::from([(1, group(Some(0.2))), (2, group(None))]), 2.0, 1.0);
        assert!((held[0] - 0.05).abs() < 1e-9 && (held[43] - 0.045).abs() < 1e-9, "{held:?}");
    }

    #[test]
    fn a_mask_holds_its_tasks_to_its_cpus() {
        let pinned = Want { mask: "1", mask_cpus: 1.0, ..want(0, 1.0) };
        let got = share_out(&vec![pinned; 16], &BTreeMap::new(), 2.0, 1.0);
        assert!((got.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let freed = share_out(&vec![want(0, 1.0); 16], &BTreeMap::new(), 2.0, 1.0);
        assert!((freed.iter().sum::<f64>() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn urgent_tasks_are_served_first_and_the_others_share_the_rest() {
        let group = Group { parent: 0, weight: 1024.0, cap: None };
        let urgent = |wants| Want { weight: BEFORE_ALL, ..want(0, wants) };
        let mut wants: Vec<Want<'_>> = (0..8).map(|_| want(1, 1.0)).collect();
        wants.extend([urgent(0.9), urgent(0.3)]);
        let got = share_out(&wants, &BTreeMap::from([(1, group)]), 2.0, 1.0);
        assert!(
            (got[8] - 0.9).abs() < 1e-6 && (got[9] - 0.3).abs() < 1e-6 && (got[0] - 0.1).abs() < 1e-6,
            "{got:?}"
        );
        // More of them than there are CPUs, and one that shares a CPU of its mask with others.
        let got =
            share_out(&[urgent(1.0), urgent(1.0), want(1, 1.0)], &BTreeMap::from([(1, group)]), 1.0, 1.0);
        assert!((got[0] - 0.5).abs() < 1e-6 && got[2] < 1e-6, "{got:?}");
        let bound = |w: Want<'static>| Want { mask: "1", mask_cpus: 1.0, ..w };
        let got = share_out(&[bound(urgent(0.75)), bound(want(0, 1.0))], &BTreeMap::new(), 2.0, 1.0);
        assert!((got[0] - 0.75).abs() < 1e-6 && (got[1] - 0.25).abs() < 1e-6, "{got:?}");
    }

    proptest! {
        #[test]
        fn never_more_than_wanted_nor_than_there_is(
            wants in prop::collection::vec((0u64..4, 0.0f64..1.0, 1.0f64..90000.0), 0..40),
            parents in prop::collection::vec(0u64..4, 3),
            capacity in 0.0f64..8.0,
        ) {
            let wants: Vec<Want<'_>> = wants.into_iter().map(|(g, w, weight)| Want { weight, ..want(g, w) }).collect();
            let groups: BTreeMap<u64, Group> = parents.iter().enumerate()
                .map(|(at, parent)| (at as u64 + 1, Group { parent: *parent, weight: 100.0, cap: None })).collect();
            let got = share_out(&wants, &groups, capacity, 1.0);
            prop_assert!(got.iter().sum::<f64>() <= capacity + 1e-6);
            for (got, want) in got.iter().zip(&wants) {
                prop_assert!(*got >= 0.0 && *got <= want.wants + 1e-9);
            }
        }

        #[test]
        fn a_change_is_as_a_tree_built_that_way(
            tasks in prop::collection::vec((0u64..9, 0.0f64..1.0, 1.0f64..90000.0, 0usize..3), 1..60),
            groups in prop::collection::vec((0u64..9, 2.0f64..9000.0, prop::option::of(0.0f64..2.0)), 8),
            uncapped in prop::collection::btree_set(1u64..9, 0..3),
            unmasked in prop::collection::btree_set(0usize..60, 0..9),
            others in prop::collection::btree_map(0usize..60, 0.0f64..1.0, 0..9),
            capacity in 0.0f64..8.0,
        ) {
            let build = |changed: bool| {
                let want = |(at, (group, wants, weight, mask)): (usize, &(u64, f64, f64, usize))| Want {
                    group: *group,
                    wants: others.get(&at).filter(|_| changed).copied().unwrap_or(*wants),
                    weight: *weight,
                    mask: if changed && unmasked.contains(&at) { "" } else { ["", "0", "1-2"][*mask] },
                    mask_cpus: [3.0, 1.0, 2.0][*mask],
                };
                let wants: Vec<Want<'_>> = tasks.iter().enumerate().map(want).collect();
                let group = |(at, (parent, weight, cap)): (usize, &(u64, f64, Option<f64>))| {
                    let id = at as u64 + 1;
                    (id, Group { parent: *parent, weight: *weight, cap: cap.filter(|_| !changed || !uncapped.contains(&id)) })
                };
                let groups: BTreeMap<u64, Group> = groups.iter().enumerate().map(group).collect();
                Shares::of(&wants, &groups, capacity, 1.0)
            };
            let change = Change { uncapped: uncapped.clone(), unmasked: unmasked.clone(), wants: others.clone() };
            let asked = build(false).with(&change, 0..tasks.len());
            for ((at, got), want) in asked.into_iter().zip(build(true).all()) {
                prop_assert!((got - want).abs() < 1e-6, "task {at}: {got}, not {want}");
            }
        }
    }
}
