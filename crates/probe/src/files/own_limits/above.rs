//! Limits above the visible groups. In a container the files end at its own group, or show other groups; the limits of the groups above
//! hold for us as well, and a process that meets one is killed.

use whyslow_model::Missing;

use super::{MEMORY_WHAT, MemoryLimit, NO_LIMIT, OwnLimits, Shown};
use crate::bpf::own_memory::Group;

impl OwnLimits {
    /// Adds what the kernel's own memory says about the groups that are not shown. Only read if there may be such groups.
    pub(super) fn with_what_is_above(
        mut self,
        shown: Shown,
        ask: impl FnOnce() -> Result<Vec<Group>, Missing>,
    ) -> Self {
        if self.memory.is_ok() && !self.hides_memory {
            return self;
        }
        match ask() {
            Ok(groups) => {
                // If a file could not be parsed, its group is also looked up here.
                let shown = if self.memory.is_ok() { shown } else { Shown::default() };
                self.memory = Ok(least(self.memory.ok().flatten(), tightest(&groups, shown)));
                self.hides_memory = false;
            }
            // A process that may not read this may not make tables either: there is nothing to shrink.
            Err(Missing::NotAllowed { .. }) => {}
            Err(why) if self.memory == Ok(None) => {
                let reason = format!("groups above those that are shown here may have one ({why})");
                self.memory = Err(Missing::unclear(MEMORY_WHAT, reason));
            }
            Err(_) => {}
        }
        self
    }
}

fn tightest(groups: &[Group], shown: Shown) -> Option<MemoryLimit> {
    let above = groups.iter().filter(|group| group.above >= shown.groups && group.limit < NO_LIMIT);
    let limit = |group: &Group| MemoryLimit {
        cgroup: group.path.clone(),
        limit: group.limit,
        // The group's usage contains the page cache of the visible groups below it, which can be reclaimed.
        left: group.limit.saturating_sub(group.used.saturating_sub(shown.cache)),
        is_hidden: true,
    };
    above.map(limit).min_by_key(|limit| limit.left)
}

/// The rest of a visible limit is exact; under a hidden limit, used memory may be page cache of sibling groups. With so little left of
/// the visible limit, that one decides.
const LITTLE: u64 = 64 << 20;

fn least(shown: Option<MemoryLimit>, hidden: Option<MemoryLimit>) -> Option<MemoryLimit> {
    match shown {
        Some(shown) if shown.left <= LITTLE => Some(shown),
        shown => shown.into_iter().chain(hidden).min_by_key(|limit| limit.left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limit(left: u64) -> MemoryLimit {
        MemoryLimit { cgroup: "/".into(), limit: 300 * MIB, left, is_hidden: false }
    }

    fn limits(memory: Result<Option<MemoryLimit>, Missing>, hides_memory: bool) -> OwnLimits {
        OwnLimits { memory, cpu: Ok(None), hides_memory, hides_cpu: hides_memory }
    }

    /// Our own group, shown, a pod's above it, and the root.
    fn groups() -> Vec<Group> {
        let group = |path: &str, above, limit, used| Group { path: path.into(), above, limit, used };
        vec![
            group("/pod/us", 0, 300 * MIB, 20 * MIB),
            group("/pod", 1, 100 * MIB, 50 * MIB),
            group("/", 2, 1 << 63, 900 * MIB),
        ]
    }

    const SHOWN: Shown = Shown { groups: 1, cache: 10 * MIB };

    #[test]
    fn a_limit_above_those_that_are_shown_counts_and_is_called_as_on_the_host() {
        let pod = MemoryLimit { cgroup: "/pod".into(), limit: 100 * MIB, left: 60 * MIB, is_hidden: true };
        for shown in [None, Some(limit(280 * MIB))] {
            let found = limits(Ok(shown), true).with_what_is_above(SHOWN, || Ok(groups()));
            assert_eq!(
                (&found.memory, found.hides_memory, found.hides_cpu),
                (&Ok(Some(pod.clone())), false, true)
            );
        }
        let tighter = limits(Ok(Some(limit(30 * MIB))), true).with_what_is_above(SHOWN, || Ok(groups()));
        assert_eq!(tighter.memory, Ok(Some(limit(30 * MIB))));
    }

    #[test]
    fn a_shown_limit_that_is_small_decides_however_full_the_one_above_is() {
        let mut groups = groups();
        (groups[1].limit, groups[1].used) = (1024 * MIB, 1024 * MIB);
        let found = limits(Ok(Some(limit(30 * MIB))), true).with_what_is_above(SHOWN, || Ok(groups));
        assert_eq!(found.memory, Ok(Some(limit(30 * MIB))));
    }

    #[test]
    fn where_files_tell_nothing_all_groups_are_asked_for() {
        let mut groups = groups();
        groups[1].limit = 1 << 63;
        let unclear = Missing::unclear(MEMORY_WHAT, "a mount of strangers");
        let found = limits(Err(unclear), false).with_what_is_above(SHOWN, || Ok(groups.clone()));
        let own = found.memory.unwrap().unwrap();
        assert_eq!((own.cgroup.as_str(), own.left, own.is_hidden), ("/pod/us", 280 * MIB, true));
        let none = limits(Ok(None), true).with_what_is_above(SHOWN, || Ok(groups));
        assert_eq!((none.memory, none.hides_memory), (Ok(None), false));
    }

    #[test]
    fn broken_read_of_hidden_limits_is_unclear_unless_a_limit_is_shown() {
        let broken = || Err(Missing::broken("it", "why"));
        let found = limits(Ok(None), true).with_what_is_above(SHOWN, broken);
        assert!(
            matches!(&found.memory, Err(Missing::Unclear { reason, .. }) if reason.contains("why")),
            "{found:?}"
        );
        let shown = limits(Ok(Some(limit(MIB))), true).with_what_is_above(SHOWN, broken);
        assert_eq!(shown.memory, Ok(Some(limit(MIB))), "what is known is kept");
        let refused = || Err(Missing::NotAllowed { what: "it".into(), way_out: "root".into() });
        let unasked = limits(Ok(None), true).with_what_is_above(SHOWN, refused);
        assert_eq!(unasked, limits(Ok(None), true));
    }

    #[test]
    fn kernel_memory_is_not_read_where_no_limit_is_hidden() {
        let found = limits(Ok(None), false).with_what_is_above(SHOWN, || panic!("asked"));
        assert_eq!(found, limits(Ok(None), false));
    }
}
