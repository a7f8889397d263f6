//! What processes read of statistics files, and how long. The kernel half is `stat_reads.bpf.h`.

use libbpf_rs::MapMut;
use whyslow_model::stat_read::StatRead;
use whyslow_model::{Missing, MissingNote, Probe};

use super::skel::types::{stat_cost, stat_file};
use super::take_all;
use crate::bpf::constants::stat_reads_h::{STAT_FILES, STAT_IN_ROOT, STAT_OF_PROCESS};
use crate::bpf::{missing, text, value};

// SAFETY: generated from the C struct; integers and bytes only.
unsafe impl plain::Plain for stat_file {}
// SAFETY: as above.
unsafe impl plain::Plain for stat_cost {}

/// The name of this table in reports.
pub const WHAT: &str = Probe::StatReads.word();

/// All rows, the most expensive first.
pub fn taken(map: &MapMut<'_>) -> Result<Vec<StatRead>, Missing> {
    let rows = take_all(map, STAT_FILES).map_err(|err| missing(WHAT, &err))?;
    let mut rows: Vec<StatRead> = rows.iter().map(|(file, cost)| row(&value(file), &value(cost))).collect();
    rows.sort_by(|a, b| {
        let key = |row: &StatRead| (std::cmp::Reverse(row.ns), row.tgid);
        key(a).cmp(&key(b)).then_with(|| a.file.cmp(&b.file))
    });
    Ok(rows)
}

/// Why reads are not told.
pub fn untold() -> MissingNote {
    let why = "this kernel does not count the read calls of a task (CONFIG_TASK_XACCT): which samples are of one read is not known";
    Missing::skipped(WHAT, why).into()
}

fn row(file: &stat_file, cost: &stat_cost) -> StatRead {
    let name = text(&file.name);
    let (folder, fs) = (text(&cost.folder), fs(file.magic));
    StatRead {
        tgid: file.tgid,
        pid: cost.pid,
        comm: text(&cost.comm),
        fs: fs.to_owned(),
        file: match file.place {
            STAT_IN_ROOT if fs == "proc" => format!("/proc/{name}"),
            STAT_OF_PROCESS => format!("/proc/PID/{name}"),
            _ => name,
        },
        folder: if folder == "/" { String::new() } else { folder },
        reads: cost.reads,
        ns: cost.ns,
        long_reads: cost.long_reads,
        long_ns: cost.long_ns,
        late_ns: cost.late_ns,
        worst_ns: cost.worst_ns,
    }
}

fn fs(magic: u64) -> &'static str {
    match libc::c_long::try_from(magic) {
        Ok(libc::PROC_SUPER_MAGIC) => "proc",
        Ok(libc::SYSFS_MAGIC) => "sysfs",
        Ok(libc::CGROUP_SUPER_MAGIC) => "cgroup",
        Ok(libc::CGROUP2_SUPER_MAGIC) => "cgroup2",
        _ => "",
    }
}

#[cfg(test)]
#[path = "stat_reads_tests.rs"]
mod tests;
