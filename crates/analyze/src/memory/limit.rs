//! Where a memory limit is set, and which others must be raised with it.

use whyslow_model::table::Cgroup;

use super::loss::is_v1;

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
