//! The result of one row: snapshots, and at most a few notes about missing files.
//!
//! A missing file with a fixed name is noted by that name. A row of many files (per CPU, per cgroup, a list of sysctls) is noted
//! as a row, by its pattern, and only if none of its files exists: most kernels lack one or the other.

use std::collections::BTreeSet;
use std::io;

use whyslow_model::{FileSnapshot, Missing};

use super::RawFiles;
use super::absent;
use super::table::Row;
use crate::addresses::hide_in_frame;

/// Subjects of notes that were made already: a file that is absent at the start is absent at the end.
pub(super) type Noted = BTreeSet<String>;

/// Notes `missing`, unless its subject was noted before.
pub(super) fn note(missing: Missing, noted: &mut Noted, seen: &mut RawFiles) {
    if noted.insert(missing.what().to_owned()) {
        seen.missing.push(missing.into());
    }
}

/// One row while its files are read.
pub(super) struct RowResult {
    row: &'static Row,
    got: usize,
    failures: Vec<(String, io::Error)>,
    /// Files that were not tried, and why.
    skipped: Option<(String, String)>,
}

impl RowResult {
    pub fn of(row: &'static Row) -> RowResult {
        RowResult { row, got: 0, failures: Vec::new(), skipped: None }
    }

    /// A file was read.
    pub fn took(&mut self, mut snapshot: FileSnapshot, whole: bool, noted: &mut Noted, seen: &mut RawFiles) {
        self.got += 1;
        hide_in_frame(&mut snapshot);
        if !whole {
            let reason = format!("only {} bytes of it are kept", snapshot.bytes.len());
            note(Missing::skipped(format!("the rest of {}", snapshot.name), reason), noted, seen);
        }
        seen.snapshots.push(snapshot);
    }

    /// A file could not be read.
    pub fn failed(&mut self, name: String, err: io::Error) {
        if self.failures.len() < 256 {
            self.failures.push((name, err));
        }
    }

    /// A file and those after it were not tried.
    pub fn skip(&mut self, name: String, reason: &str) {
        self.skipped.get_or_insert_with(|| (name, reason.to_owned()));
    }

    /// Notes what is missing. `found`: the row's patterns gave files to try.
    pub fn settle(self, live: bool, found: bool, noted: &mut Noted, seen: &mut RawFiles) {
        let row = self.row;
        let plain = !row.pattern.contains(['{', '*']);
        let listed = !row.patterns().iter().any(|pattern| pattern.contains(['{', '*']));
        if let Some((name, reason)) = self.skipped {
            let what = if plain { name } else { row.pattern.to_owned() };
            note(Missing::skipped(what, reason), noted, seen);
        } else if self.got == 0 && self.failures.is_empty() && !found && !may_be_none(row) {
            let absent = io::Error::from_raw_os_error(libc::ENOENT);
            absent::why(row, row.pattern, live, &absent).into_iter().for_each(|m| note(m, noted, seen));
        }
        if self.got == 0 && !plain && self.failures.iter().all(|(_, err)| is_absent(err)) {
            let first = self.failures.first();
            let why = first.and_then(|(_, err)| absent::why(row, row.pattern, live, err));
            why.into_iter().for_each(|m| note(m, noted, seen));
            return;
        }
        let mut reported = 0;
        for (name, err) in &self.failures {
            if (listed || !is_absent(err))
                && reported < 16
                && let Some(missing) = absent::why(row, name, live, err)
            {
                reported += 1;
                note(missing, noted, seen);
            }
        }
    }
}

/// The file is absent, or has no value: an attribute that does not apply to its device answers EINVAL (speed of a bridge).
fn is_absent(err: &io::Error) -> bool {
    let absent = [libc::ENOENT, libc::ENOTDIR, libc::ENODEV, libc::EOPNOTSUPP, libc::EINVAL, libc::ESRCH];
    err.raw_os_error().is_some_and(|errno| absent.contains(&errno))
}

/// Rows whose devices a host need not have: no processes were requested, no limit was met, or the other cgroup version is in use.
fn may_be_none(row: &Row) -> bool {
    ["{pid}", "{limited}", "{v1:", "{v2"].iter().any(|kind| row.pattern.contains(kind))
        || row.read == super::Rate::Never
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rows::ROWS;
    use super::*;

    fn settled(id: &str, outcomes: &[(&str, Result<&[u8], i32>)]) -> RawFiles {
        let row = ROWS.iter().find(|row| row.id == id).unwrap();
        let (mut result, mut noted, mut seen) = (RowResult::of(row), Noted::new(), RawFiles::default());
        for (name, outcome) in outcomes {
            match outcome {
                Ok(bytes) => {
                    let snapshot =
                        FileSnapshot { at: Duration::ZERO, name: (*name).to_owned(), bytes: bytes.to_vec() };
                    result.took(snapshot, true, &mut noted, &mut seen);
                }
                Err(errno) => result.failed((*name).to_owned(), io::Error::from_raw_os_error(*errno)),
            }
        }
        result.settle(true, !outcomes.is_empty(), &mut noted, &mut seen);
        seen
    }

    fn whats(seen: &RawFiles) -> Vec<&str> {
        seen.missing.iter().map(|note| note.missing.what()).collect()
    }

    #[test]
    fn one_absent_sysctl_is_missed_by_its_name() {
        let seen = settled(
            "sysctl-vm",
            &[("proc/sys/vm/swappiness", Ok(b"60\n")), ("proc/sys/vm/numa", Err(libc::ENOENT))],
        );
        assert_eq!(whats(&seen), ["proc/sys/vm/numa"]);
    }

    #[test]
    fn a_row_of_which_nothing_is_there_is_missed_once() {
        let seen = settled("dmi", &[("a", Err(libc::ENOENT)), ("b", Err(libc::ENOENT))]);
        assert_eq!(seen.missing.len(), 1);
        assert!(seen.missing[0].text.contains("SMBIOS"), "{}", seen.missing[0].text);
        assert_eq!(whats(&settled("cpufreq", &[])).len(), 1);
    }

    #[test]
    fn files_that_one_of_many_lacks_are_no_news_but_a_refusal_is() {
        let outcomes = [("x", Ok(&b"1"[..])), ("y", Err(libc::ENOENT)), ("z", Err(libc::EACCES))];
        assert_eq!(whats(&settled("nic", &outcomes)), ["z"]);
    }

    #[test]
    fn psi_that_is_there_and_refuses_is_missed_by_its_name() {
        let seen = settled("psi-cpu", &[("proc/pressure/cpu", Err(libc::EOPNOTSUPP))]);
        assert_eq!(whats(&seen), ["proc/pressure/cpu"]);
        assert!(seen.snapshots.is_empty());
    }

    #[test]
    fn kernel_addresses_in_a_snapshot_are_zeroed() {
        let seen = settled("modules", &[("proc/modules", Ok(b"nfs 4096 0 - Live 0xffffffffc0a3b000\n"))]);
        assert_eq!(seen.snapshots[0].bytes, b"nfs 4096 0 - Live 0x0000000000000000\n");
    }

    #[test]
    fn no_processes_asked_for_is_nothing_missing() {
        assert_eq!(settled("process", &[]), RawFiles::default());
        assert_eq!(settled("process", &[("proc/7/stat", Err(libc::ESRCH))]), RawFiles::default());
    }
}
