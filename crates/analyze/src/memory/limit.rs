//! The file of a memory limit, and other limits that must be raised with it.

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

/// `found`, with what fills the limit. If a good part of that is memory which no process gives back when it ends, a higher limit may fill up
/// in the same way: `raised` says how to raise it, as a fix or as advice.
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
        Some(pid) => as_advice(raised(
            found
                .check("the tmpfs that its processes see", command!("grep -w tmpfs /proc/{}/mounts", pid))
                .advice(SHARED_ADVICE),
        )),
        None => raised(found),
    }
}

/// Moves the commands of its fixes into their texts: none of them is the first thing to do.
pub(crate) fn as_advice(mut found: Finding) -> Finding {
    for fix in &mut found.fixes {
        if let Some(command) = fix.command.take() {
            fix.text = format!("{}: {}", fix.text, &*command);
        }
    }
    found
}

/// Files in a tmpfs and System V segments count for the group that wrote them until they are removed; anonymous mappings that processes share,
/// and memfd, end with their processes.
pub(crate) const SHARED_ADVICE: &str = "remove what is left in tmpfs: its files count until they are removed, even after their writers have ended; \
                                        memory that a database shares among its processes is needed: then the limit is too small";
