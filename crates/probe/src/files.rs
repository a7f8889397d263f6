//! Kernel files of a window, as text. The table `files/rows.rs` says what is read and when; the code here reads it.
//!
//! Harmless rows are read at the window's ends or once; some are read each second through descriptors that stay open. A disposable
//! child reads the rows with a hazard once, last. The code here parses files only to find CPUs, devices and cgroups.
//! Names of snapshots are paths below the root, escaped as `name.rs` says; a network namespace's files are
//! `netns/<inode>/net/...`.

mod absent;
mod background_reads;
mod budget;
mod cgroups;
mod child;
mod child_protocol;
mod devices;
mod hazardous;
mod ipis;
mod kmsg;
mod limited;
#[cfg(test)]
mod live_tests;
mod name;
mod namespaces;
mod non_rx_cpus;
pub(crate) mod own_limits;
pub(crate) mod root;
mod row_result;
mod rows;
mod search;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use whyslow_model::{FileSnapshot, Missing, MissingNote};

use budget::Budget;
use devices::{Device, Devices, Most, Place};
use namespaces::Namespaces;
use root::{Reads, Root};
use row_result::{Noted, RowResult, note};

pub use name::raw_name;
pub use rows::ROWS;
pub use table::{Hazard, Rate, Row};

/// What was read, and what could not be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawFiles {
    /// Files, in the order they were read.
    pub snapshots: Vec<FileSnapshot>,
    /// What is missing, by name of the snapshot or by pattern of the row.
    pub missing: Vec<MissingNote>,
}

/// A moment of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It begins.
    Start,
    /// A second of it has passed.
    Second,
    /// It is over.
    End,
}

/// Limits of what is read.
#[derive(Debug, Clone, Copy)]
struct Limits {
    devices: Most,
    namespaces: usize,
    processes: usize,
    /// Of one hierarchy: the most cgroups, and the most whose files that flush are read.
    cgroups: (usize, usize),
    /// CPU time of one moment's reading; the limit by the clock is ten times as long.
    moment: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            devices: Most { cpus: 512, disks: 128, nics: 64 },
            namespaces: 256,
            processes: 64,
            cgroups: (2000, 16),
            moment: Duration::from_millis(100),
        }
    }
}

/// CPU time a second that the reads between start and end may take: 0.3 %.
const SECOND: Duration = Duration::from_millis(3);
/// The socket name that a reading child holds: one child per host.
const ONLY_ONE: &[u8] = b"whyslow-files";

/// A file that is read each second, kept open.
#[derive(Debug)]
struct OpenFile {
    row: &'static Row,
    place: Place,
    fd: Option<OwnedFd>,
}

/// The files of one host, live or in a folder.
#[derive(Debug)]
pub struct Files {
    root: Root,
    limits: Limits,
    devices: Devices,
    mounts: BTreeMap<String, PathBuf>,
    namespaces: Namespaces,
    kept: Vec<OpenFile>,
    noted: Noted,
    /// Notes made while opening, handed out with the first reading.
    early: Vec<MissingNote>,
    buffer: Vec<u8>,
    /// Seconds that are still left out, because the last reading took too much CPU time.
    rest: u32,
    /// The number of rows that were read while the window lasted.
    ahead: usize,
    only_one: Option<Vec<u8>>,
    strays: Vec<libc::pid_t>,
}

impl Files {
    /// Discovers CPUs, disks, NICs, cgroups (version 1, 2 and hybrid) and network namespaces below `root`. Cheap and
    /// capped; what is beyond a cap is reported with the first reading.
    #[must_use]
    pub fn open(root: &Path) -> Files {
        Files::open_with(root, Limits::default())
    }

    fn open_with(path: &Path, limits: Limits) -> Files {
        let root = Root::open(path);
        let mut files = Files {
            only_one: root.live.then(|| ONLY_ONE.to_vec()),
            root,
            limits,
            devices: Devices::new(),
            mounts: BTreeMap::new(),
            namespaces: Namespaces::default(),
            kept: Vec::new(),
            noted: Noted::new(),
            early: Vec::new(),
            buffer: Vec::new(),
            rest: 0,
            ahead: 0,
            strays: Vec::new(),
        };
        let mut seen = RawFiles::default();
        files.find_things(&mut seen);
        files.find_namespaces(&mut seen);
        files.early = seen.missing;
        files
    }

    /// Where cgroup hierarchies are mounted: controller ("cpu", "cpuacct", "memory", "io", "pids", "unified") to path
    /// ("/sys/fs/cgroup/memory"). Version 1's blkio is "io"; a controller on version 2 has the path of "unified".
    #[must_use]
    pub fn cgroup_mounts(&self) -> &BTreeMap<String, PathBuf> {
        &self.mounts
    }

    /// Reads the rows due at this moment. `at`: time since the window began. `busiest`: processes whose files are
    /// wanted, at the end only; may be empty.
    pub fn read(&mut self, moment: Moment, at: Duration, busiest: &[u32], seen: &mut RawFiles) {
        seen.missing.append(&mut self.early);
        match moment {
            Moment::Start => self.read_rows(Rate::Ends, at, seen),
            Moment::Second => {
                self.read_second(at, seen);
                self.read_ahead(at, seen);
            }
            Moment::End => {
                let pids = busiest.iter().take(self.limits.processes);
                let devices = pids.map(|pid| Device::new(pid.to_string().as_bytes(), true)).collect();
                self.devices.insert("pid".to_owned(), devices);
                if self.namespaces.lost_one() {
                    self.find_namespaces(seen);
                }
                self.read_rows(Rate::Once, at, seen);
            }
        }
    }

    /// All harmless rows that are read at least as often as `least`.
    fn read_rows(&mut self, least: Rate, at: Duration, seen: &mut RawFiles) {
        let budget = self.whole_moment();
        let mut late = false;
        for row in ROWS {
            if !row.hazardous() && row.read >= least && !self.was_early(row) {
                self.read_row(row, budget, &mut late, at, seen);
            }
        }
    }

    fn whole_moment(&self) -> Budget {
        Budget::new(self.limits.moment, self.limits.moment * 10)
    }

    fn read_row(
        &mut self,
        row: &'static Row,
        budget: Budget,
        late: &mut bool,
        at: Duration,
        seen: &mut RawFiles,
    ) {
        let mut result = RowResult::of(row);
        let places = self.places(row);
        let found = !places.is_empty();
        for (count, place) in places.into_iter().enumerate() {
            *late = *late || (count % 16 == 0 && budget.spent());
            if *late {
                result.skip(place.name, "reading took too long on this host");
                break;
            }
            let reader = Reader { root: &self.root, namespaces: &self.namespaces };
            read_place(&reader, place, row, at, &mut self.buffer, &mut result, &mut self.noted, seen);
        }
        result.settle(self.root.live, found, &mut self.noted, seen);
    }

    /// The rows of each second, through descriptors kept open. A reading over the budget is followed by a pause: on a host of
    /// thousands of CPUs the files are read every few seconds only.
    fn read_second(&mut self, at: Duration, seen: &mut RawFiles) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        let before = budget::thread_cpu();
        if self.kept.is_empty() {
            self.kept = self.keep_open();
        }
        for kept in &self.kept {
            let Some(fd) = &kept.fd else { continue };
            let mut result = RowResult::of(kept.row);
            match root::fill(fd.as_raw_fd(), kept.row.cap, &mut self.buffer) {
                Ok(whole) => {
                    let snapshot =
                        FileSnapshot { at, name: kept.place.name.clone(), bytes: self.buffer.clone() };
                    result.took(snapshot, whole, &mut self.noted, seen);
                }
                Err(err) => result.failed(kept.place.name.clone(), err),
            }
            result.settle(self.root.live, true, &mut self.noted, seen);
        }
        let cost = budget::thread_cpu().saturating_sub(before);
        self.rest = (cost.as_micros() / SECOND.as_micros()).min(60) as u32;
        if self.rest > 0 {
            let reason = format!("reading them takes {} ms of CPU time on this host", cost.as_millis());
            note(
                Missing::skipped("some seconds of the files read each second", reason),
                &mut self.noted,
                seen,
            );
        }
    }

    fn keep_open(&self) -> Vec<OpenFile> {
        let rows = ROWS.iter().filter(|row| row.read == Rate::Seconds);
        rows.flat_map(|row| self.places(row).into_iter().map(move |place| (row, place)))
            .map(|(row, place)| OpenFile { row, fd: self.root.open_file(&place.path).ok(), place })
            .collect()
    }

    fn places(&self, row: &Row) -> Vec<Place> {
        let patterns = row.patterns();
        patterns.iter().flat_map(|pattern| devices::places(&self.root, pattern, &self.devices)).collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for &pid in &self.strays {
            child::reaped_before(pid, Instant::now());
        }
    }
}

/// Reads files. On a live host some need their own way of reading.
struct Reader<'a> {
    root: &'a Root,
    namespaces: &'a Namespaces,
}

impl Reads for Reader<'_> {
    fn read(&self, path: &CStr, cap: usize, into: &mut Vec<u8>) -> io::Result<bool> {
        if self.root.live && path.to_bytes().starts_with(b"netns/") {
            return self.namespaces.read(path, cap, into);
        }
        if path == c"dev/kmsg"
            && let Some(read) = kmsg::tail(self.root, cap, into)
        {
            return read;
        }
        self.root.read(path, cap, into)
    }
}

#[expect(clippy::too_many_arguments, reason = "the reader's state, in parts that are borrowed differently")]
fn read_place(
    reader: &dyn Reads,
    place: Place,
    row: &Row,
    at: Duration,
    buffer: &mut Vec<u8>,
    result: &mut RowResult,
    noted: &mut Noted,
    seen: &mut RawFiles,
) {
    match reader.read(&place.path, row.cap, buffer) {
        Ok(whole) => {
            result.took(FileSnapshot { at, name: place.name, bytes: buffer.clone() }, whole, noted, seen);
        }
        Err(err) => result.failed(place.name, err),
    }
}
