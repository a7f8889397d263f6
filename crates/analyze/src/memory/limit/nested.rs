//! Limits that must be raised with the one that was met: limits above it, and limits on the way down to its tasks. A pod and its container
//! often have the same limit.

use std::collections::BTreeSet;

use whyslow_model::table::Cgroup;
use whyslow_model::{Bytes, Finding, command};

use super::file_of;
use crate::Evidence;
use crate::MAX_DEPTH;
use crate::memory::loss::{Limited, limit_of};

/// The factor by which a finding's command raises a limit.
pub(crate) const RAISED: u64 = 2;
/// A group below that uses less than this part (1 in 2) of its limit is not the one that grows.
const USED: u64 = 2;

/// `found`, with a fix for each further limit that would be met at once.
pub(crate) fn with_others(found: Finding, ev: &Evidence<'_>, met: &Limited<'_>) -> Finding {
    with_others_by(found, ev, met, met.limit.saturating_mul(RAISED - 1))
}

/// The same, where the limit is raised by `more`.
pub(crate) fn with_others_by(found: Finding, ev: &Evidence<'_>, met: &Limited<'_>, more: u64) -> Finding {
    others(ev, met, more).into_iter().fold(found, |found, (group, limit, high)| {
        let file = file_of(group, high);
        let name = ev.names().cgroup(group).name;
        found.fix(
            format!(
                "raise the limit of {name} with it ({}): else that limit is met next (undo: {})",
                Bytes(limit),
                &*command!("echo {} > {}", limit, file)
            ),
            command!("echo {} > {}", limit.saturating_add(more), file),
        )
    })
}

/// Groups with a limit, and whether the limit is memory.high.
fn others<'r>(ev: &Evidence<'r>, met: &Limited<'_>, more: u64) -> Vec<(&'r Cgroup, u64, bool)> {
    // From a group (exclusive) up to `end` (exclusive) or the root.
    let above = |from: u64, end: Option<u64>| {
        let parent = |id: u64| ev.cgroup(id).map(|group| group.parent);
        let ids = std::iter::successors(parent(from), |id| parent(*id)).take(MAX_DEPTH);
        ids.take_while(|id| Some(*id) != end).filter_map(|id| ev.cgroup(id)).collect::<Vec<_>>()
    };
    let used = |group: &Cgroup| group.memory.as_ref().map_or(0, |memory| memory.usage);
    let meets =
        |group: &&Cgroup| limit_of(group).is_some_and(|(limit, _)| used(group).saturating_add(more) > limit);
    let homes: BTreeSet<u64> =
        met.tasks.iter().map(|task| task.memory_cgroup).filter(|home| *home != met.cgroup.id).collect();
    // Parents in a cycle are visited once.
    let mut known = BTreeSet::from([met.cgroup.id]);
    let mut groups: Vec<&Cgroup> = above(met.cgroup.id, None);
    groups.retain(|group| known.insert(group.id));
    for home in homes {
        let own = ev.cgroup(home).into_iter();
        let near = |group: &&Cgroup| {
            limit_of(group).is_some_and(|(limit, _)| used(group).saturating_mul(USED) >= limit)
        };
        for group in own.chain(above(home, Some(met.cgroup.id))).filter(near) {
            if known.insert(group.id) {
                groups.push(group);
            }
        }
    }
    let limited = |group: &'r Cgroup| limit_of(group).map(|(limit, high)| (group, limit, high));
    groups.into_iter().filter(meets).filter_map(limited).collect()
}
