//! Kernel files of a window, as text: what to read when is the table (`files/rows.rs`), how is here.
//!
//! Harmless rows are read at the window's ends, some each second through descriptors kept open; rows with a hazard are
//! read once, last, by a disposable child. Nothing here parses what it reads, but to find CPUs, devices and cgroups.
//! Names of frames are paths below the root, escaped as `name.rs` says; a network namespace's files are
//! `netns/<inode>/net/...`.

mod absent;
mod budget;
mod cgroups;
mod child;
mod ipis;
mod kmsg;
mod name;
mod namespaces;
mod quiet;
mod root;
mod rows;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod things;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use whyslow_model::{Frame, Missing, MissingNote};

use budget::Budget;
use cgroups::Mounts;
use ipis::Ipis;
use namespaces::Namespaces;
use root::{Reads, Root};
use tally::{Noted, Tally, note};
use things::{Most, Place, Thing, Things};

pub use name::raw_name;
pub use rows::ROWS;
pub use table::{Hazard, Rate, Row};

/// What was read, and what could not be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Files, in the order they were read.
    pub frames: Vec<Frame>,
    /// By name of frame, or by pattern of a row.
    pub missing: Vec<MissingNote>,
}

/// When in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It begins.
    Start,
    /// A second of it has passed.
    Second,
    /// It is over.
    End,
}

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
struct Limits {
    things: Most,
    namespaces: usize,
    processes: usize,
    /// Of one hierarchy: all, and those whose flushing files are read.
    cgroups: (usize, usize),
    /// CPU time of one moment's reading; the clock gets ten times as much.
    moment: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            things: Most { cpus: 512, disks: 128, nics: 64 },
            namespaces: 256,
            processes: 64,
            cgroups: (2000, 16),
            moment: Duration::from_millis(100),
        }
    }
}

/// CPU time that finding cgroups, and finding network namespaces, may take each.
const SEARCH: Duration = Duration::from_millis(50);
/// On the clock: a host with a load of 20 a CPU still lets us finish.
const SEARCH_CLOCK: Duration = Duration::from_secs(1);
/// CPU time a second that the reads between start and end may take: 0.3 %.
const SECOND: Duration = Duration::from_millis(3);
/// The name that a reading child holds: one per host.
const ONLY_ONE: &[u8] = b"whyslow-files";

/// A file that is read each second, kept open.
#[derive(Debug)]
struct Kept {
    row: &'static Row,
    place: Place,
    fd: Option<OwnedFd>,
}

/// The files of one host, live or in a folder.
#[derive(Debug)]
pub struct Files {
    root: Root,
    limits: Limits,
    things: Things,
    mounts: BTreeMap<String, PathBuf>,
    namespaces: Namespaces,
    kept: Vec<Kept>,
    noted: Noted,
    /// Notes made while opening, handed out with the first reading.
    early: Vec<MissingNote>,
    buffer: Vec<u8>,
    /// Seconds still to leave out, because the last reading was too dear.
    rest: u32,
    only_one: Option<Vec<u8>>,
    strays: Vec<libc::pid_t>,
}

impl Files {
    /// Discovers CPUs, disks, NICs, cgroups (version 1, 2 and hybrid) and network namespaces below `root`. Cheap and
    /// capped; what is beyond a cap is told with the first reading.
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
            things: Things::new(),
            mounts: BTreeMap::new(),
            namespaces: Namespaces::default(),
            kept: Vec::new(),
            noted: Noted::new(),
            early: Vec::new(),
            buffer: Vec::new(),
            rest: 0,
            strays: Vec::new(),
        };
        let mut seen = Seen::default();
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
    pub fn read(&mut self, moment: Moment, at: Duration, busiest: &[u32], seen: &mut Seen) {
        seen.missing.append(&mut self.early);
        match moment {
            Moment::Start => self.read_rows(Rate::Ends, at, seen),
            Moment::Second => self.read_second(at, seen),
            Moment::End => {
                let pids = busiest.iter().take(self.limits.processes);
                let things = pids.map(|pid| Thing::new(pid.to_string().as_bytes(), true)).collect();
                self.things.insert("pid".to_owned(), things);
                if self.namespaces.lost_one() {
                    self.find_namespaces(seen);
                }
                self.read_rows(Rate::Once, at, seen);
            }
        }
    }

    /// Reads the rows with a hazard, once, in a disposable child that is left behind at the deadline. The processes
    /// are those of the last `read`.
    pub fn read_hazardous(&mut self, at: Duration, deadline: Duration, seen: &mut Seen) {
        self.strays.retain(|&pid| !child::reaped_before(pid, Instant::now()));
        let mut wanted = self.hazardous_places(seen);
        let buffer_len = wanted.iter().map(|(row, _)| row.cap).max().unwrap_or(0) + 1;
        let (answers, why) = if self.strays.is_empty() {
            self.ask_child(deadline, &wanted, buffer_len)
        } else {
            (Vec::new(), "an earlier reader is stuck in the kernel".to_owned())
        };
        let mut answers = answers.into_iter().peekable();
        let mut index = 0_u32;
        while let Some(&(row, _)) = wanted.first() {
            let len = wanted.iter().take_while(|(other, _)| other.id == row.id).count();
            let mut tally = Tally::of(row);
            for (_, place) in wanted.drain(..len) {
                match answers.next_if(|(header, _)| header.index == index) {
                    None => tally.skip(place.name, &why),
                    Some((header, bytes)) if header.errno == 0 => {
                        let frame = Frame { at, name: place.name, bytes };
                        tally.took(frame, header.cut == 0, &mut self.noted, seen);
                    }
                    Some((header, _)) => {
                        tally.failed(place.name, io::Error::from_raw_os_error(header.errno));
                    }
                }
                index = index.saturating_add(1);
            }
            tally.settle(self.root.live, true, &mut self.noted, seen);
        }
    }

    /// Answers of the child, and why the files without an answer have none.
    fn ask_child(
        &mut self,
        deadline: Duration,
        wanted: &[(&'static Row, Place)],
        buffer_len: usize,
    ) -> (Vec<(child::Header, Vec<u8>)>, String) {
        let files: Vec<(&CStr, usize)> =
            wanted.iter().map(|(row, place)| (place.path.as_c_str(), row.cap)).collect();
        let Ok(root) = CString::new(self.root.path.as_os_str().as_bytes()) else {
            return (Vec::new(), "the root's name holds a NUL".to_owned());
        };
        let cpus = self.quiet_cpus();
        let mut buffer = vec![0; buffer_len];
        let only_one = self.only_one.as_deref();
        let live = self.root.live;
        let ran = child::run(deadline, cpus.as_deref(), |pipe| {
            child::read_all(pipe, &root, live, only_one, &files, &mut buffer);
        });
        let mut answers = match ran {
            Ok(answers) => answers,
            Err(err) => return (Vec::new(), format!("cannot start its reader: {err}")),
        };
        self.strays.extend(answers.stray);
        let name = |at: usize| wanted.get(at).map_or("it", |(_, place)| place.name.as_str());
        let last = answers.all.pop_if(|(header, _)| header.index >= child::OTHER).map(|(header, _)| header);
        let done = answers.all.len();
        let why = match last {
            Some(header) if header.index == child::OTHER => "another whyslow is reading, or stuck".to_owned(),
            Some(header) => {
                let took = header.took_ns / 1_000_000;
                format!("{}, read before it, took {took} ms", name(done.saturating_sub(1)))
            }
            None if answers.late => format!("{} did not answer in time", name(done)),
            None => "its reader ended early".to_owned(),
        };
        (answers.all, why)
    }

    /// Files with a hazard that may be read here, in the order of the table.
    fn hazardous_places(&mut self, seen: &mut Seen) -> Vec<(&'static Row, Place)> {
        let mut wanted = Vec::new();
        let mut ipis = None;
        for row in ROWS.iter().filter(|row| row.hazardous()) {
            let places = self.places(row);
            if places.is_empty() {
                Tally::of(row).settle(self.root.live, false, &mut self.noted, seen);
                continue;
            }
            if let Some(reason) = self.forbidden(row, &mut ipis) {
                if places.iter().any(|place| self.root.exists(&place.path)) {
                    note(Missing::skipped(row.pattern, reason), &mut self.noted, seen);
                }
                continue;
            }
            wanted.extend(places.into_iter().map(|place| (row, place)));
        }
        wanted
    }

    /// Why a row must not be read on this kernel at all.
    fn forbidden(&self, row: &Row, ipis: &mut Option<Ipis>) -> Option<&'static str> {
        if !self.root.live {
            return None;
        }
        if row.read == Rate::Never {
            return Some("reading it interrupts another CPU and waits for it");
        }
        if !row.hazards.contains(&Hazard::SendsIpisBefore518) {
            return None;
        }
        match ipis.get_or_insert_with(|| ipis::on_reading_frequency(&self.root)) {
            Ipis::None => None,
            Ipis::Sent => Some("on this kernel reading it interrupts every CPU and waits for them"),
            Ipis::Unknown => Some("reading it may interrupt every CPU: neither BTF nor kallsyms tells"),
        }
    }

    fn quiet_cpus(&self) -> Option<Vec<u64>> {
        let cpus = quiet::cpus(&self.root, &self.things, &quiet::allowed());
        let mut set = vec![0_u64; 128];
        for &cpu in &cpus {
            if let Some(word) = set.get_mut(cpu as usize / 64) {
                *word |= 1 << (cpu % 64);
            }
        }
        (!cpus.is_empty()).then_some(set)
    }

    /// All harmless rows that are read at least as often as `least`.
    fn read_rows(&mut self, least: Rate, at: Duration, seen: &mut Seen) {
        let budget = Budget::new(self.limits.moment, self.limits.moment * 10);
        let mut late = false;
        for row in ROWS.iter().filter(|row| !row.hazardous() && row.read >= least) {
            let mut tally = Tally::of(row);
            let places = self.places(row);
            let found = !places.is_empty();
            for (count, place) in places.into_iter().enumerate() {
                late = late || (count % 16 == 0 && budget.spent());
                if late {
                    tally.skip(place.name, "reading took too long on this host");
                    break;
                }
                let reader = Reader { root: &self.root, namespaces: &self.namespaces };
                read_place(&reader, place, row, at, &mut self.buffer, &mut tally, &mut self.noted, seen);
            }
            tally.settle(self.root.live, found, &mut self.noted, seen);
        }
    }

    /// The rows of each second, through descriptors kept open. After a reading over the budget it rests: on a host of
    /// thousands of CPUs, every few seconds must do.
    fn read_second(&mut self, at: Duration, seen: &mut Seen) {
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
            let mut tally = Tally::of(kept.row);
            match root::fill(fd.as_raw_fd(), kept.row.cap, &mut self.buffer) {
                Ok(whole) => {
                    let frame = Frame { at, name: kept.place.name.clone(), bytes: self.buffer.clone() };
                    tally.took(frame, whole, &mut self.noted, seen);
                }
                Err(err) => tally.failed(kept.place.name.clone(), err),
            }
            tally.settle(self.root.live, true, &mut self.noted, seen);
        }
        let cost = budget::thread_cpu().saturating_sub(before);
        self.rest = (cost.as_micros() / SECOND.as_micros()).min(60) as u32;
        if self.rest > 0 {
            let reason = format!("reading them takes {} ms CPU on this host", cost.as_millis());
            note(
                Missing::skipped("some seconds of the files read each second", reason),
                &mut self.noted,
                seen,
            );
        }
    }

    fn keep_open(&self) -> Vec<Kept> {
        let rows = ROWS.iter().filter(|row| row.read == Rate::Seconds);
        rows.flat_map(|row| self.places(row).into_iter().map(move |place| (row, place)))
            .map(|(row, place)| Kept { row, fd: self.root.open_file(&place.path).ok(), place })
            .collect()
    }

    fn places(&self, row: &Row) -> Vec<Place> {
        let patterns = row.patterns();
        patterns.iter().flat_map(|pattern| things::places(&self.root, pattern, &self.things)).collect()
    }

    fn find_things(&mut self, seen: &mut Seen) {
        let noted = &mut self.noted;
        self.things = things::discover(&self.root, &self.limits.things, |kind, all, taken| {
            let reason = format!("{taken} of {all} are read");
            note(Missing::skipped(format!("some of {{{kind}}}"), reason), noted, seen);
        });
        let mut mounts = Mounts::find(&self.root);
        if mounts.is_empty() && self.root.live {
            mounts = self.mounts_by_child();
        }
        if mounts.is_empty() {
            let what = "sys/fs/cgroup".to_owned();
            let missing = if self.root.live {
                Missing::NotInKernel { what, needs: "a mounted cgroup hierarchy".to_owned() }
            } else {
                Missing::NotRecorded { what }
            };
            note(missing, &mut self.noted, seen);
        }
        self.mounts = mounts.by_controller(&self.root);
        let (budget, noted) = (Budget::new(SEARCH, SEARCH_CLOCK), &mut self.noted);
        cgroups::discover(
            &self.root,
            &mounts,
            self.limits.cgroups,
            budget,
            &mut self.things,
            |base, taken, left| {
                let reason = format!("{taken} are read, at least {left} more are there");
                note(Missing::skipped(format!("some cgroups below {base}"), reason), noted, seen);
            },
        );
    }

    /// mountinfo waits for mounts in progress, so even here the child reads it.
    fn mounts_by_child(&mut self) -> Mounts {
        let path = c"proc/self/mountinfo".to_owned();
        let row = ROWS.iter().find(|row| row.id == "mountinfo").expect("the table has mountinfo");
        let wanted = [(row, Place { name: "proc/self/mountinfo".to_owned(), path })];
        let (answers, _) = self.ask_child(Duration::from_millis(200), &wanted, row.cap + 1);
        answers.first().map(|(_, text)| Mounts::parse(text)).unwrap_or_default()
    }

    fn find_namespaces(&mut self, seen: &mut Seen) {
        if !self.root.live {
            let mut found = Vec::new();
            let most = self.limits.namespaces;
            let _ = self.root.list(c"netns", |name, is_dir| {
                if is_dir && name.iter().all(u8::is_ascii_digit) {
                    found.push(Thing::new(name, false));
                }
                found.len() < most
            });
            self.things.insert("netns".to_owned(), found);
            return;
        }
        let budget = Budget::new(SEARCH, SEARCH_CLOCK);
        let found = Namespaces::find(&self.root, self.limits.namespaces, budget);
        let things = found.things();
        let reason = match (found.left, found.unfinished, found.hidden) {
            (0, false, 0) => None,
            (0, false, hidden) => Some(format!("those of {hidden} processes may not be seen; run as root")),
            (left, false, _) => Some(format!("{} are read, {left} more are there", things.len())),
            (..) => Some("this host has too many processes to look at all of them".to_owned()),
        };
        if let Some(reason) = reason {
            note(Missing::skipped("some network namespaces", reason), &mut self.noted, seen);
        }
        self.things.insert("netns".to_owned(), things);
        self.namespaces = found;
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for &pid in &self.strays {
            child::reaped_before(pid, Instant::now());
        }
    }
}

/// Knows which files are read in a way of their own on a live host.
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
    tally: &mut Tally,
    noted: &mut Noted,
    seen: &mut Seen,
) {
    match reader.read(&place.path, row.cap, buffer) {
        Ok(whole) => {
            tally.took(Frame { at, name: place.name, bytes: buffer.clone() }, whole, noted, seen);
        }
        Err(err) => tally.failed(place.name, err),
    }
}
