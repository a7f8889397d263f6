//! Where a memory limit is set, and which others must be raised with it.

use whyslow_model::table::{Cgroup, Task};
use whyslow_model::{Finding, command};

use super::loss::is_v1;
use super::uses::Uses;

mod nested;

pub(crate) use nested::{RAISED, with_others, with_others_by};

/// The file that holds the limit.
pub(crate) fn file_of(group: &Cgroup, high: bool) -> String {
    let name = match (is_v1(group), high) {
        (true, _) => "memory.limit_in_bytes",
        (false, true) => "memory.high",
        (false, false) => "memory.max",
    };
    format!("{}/{name}", files(group))
}

/// The folder of its files.
pub(crate) fn files(group: &Cgroup) -> String {
    group.files.clone().unwrap_or_else(|| format!("<memory cgroup>{}", group.path))
}

/// `found`, with what fills the limit. Where that is what no process's end gives back, to raise the limit is no fix: `raised` says how.
pub(crate) fn with_what_fills_it(
    found: Finding,
    uses: Option<Uses>,
    files: &str,
    tasks: &[&Task],
    raised: impl FnOnce(Finding) -> Finding,
) -> Finding {
    let Some(uses) = uses else { return raised(found) };
    let found = found.check(
        format!("what fills it: {uses}"),
        command!(
            "grep -E '^(total_)?(anon|rss|file|cache|shmem|kernel|slab) ' {}",
            format!("{files}/memory.stat")
        ),
    );
    let first = tasks.iter().map(|task| task.tgid).min();
    match first.filter(|_| uses.is_shared()) {
        Some(pid) => found
            .check("the tmpfs that its processes see", command!("grep -w tmpfs /proc/{}/mounts", pid))
            .advice(SHARED_ADVICE),
        None => raised(found),
    }
}

/// What is left of files in tmpfs, of shared memory and of memfd counts for the group that wrote it.
pub(crate) const SHARED_ADVICE: &str = "remove what lies in tmpfs or shared memory: it counts until it is removed, also when its \
                                        processes have ended; a higher limit only if all of it is wanted";
