//! Which memory limits apply to us, whatever our cgroup namespace and our mounts show of them? The kernel half is `own_memory.bpf.c`. It
//! has no table: it runs before it is known how large ours may be.

use std::mem::{MaybeUninit, size_of};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use whyslow_model::Missing;

use super::{missing, text, types, value, walk};
use crate::host;

skeleton!("own_memory");
use skel::types::own_memory_group;

// SAFETY: generated from the C struct; integers and bytes only, without padding.
unsafe impl plain::Plain for own_memory_group {}

/// Name of the query in reports.
const WHAT: &str = "memory limits in kernel memory";

/// A cgroup that we are in and whose memory is counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// From the host's root on, whatever our namespace is.
    pub path: String,
    /// Our own group is so many levels below it.
    pub above: u32,
    /// memory.max or memory.high, whichever is less, in bytes; about 2^63 is no limit.
    pub limit: u64,
    /// Counted memory now, page cache of files included.
    pub used: u64,
}

/// All of our cgroups, from our own up. None: this kernel counts memory for none.
pub fn groups() -> Result<Vec<Group>, Missing> {
    let mut slot = MaybeUninit::uninit();
    let loaded = types::builder::<skel::OwnMemorySkelBuilder>().open(&mut slot).and_then(|open| open.load());
    let skel = loaded.map_err(|err| missing(WHAT, &err))?;
    let link = skel.progs.groups.attach().map_err(|err| missing(WHAT, &err))?;
    let bytes = walk(WHAT, &link)?;
    let rows: Vec<own_memory_group> = bytes.chunks_exact(size_of::<own_memory_group>()).map(value).collect();
    Ok(named(&rows, host::page_size()))
}

fn named(rows: &[own_memory_group], page_size: u64) -> Vec<Group> {
    let mut path = String::new();
    let mut groups: Vec<Group> = Vec::with_capacity(rows.len());
    for row in rows.iter().rev() {
        if row.level > 0 {
            path = format!("{path}/{}", text(&row.name));
        }
        groups.push(Group {
            path: if path.is_empty() { "/".to_owned() } else { path.clone() },
            above: row.own_level.saturating_sub(row.level),
            limit: row.limit_pages.min(row.high_pages).saturating_mul(page_size),
            used: row.used_pages.saturating_mul(page_size),
        });
    }
    groups.reverse();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_called_as_on_the_host_and_the_lesser_limit_counts() {
        let row = |name: &str, level, limit_pages, high_pages| {
            let mut row =
                own_memory_group { level, limit_pages, high_pages, own_level: 3, ..Default::default() };
            row.name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as _);
            row
        };
        let none = i64::MAX as u64 / 4096;
        let groups = named(&[row("b", 2, 5, none), row("a", 1, none, 7), row("", 0, none, none)], 4096);
        let reported: Vec<_> = groups.iter().map(|g| (g.path.as_str(), g.above, g.limit / 4096)).collect();
        assert_eq!(reported, [("/a/b", 1, 5), ("/a", 2, 7), ("/", 3, none)]);
        assert_eq!(named(&[], 4096), []);
    }

    #[test]
    fn root_the_kernel_tells_the_limits_that_files_show() {
        use crate::test_group::Group as TestGroup;

        let Some(group) = TestGroup::new("memory") else { return };
        group.set("memory.limit_in_bytes", "104857600");
        let reported = crate::test_group::in_group(&group.file(""), || {
            groups().map_or_else(|why| why.to_string(), |groups| format!("{:?}", &groups[..2]))
        });
        assert!(
            reported.contains("whyslow-test-") && reported.contains("above: 0, limit: 104857600"),
            "{reported}"
        );
    }
}
