//! The parent's side of the child.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use libbpf_rs::{MapMut, RingBufferBuilder};
use whyslow_model::{Missing, MissingNote};

use super::child::{Budget, Child, ChildRequest, Says, Tables};
use super::place::Place;
use super::python::Codes;
use crate::child::{Disposable, start};
use crate::symbols::Named;

/// The time that the child gets after the window.
const PATIENCE: Duration = Duration::from_millis(200);
/// The least time after the last request: other work may have needed all of that.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);
/// Its answers are cut here.
const MOST_BYTES: usize = 32 << 20;
/// The most frames that are requested: more frames would need more room for names.
const MOST_FRAMES: usize = 65_536;
/// The memory that it may use beside what it has from us: for the symbols of large programs.
const MOST_MEMORY: u64 = 256 << 20;
/// The memory that it has from us: 20 MiB were measured.
const OWN_MEMORY: u64 = 48 << 20;
/// The name of the missing note.
const WHAT: &str = "names of user code";

/// Maps of the kernel half that the child empties and fills.
pub struct Maps<'m> {
    /// Files and blocks of code that were met.
    pub news: &'m MapMut<'m>,
    /// Rows of unwinding tables.
    pub rows: BorrowedFd<'m>,
    /// How many rows there is room for.
    pub most_rows: usize,
    /// Where the rows of a block are.
    pub blocks: BorrowedFd<'m>,
    /// Memory layouts of interpreters.
    pub pythons: BorrowedFd<'m>,
}

/// Looks up names during the window.
pub struct Namer {
    child: Disposable,
    asked: HashSet<u64>,
    /// The number of frames beyond the limit.
    refused: usize,
    to_ask: Vec<u8>,
    told: Vec<u8>,
    is_lost: bool,
    over: Option<Instant>,
}

impl Namer {
    /// Start the child. No other thread of ours may run: it is a fork.
    pub fn start(maps: &Maps<'_>, budget: Budget) -> Result<Self, Missing> {
        let broken = |err: std::io::Error| Missing::broken(WHAT, err);
        let news = RefCell::new(Vec::new());
        let mut ring = RingBufferBuilder::new();
        ring.add(maps.news, |bytes| {
            news.borrow_mut().push(bytes.to_vec());
            0
        })
        .map_err(|err| crate::bpf::missing(WHAT, &err))?;
        let ring = ring.build().map_err(|err| crate::bpf::missing(WHAT, &err))?;
        let kept = [maps.blocks, maps.pythons, maps.rows, maps.news.as_fd()].map(|fd| fd.as_raw_fd());
        let most_rows = maps.most_rows;
        let child = start(&kept, |ends| {
            limit_memory();
            let &[blocks, pythons, rows, news_fd] = ends.kept else { return };
            let Ok(rows) = shared_rows(rows, most_rows) else { return };
            let mut child = Child::new(Tables { rows, blocks, pythons }, budget, ends.out);
            child.work(ends.asked, news_fd, || {
                // Parent and child share the ring's memory.
                let _ = ring.consume_raw_n(1024);
                news.take()
            });
        })
        .map_err(broken)?;
        more_room(&child.from);
        Ok(Namer {
            child,
            asked: HashSet::new(),
            refused: 0,
            to_ask: Vec::new(),
            told: Vec::new(),
            is_lost: false,
            over: None,
        })
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Ask for the names of these frames. Each frame is requested only once.
    pub fn ask(&mut self, frames: impl Iterator<Item = u64>) {
        let mut fresh = Vec::new();
        for frame in frames.filter(|frame| matches!(Place::of(*frame), Place::InFile { .. })) {
            if self.asked.len() >= MOST_FRAMES && !self.asked.contains(&frame) {
                self.refused += 1;
            } else if self.asked.insert(frame) {
                fresh.push(frame);
            }
        }
        if !fresh.is_empty() {
            self.say(&ChildRequest::Frames(fresh));
        }
        self.listen();
    }

    fn say(&mut self, asked: &ChildRequest) {
        if let Ok(line) = serde_json::to_vec(asked) {
            self.to_ask.extend(line);
            self.to_ask.push(b'\n');
        }
    }

    /// Send and receive as much as is possible without waiting. False: the child has ended.
    pub fn listen(&mut self) -> bool {
        while !self.to_ask.is_empty() {
            match (&self.child.to).write(&self.to_ask) {
                Ok(n) if n > 0 => drop(self.to_ask.drain(..n)),
                Err(err) if err.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let mut chunk = [0; 16384];
        loop {
            match (&self.child.from).read(&mut chunk) {
                Ok(0) => return false,
                Ok(n) if self.told.len() < MOST_BYTES => self.told.extend(chunk.iter().take(n)),
                Ok(_) => self.is_lost = true,
                Err(err) if err.kind() == ErrorKind::Interrupted => {}
                Err(err) => return err.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// The window is over, and all frames were requested.
    pub fn over(&mut self) {
        self.over = Some(Instant::now());
        self.say(&ChildRequest::Over);
        self.listen();
    }

    /// Request these addresses as the last ones, and return the names that the child finds until its time is up.
    pub fn names(
        mut self,
        addresses: HashMap<u32, HashSet<u64>>,
        codes: Codes,
        missing: &mut Vec<MissingNote>,
    ) -> UserNames {
        let has_addresses = !addresses.is_empty();
        for (tgid, addresses) in addresses {
            self.say(&ChildRequest::Addresses(tgid, addresses.into_iter().collect()));
        }
        self.say(&ChildRequest::End);
        let now = Instant::now();
        let until = (self.over.unwrap_or(now) + PATIENCE).max(now + LEAST_PATIENCE);
        let mut has_ended = false;
        let is_done = loop {
            if !self.listen() {
                has_ended = true;
                break self.told.pop_if(|last| *last == crate::child::DONE).is_some();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            await_either(&self.child.from, &self.child.to, !self.to_ask.is_empty(), left);
        };
        has_ended &= !is_done;
        let is_done = is_done && !self.is_lost;
        self.child.end();
        let mut names = UserNames { codes, ..UserNames::default() };
        let mut without_rows = 0;
        for said in
            self.told.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
        {
            match said {
                Says::Name { tgid, frame, frames, module } => {
                    names.named.insert((tgid, frame), Named { frames, module });
                }
                Says::WithoutRows(blocks) => without_rows = blocks,
            }
        }
        missing.extend(without_rows_note(without_rows));
        let unnamed =
            self.refused + self.asked.iter().filter(|frame| !names.named.contains_key(&(0, **frame))).count();
        if unnamed > 0 || (!is_done && has_addresses) {
            let (all, ms) = (self.asked.len() + self.refused, PATIENCE.as_millis());
            let code = if !is_done && has_addresses { ", and code that lies in no file" } else { "" };
            let reason = if has_ended {
                format!(
                    "the process that looks them up ended early: {unnamed} of {all} places{code} have no name"
                )
            } else {
                format!(
                    "{unnamed} of {all} places{code} were not looked up within {ms} ms after the window, the allowed CPU \
                     time before it, and the available memory"
                )
            };
            missing.push(Missing::skipped(WHAT, reason).into());
        }
        names
    }
}

/// Names of user code.
#[derive(Default)]
pub struct UserNames {
    named: HashMap<(u32, u64), Named>,
    codes: Codes,
}

impl UserNames {
    /// The frames of one word.
    #[must_use]
    pub fn of(&self, tgid: u32, word: u64) -> Vec<String> {
        if let Place::Python { code, unit } = Place::of(word) {
            return vec![self.codes.name(code, unit).unwrap_or_else(|| "[Python]".to_owned())];
        }
        self.named(tgid, word).map_or_else(|| vec!["[unknown]".to_owned()], |named| named.frames.clone())
    }

    /// The place where a thread was met: the function, or for Python the line, and its file.
    #[must_use]
    pub fn place(&self, tgid: u32, word: Option<&u64>) -> Named {
        let Some(word) = word else { return Named::default() };
        if let Place::Python { .. } = Place::of(*word) {
            return Named { frames: self.of(tgid, *word), module: "python".to_owned() };
        }
        self.named(tgid, *word).cloned().unwrap_or_default()
    }

    /// The name of the code there, unless it is a Python function.
    fn named(&self, tgid: u32, word: u64) -> Option<&Named> {
        let whose = if matches!(Place::of(word), Place::Address(_)) { tgid } else { 0 };
        self.named.get(&(whose, word))
    }
}

fn await_either(from: &File, to: &File, asks: bool, left: Duration) {
    let mut ready = [
        libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: if asks { to.as_raw_fd() } else { -1 }, events: libc::POLLOUT, revents: 0 },
    ];
    // SAFETY: two pollfds, and we say so; a negative descriptor is ignored.
    unsafe { libc::poll(ready.as_mut_ptr(), 2, left.as_millis().saturating_add(1).min(1000) as i32) };
}

/// Answers that the parent does not read yet must have room, or the child waits: 64 KiB is a pipe's size, 1 MiB the most that any user may
/// request (pipe(7)).
fn more_room(pipe: &File) {
    const ROOM: i32 = 1 << 20;
    // SAFETY: a setting of a pipe of our own.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM) };
}

fn without_rows_note(blocks: u64) -> Option<MissingNote> {
    let reason = format!("{blocks} blocks of code had no room for their unwinding tables");
    (blocks > 0).then(|| Missing::skipped("callers of user code", reason).into())
}

/// The rows as mapped memory.
fn shared_rows(fd: i32, rows: usize) -> std::io::Result<&'static mut [u64]> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a map that may be mapped (BPF_F_MMAPABLE), of the size that the kernel gave it; the result is
    // checked.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), rows * 8, protection, libc::MAP_SHARED, fd, 0);
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // Only the child uses it, until it ends.
        Ok(std::slice::from_raw_parts_mut(at.cast(), rows))
    }
}

/// A limit on the child's memory: an allocation beyond it ends the child, and its answers until then are kept.
fn limit_memory() {
    // The limit counts all of its memory, also what it has from us.
    let most = OWN_MEMORY + (MOST_MEMORY >> crate::bpf::map_sizes::halvings());
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a limit of this process alone, and no core is written when it is met.
    unsafe {
        libc::setrlimit(libc::RLIMIT_DATA, &raw const limit);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
}
