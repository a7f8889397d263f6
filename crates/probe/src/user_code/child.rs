//! The work of the child: opens files that were met, makes unwinding tables, looks up names, and reports them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{Read as _, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant, SystemTime};

use libbpf_rs::libbpf_sys;
use serde::{Deserialize, Serialize};

use super::kept::Files;
use super::open::Told;
use super::perf_map::PerfMap;
use super::place::Place;
use super::python;
use super::symbols_of::CodeFile;
use super::unwind::BLOCK;
use crate::bpf::constants::user_places_h::{TOLD_BLOCK, TOLD_FILE, VDSO_FILE};
use crate::bpf::constants::user_stack_h::{BLOCK_BARE, BLOCK_LOST, BLOCK_MADE};
use crate::bpf::oncpu::UnwindBlock;
use crate::host::thread_cpu_ns;

/// How long it sleeps when there is nothing to do, or when it has used up its share of CPU time.
const NAP: Duration = Duration::from_millis(100);
/// The most seconds of CPU for one step. Only a file made for that needs more: then the child ends, and its answers until then are kept.
const A_STEP_S: u64 = 5;
/// Names that are looked up in one go.
const BATCH: usize = 1024;

/// CPU time that it may use in the window: names can wait for the end, the tasks of the host cannot.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Available at once: what is met in the first moment is most of what will be met.
    pub credit: Duration,
    /// A share of the time since it began.
    pub share: f64,
}

/// A request.
#[derive(Debug, Serialize, Deserialize)]
pub enum ChildRequest {
    /// Frames in files.
    Frames(Vec<u64>),
    /// The window is over: it need not save CPU time any more.
    Over,
    /// Addresses of a process in memory that belongs to no file.
    Addresses(u32, Vec<u64>),
    /// There are no more requests.
    End,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Says {
    /// The name of a place where a thread was met.
    Name {
        /// The process; 0: all processes.
        tgid: u32,
        /// The frame.
        frame: u64,
        /// Functions, innermost first.
        frames: Vec<String>,
        /// The file's name.
        module: String,
    },
    /// So many blocks of code had no room for their rows.
    WithoutRows(u64),
}

/// The maps of the kernel half that the child writes.
pub struct Tables {
    /// Rows, in memory that parent and child share.
    pub rows: &'static mut [u64],
    /// Descriptor of the map of blocks.
    pub blocks: i32,
    /// Descriptor of the map of interpreters' layouts.
    pub pythons: i32,
}

/// The child's work.
pub struct Child<'o> {
    out: &'o mut dyn Write,
    tables: Tables,
    used: usize,
    without_rows: u64,
    files: Files,
    /// Files that were met and must be opened; blocks without rows in the order in which they were met: a block that is met first is most
    /// often met again. Frames without names, and frames that may have inlined functions, by file.
    met: VecDeque<Told>,
    blocks: VecDeque<u64>,
    wanted: BTreeMap<u32, Vec<u64>>,
    inlined: BTreeMap<u32, Vec<u64>>,
    addresses: Vec<(u32, Vec<u64>)>,
    /// Frames that wait for files that are opened last.
    put_off: BTreeMap<u32, Vec<u64>>,
    /// Files that were checked for Python.
    asked: BTreeSet<u32>,
    budget: Budget,
    /// CPU time spent on names: tables for later samples must not wait for the names of earlier ones.
    naming: Duration,
    /// Whole seconds of CPU time when the limit was last raised.
    limited: Option<u64>,
    began: (Instant, SystemTime),
    is_over: bool,
    is_ended: bool,
}

impl<'o> Child<'o> {
    pub fn new(tables: Tables, budget: Budget, out: &'o mut dyn Write) -> Self {
        let mut files = Files::default();
        if let Some(file) = vdso() {
            files.keep(VDSO_FILE, file);
        }
        Child {
            out,
            tables,
            used: 0,
            without_rows: 0,
            files,
            met: VecDeque::new(),
            blocks: VecDeque::new(),
            wanted: BTreeMap::new(),
            inlined: BTreeMap::new(),
            addresses: Vec::new(),
            put_off: BTreeMap::new(),
            asked: BTreeSet::new(),
            budget,
            naming: Duration::ZERO,
            limited: None,
            began: (Instant::now(), SystemTime::now()),
            is_over: false,
            is_ended: false,
        }
    }

    /// Work until all names after the window are reported, or the parent is gone. `news` returns the records of the ring with descriptor `ring`.
    pub fn work(&mut self, mut asked: File, ring: i32, mut news: impl FnMut() -> Vec<Vec<u8>>) {
        let mut text = Vec::new();
        let mut did = true;
        loop {
            self.limit_step();
            let nap = if did { Duration::ZERO } else { NAP };
            let ring = if self.may_unwind(2) { ring } else { -1 };
            if !self.hear(&mut asked, ring, &mut text, nap) {
                return;
            }
            news().iter().for_each(|one| self.take(one));
            did = self.open_met() || self.may_unwind(1) && self.make_rows() || self.name();
            if !did && self.is_ended {
                did = self.open_put_off();
                if !did {
                    let _ = self.say(&Says::WithoutRows(self.without_rows));
                    return;
                }
            }
            self.files.close_idle(Instant::now());
        }
    }

    /// Raise the limit of CPU time by the time used.
    fn limit_step(&mut self) {
        let used = used_s();
        if self.limited != Some(used) {
            self.limited = Some(used);
            limit_cpu(used + A_STEP_S);
        }
    }

    /// Within the window it uses no more than its share: tables have a share of their own, and names get what is left of both.
    fn may_unwind(&self, times: u32) -> bool {
        self.is_over
            || Duration::from_nanos(thread_cpu_ns()).saturating_sub(self.naming) < self.part() * times
    }

    fn may_name(&self) -> bool {
        self.is_over || Duration::from_nanos(thread_cpu_ns()) < self.part()
    }

    fn part(&self) -> Duration {
        self.budget.credit + self.began.0.elapsed().mul_f64(self.budget.share)
    }

    /// Open a file that was met. This comes first: a process may be gone a moment later. False: there was none.
    fn open_met(&mut self) -> bool {
        if !self.may_unwind(2) {
            return false;
        }
        let Some(told) = self.met.pop_front() else { return false };
        self.files.meet(told);
        true
    }

    /// Look up some names. False: there are none to be found, or not now.
    fn name(&mut self) -> bool {
        if !self.may_name() {
            return false;
        }
        let before = thread_cpu_ns();
        let did = self.name_some(false) || self.name_addresses() || self.name_some(true);
        self.naming += Duration::from_nanos(thread_cpu_ns() - before);
        did
    }

    fn open_put_off(&mut self) -> bool {
        let Some(file) = self.files.open_next() else { return false };
        self.wanted.extend(self.put_off.remove(&file).map(|frames| (file, frames)));
        true
    }

    /// Read requests. False: the parent is gone.
    fn hear(&mut self, asked: &mut File, ring: i32, text: &mut Vec<u8>, patience: Duration) -> bool {
        let of = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut ready = [of(asked.as_raw_fd()), of(ring)];
        // SAFETY: two pollfds, and we say so; a negative descriptor is ignored.
        let n = unsafe { libc::poll(ready.as_mut_ptr(), 2, patience.as_millis() as i32) };
        if n <= 0 || ready[0].revents == 0 {
            return true;
        }
        let mut chunk = [0; 16384];
        match asked.read(&mut chunk) {
            Ok(0) => return false,
            Ok(n) => text.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(err) => return err.kind() == std::io::ErrorKind::Interrupted,
        }
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(ChildRequest::Frames(frames)) => frames.iter().for_each(|frame| self.want(*frame)),
                Ok(ChildRequest::Addresses(tgid, all)) => self.addresses.push((tgid, all)),
                Ok(ChildRequest::Over) => self.is_over = true,
                Ok(ChildRequest::End) => (self.is_over, self.is_ended) = (true, true),
                Err(_) => {}
            }
        }
        true
    }

    fn want(&mut self, frame: u64) {
        if let Place::InFile { file, .. } = Place::of(frame) {
            self.wanted.entry(file).or_default().push(frame);
        }
    }

    /// Take a record of the kernel half.
    fn take(&mut self, news: &[u8]) {
        let word = |at: usize| Some(u64::from_ne_bytes(news.get(at..at + 8)?.try_into().ok()?));
        match word(0).map(|what| what as u32) {
            Some(TOLD_FILE) => self.met.extend(Told::of(news)),
            Some(TOLD_BLOCK) => self.blocks.extend(word(8)),
            _ => {}
        }
    }

    /// Make the rows of one block of code. False: there are none to be made.
    fn make_rows(&mut self) -> bool {
        if self.is_over {
            self.blocks.clear(); // there are no more samples
        }
        let Some(block) = self.blocks.pop_front() else { return false };
        let Place::InFile { file, offset } = Place::of((1 << 63) | (block * BLOCK)) else { return true };
        if self.files.is_put_off(file) {
            update(self.tables.blocks, &block, &UnwindBlock { first: 0, count: 0, state: BLOCK_LOST });
        }
        let Some(open) = self.files.get(file) else { return true };
        if !open.code.is_open() {
            update(self.tables.blocks, &block, &UnwindBlock { first: 0, count: 0, state: BLOCK_LOST });
            return true;
        }
        if self.asked.insert(file)
            && let Some(layout) = open.code.elf().and_then(python::layout)
        {
            update(self.tables.pythons, &file, &layout);
        }
        let Some(rows) = open.code.rows(offset) else {
            update(self.tables.blocks, &block, &UnwindBlock { first: 0, count: 0, state: BLOCK_BARE });
            return true;
        };
        let Some(room) = self.tables.rows.get_mut(self.used..self.used + rows.len()) else {
            self.without_rows += 1;
            return true;
        };
        room.copy_from_slice(&rows);
        let made = UnwindBlock { first: self.used as u32, count: rows.len() as u32, state: BLOCK_MADE };
        update(self.tables.blocks, &block, &made);
        self.used += rows.len();
        true
    }

    /// Look up names of one file's frames; `debug`: again, with inlined functions. False: there are none.
    fn name_some(&mut self, debug: bool) -> bool {
        let queue = if debug { &mut self.inlined } else { &mut self.wanted };
        let Some((file, mut frames)) = queue.pop_first() else { return false };
        if self.files.is_put_off(file) {
            self.put_off.entry(file).or_default().extend(frames);
            return true;
        }
        let rest = frames.split_off(frames.len().min(BATCH));
        if !rest.is_empty() {
            queue.insert(file, rest);
        }
        let Some(open) = self.files.get(file) else { return true };
        let offset = |frame: &u64| match Place::of(*frame) {
            Place::InFile { offset, .. } => offset,
            _ => 0,
        };
        let offsets: Vec<u64> = frames.iter().map(offset).collect();
        let named = open.code.frames(debug.then_some(&open.symbolizer), &offsets);
        let module = open.code.name().to_owned();
        if !debug && open.code.has_debug() {
            self.inlined.entry(file).or_default().extend(&frames);
        }
        for (frame, frames) in frames.into_iter().zip(named) {
            if !self.say(&Says::Name { tgid: 0, frame, frames, module: module.clone() }) {
                return false;
            }
        }
        true
    }

    fn name_addresses(&mut self) -> bool {
        let Some((tgid, addresses)) = self.addresses.pop() else { return false };
        let Some(map) = PerfMap::of(tgid, self.began.1) else { return true };
        for frame in addresses {
            let Some(name) = map.name(frame) else { continue };
            if !self.say(&Says::Name { tgid, frame, frames: vec![name.to_owned()], module: String::new() }) {
                return false;
            }
        }
        true
    }

    /// False: the parent is gone.
    fn say(&mut self, what: &Says) -> bool {
        let Ok(mut line) = serde_json::to_vec(what) else { return true };
        line.push(b'\n');
        let is_heard = self.out.write_all(&line).is_ok();
        if !is_heard {
            (self.is_over, self.is_ended) = (true, true);
            (self.wanted, self.inlined) = (BTreeMap::new(), BTreeMap::new());
            (self.addresses, self.put_off) = (Vec::new(), BTreeMap::new());
        }
        is_heard
    }
}

/// CPU time of this process, in whole seconds, by the clock that RLIMIT_CPU counts (kernel/time/posix-cpu-timers.c: CPUCLOCK_PROF of the own
/// process).
fn used_s() -> u64 {
    const OWN_TICKS: libc::clockid_t = !0 << 3;
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a whole timespec, which is written.
    unsafe { libc::clock_gettime(OWN_TICKS, &raw mut used) };
    used.tv_sec.max(0) as u64
}

/// A process that has used so much CPU time ends (setrlimit(2): SIGXCPU). A lower limit that was set before stays.
fn limit_cpu(seconds: u64) {
    let mut limit = libc::rlimit { rlim_cur: seconds, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process alone, which is read, and then written.
    unsafe {
        libc::getrlimit(libc::RLIMIT_CPU, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min(seconds);
        libc::setrlimit(libc::RLIMIT_CPU, &raw const limit);
    }
}

/// Write into a map of the kernel half. A full map keeps what it has.
fn update<K, V>(map: i32, key: &K, value: &V) {
    // SAFETY: both are plain numbers of the sizes that the map has, and are read only.
    unsafe {
        libbpf_sys::bpf_map_update_elem(map, (&raw const *key).cast(), (&raw const *value).cast(), 0);
    }
}

/// The kernel's own code in each process (vdso(7)): it is the same in ours.
fn vdso() -> Option<CodeFile> {
    const MOST: usize = 0x4000;
    // SAFETY: no arguments; the kernel says where it put it.
    let at = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    let mut bytes = vec![0; MOST];
    let length = File::open("/proc/self/mem").ok()?.read_at(&mut bytes, at as u64).ok()?;
    bytes.truncate(length);
    let file = crate::kallsyms::in_memory(c"vdso", &bytes).ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Some(CodeFile::of("[vdso]".to_owned(), file, path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_end_is_ended_and_what_was_told_is_kept() {
        let told = crate::child::run(Duration::from_secs(60), 100, |out| {
            let _ = out.write_all(b"told");
            limit_cpu(used_s() + 1);
            loop {
                std::hint::black_box(0);
            }
        });
        let told = told.unwrap();
        assert_eq!((told.bytes.as_slice(), told.finished), (b"told".as_slice(), false));
    }
}
