//! Who would get how much CPU if the scheduler were ideal: weighted max-min fairness over the tree of cgroups.
//!
//! This is what CFS and EEVDF aim at over a window (kernel: Documentation/scheduler/sched-design-CFS.rst): at each level of
//! the tree siblings share by weight, nobody gets more than he wants, and what one leaves the others take. Affinity is
//! kept by giving the tasks of one mask no more than the CPUs of the mask. Not modelled: caches, SMT, wake-up latency.

use std::collections::BTreeMap;

/// A task that wants CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Want {
    /// Cgroup it sits in.
    pub group: u64,
    /// CPU time it would use if it never waited.
    pub wants: f64,
    /// Its weight among its siblings (1024 at nice 0).
    pub weight: f64,
    /// CPUs it may use, as any text that is equal for equal masks; empty: all.
    pub mask: String,
    /// How many CPUs that is.
    pub mask_cpus: f64,
}

/// A cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Its parent; a parent that is not in the tree makes it a root.
    pub parent: u64,
    /// Its weight among its siblings.
    pub weight: f64,
    /// CPU time it may use at most (a quota), if any.
    pub cap: Option<f64>,
}

/// Levels of cgroups that are followed; deeper ones count for the last.
const MAX_DEPTH: usize = 64;

/// CPU time for each of `wants`, of `capacity` in all. `cpu` is what one CPU can give.
#[must_use]
pub fn share_out(wants: &[Want], groups: &BTreeMap<u64, Group>, capacity: f64, cpu: f64) -> Vec<f64> {
    let limited = limit_by_mask(wants, cpu);
    let mut tree =
        Tree { wants, limited: &limited, groups, children: BTreeMap::new(), members: BTreeMap::new() };
    for (id, group) in groups {
        let parent = if groups.contains_key(&group.parent) && group.parent != *id { group.parent } else { 0 };
        tree.children.entry(parent).or_default().push(*id);
    }
    for (at, want) in wants.iter().enumerate() {
        let group = if groups.contains_key(&want.group) { want.group } else { 0 };
        tree.members.entry(group).or_default().push(at);
    }
    let mut got = vec![0.0; wants.len()];
    tree.divide(0, capacity.max(0.0), &mut got, 0);
    got
}

/// What each task can use at most, given that the tasks of one mask share its CPUs.
fn limit_by_mask(wants: &[Want], cpu: f64) -> Vec<f64> {
    let mut limited: Vec<f64> = wants.iter().map(|w| w.wants.clamp(0.0, cpu)).collect();
    let mut masks: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, want) in wants.iter().enumerate().filter(|(_, w)| !w.mask.is_empty()) {
        masks.entry(&want.mask).or_default().push(at);
    }
    for members in masks.values() {
        let claims: Vec<(f64, f64)> = members.iter().map(|at| (limited[*at], wants[*at].weight)).collect();
        let filled = fill(&claims, wants[members[0]].mask_cpus * cpu);
        for (at, most) in members.iter().zip(filled) {
            limited[*at] = most;
        }
    }
    limited
}

struct Tree<'a> {
    wants: &'a [Want],
    limited: &'a [f64],
    groups: &'a BTreeMap<u64, Group>,
    children: BTreeMap<u64, Vec<u64>>,
    members: BTreeMap<u64, Vec<usize>>,
}

impl Tree<'_> {
    fn divide(&self, group: u64, capacity: f64, got: &mut [f64], depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let tasks = self.members.get(&group).map_or(&[][..], Vec::as_slice);
        let children = self.children.get(&group).map_or(&[][..], Vec::as_slice);
        let mut claims: Vec<(f64, f64)> =
            tasks.iter().map(|at| (self.limited[*at], self.wants[*at].weight)).collect();
        claims.extend(children.iter().map(|id| (self.demand(*id, depth + 1), self.groups[id].weight)));
        let filled = fill(&claims, capacity);
        for (at, most) in tasks.iter().zip(&filled) {
            got[*at] = *most;
        }
        for (id, most) in children.iter().zip(&filled[tasks.len()..]) {
            self.divide(*id, *most, got, depth + 1);
        }
    }

    fn demand(&self, group: u64, depth: usize) -> f64 {
        if depth > MAX_DEPTH {
            return 0.0;
        }
        let tasks = self.members.get(&group).map_or(&[][..], Vec::as_slice);
        let children = self.children.get(&group).map_or(&[][..], Vec::as_slice);
        let all = tasks.iter().map(|at| self.limited[*at]).sum::<f64>()
            + children.iter().map(|id| self.demand(*id, depth + 1)).sum::<f64>();
        self.groups.get(&group).and_then(|g| g.cap).map_or(all, |cap| all.min(cap))
    }
}

/// Weighted water-filling: nobody gets more than his claim (amount, weight), the rest is shared by weight.
fn fill(claims: &[(f64, f64)], capacity: f64) -> Vec<f64> {
    let mut got = vec![0.0; claims.len()];
    let mut order: Vec<usize> = (0..claims.len()).collect();
    let level = |at: &usize| claims[*at].0 / claims[*at].1.max(1.0);
    order.sort_by(|a, b| level(a).total_cmp(&level(b)));
    let mut left = capacity;
    let mut weight: f64 = claims.iter().map(|c| c.1.max(1.0)).sum();
    for at in order {
        let (claim, own) = (claims[at].0, claims[at].1.max(1.0));
        got[at] = claim.min(left.max(0.0) * own / weight);
        left -= got[at];
        weight = (weight - own).max(1.0);
    }
    got
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn want(group: u64, wants: f64) -> Want {
        Want { group, wants, weight: 1024.0, mask: String::new(), mask_cpus: 2.0 }
    }

    #[test]
    fn who_wants_little_gets_it_and_the_rest_is_shared() {
        let got =
            share_out(&[want(0, 0.1), want(0, 1.0), want(0, 1.0), want(0, 1.0)], &BTreeMap::new(), 2.0, 1.0);
        assert!((got[0] - 0.1).abs() < 1e-9 && (got[1] - 1.9 / 3.0).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn a_group_gets_its_share_however_many_its_neighbours_are() {
        let group = |cap| Group { parent: 0, weight: 1024.0, cap };
        let wants: Vec<Want> = (0..4).map(|_| want(1, 1.0)).chain((0..40).map(|_| want(2, 1.0))).collect();
        let free = share_out(&wants, &BTreeMap::from([(1, group(None)), (2, group(None))]), 2.0, 1.0);
        assert!((free[0] - 0.25).abs() < 1e-9, "{free:?}");
        let held = share_out(&wants, &BTreeMap::from([(1, group(Some(0.2))), (2, group(None))]), 2.0, 1.0);
        assert!((held[0] - 0.05).abs() < 1e-9 && (held[43] - 0.045).abs() < 1e-9, "{held:?}");
    }

    #[test]
    fn a_mask_holds_its_tasks_to_its_cpus() {
        let pinned = Want { mask: "1".into(), mask_cpus: 1.0, ..want(0, 1.0) };
        let got = share_out(&vec![pinned; 16], &BTreeMap::new(), 2.0, 1.0);
        assert!((got.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let freed = share_out(&vec![want(0, 1.0); 16], &BTreeMap::new(), 2.0, 1.0);
        assert!((freed.iter().sum::<f64>() - 2.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn never_more_than_wanted_nor_than_there_is(
            wants in prop::collection::vec((0u64..4, 0.0f64..1.0, 1.0f64..90000.0), 0..40),
            parents in prop::collection::vec(0u64..4, 3),
            capacity in 0.0f64..8.0,
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(g, w, weight)| Want { weight, ..want(g, w) }).collect();
            let groups: BTreeMap<u64, Group> = parents.iter().enumerate()
                .map(|(at, parent)| (at as u64 + 1, Group { parent: *parent, weight: 100.0, cap: None })).collect();
            let got = share_out(&wants, &groups, capacity, 1.0);
            prop_assert!(got.iter().sum::<f64>() <= capacity + 1e-6);
            for (got, want) in got.iter().zip(&wants) {
                prop_assert!(*got >= 0.0 && *got <= want.wants + 1e-9);
            }
        }
    }
}
