//! Threads that wait by system calls: they yield, poll without a timeout, or read a clock all the time.

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::table::Spin;

/// sched_yield, and calls that return 0 when there was nothing: a poll without events, a read at the end of a file, a child
/// that has not ended, a futex without waiters, a clock that was read or a sleep that has ended.
const YIELD: u32 = 24;
#[rustfmt::skip] // a table of numbers
const NOTHING: &[u32] = &[
    0, 17, 19,          // read, pread64, readv
    7, 271, 23, 270,    // poll, ppoll, select, pselect6
    232, 281, 441,      // epoll_wait, epoll_pwait, epoll_pwait2
    45, 47, 299,        // recvfrom, recvmsg, recvmmsg
    61, 247,            // wait4, waitid
    202, 208, 333, 426, // futex, io_getevents, io_pgetevents, io_uring_enter
    35, 230,            // nanosleep, clock_nanosleep
    96, 201, 228,       // gettimeofday, time, clock_gettime
];
/// A thread that reads a clock with one of these calls, works, and reads the clock again does not wait for it: a CPU clock is read by a system call.
const CLOCKS: &[u32] = &[96, 201, 228];
/// The part of a thread's samples in system calls that must be at one call site: then the thread does nothing else in the kernel.
const ONE_SITE: f64 = 0.8;
/// With fewer samples in the kernel the share above is down to chance.
const ENOUGH: u64 = 20;
/// Samples right behind the call that show its result: the timer's interrupt waits while the kernel leaves the call, and
/// fires there. A single sample may be an exception.
const RESULTS: u64 = 2;
/// ... the part of these that must show an empty result.
const EMPTY: f64 = 0.9;
/// A call of sched_yield takes no longer than this, with a switch to another task and back to user mode: the samples in the call
/// thus give a lower bound of the number of calls.
const YIELD_NS: u64 = 5_000;
/// No program needs more yields a second than this to be polite, nor more than the second number for each real sleep.
const YIELDS_A_SECOND: f64 = 1_000.0;
const YIELDS_A_SLEEP: f64 = 10.0;
/// The code around a call site: the C library's wrapper.
const WRAPPER: u64 = 64;
/// The loop that calls, with the wrappers between (and their code for cancellation), lies in at most this many rows of code, and takes a
/// small part of the time that the calls take. The work between two calls may lie in few rows, too: loops that compute are not the way
/// from one call to the next, nor is code that takes longer than the calls.
const CALLERS: usize = 8;
/// If the thread spends less than this part of the calls' time outside them, it does nothing but call.
const WAY_TO_IT: u64 = 4;
/// The part of a thread's samples in the clock's code and in the few places that read it.
const NOTHING_ELSE: f64 = 0.9;
const IN_CLOCK: f64 = 0.4;
const READERS: usize = 2;
/// The code that the kernel maps into each process (vDSO), as a module.
pub const VDSO: &str = "[vdso]";

/// What the samples show about one thread's system calls.
#[derive(Debug, Default)]
pub struct Calls {
    /// In the kernel, by (address it returns to, call).
    sites: BTreeMap<(u64, u32), u64>,
    /// In user mode: by address, (samples, 0, -EAGAIN).
    user: BTreeMap<u64, (u64, u64, u64)>,
    /// Samples in the code of the kernel's clock (vDSO), and other samples by row.
    clock: u64,
    elsewhere: BTreeMap<u64, u64>,
}

/// How a thread waits by system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// sched_yield.
    Yields,
    /// This call, which returns nothing.
    Empty(u32),
    /// The thread reads a clock.
    Clock,
}

/// A thread that waits by system calls: how, at which address, and the addresses whose samples in user mode belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// How.
    pub how: How,
    /// The address that the call returns to; for a clock, the row that reads it.
    pub site: u64,
    /// Samples in the kernel.
    pub kernel: u64,
    /// Addresses in user mode that are part of the wait.
    pub user: Vec<u64>,
    /// Other samples in user mode on the way from one call to the next.
    pub way: u64,
}

/// What is known about the thread beside its samples.
#[derive(Debug, Clone, Copy, Default)]
pub struct About {
    /// All its samples.
    pub samples: u64,
    /// CPU time that one sample stands for.
    pub period_ns: u64,
    /// Length of the window.
    pub window_ns: u64,
    /// The thread's real sleeps in the window.
    pub sleeps: u64,
    /// The thread spins in a loop, too: then its yields are a part of that, however many there are.
    pub loops: bool,
    /// Samples in loops that work and call no function.
    pub computing: u64,
}

impl Calls {
    /// Adds one row, by thread.
    pub fn note(by_thread: &mut BTreeMap<u32, Calls>, row: &Spin) {
        for met in &row.met {
            let calls = by_thread.entry(met.pid).or_default();
            let at = row.at.saturating_add(u64::from(met.offset));
            let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
            if let Some(call) = met.call {
                add(calls.sites.entry((at, call)).or_default(), met.count);
                continue;
            }
            let user = calls.user.entry(at).or_default();
            add(&mut user.0, met.count);
            add(&mut user.1, met.zero);
            add(&mut user.2, met.again);
            if row.module == VDSO {
                add(&mut calls.clock, met.count);
            } else {
                add(calls.elsewhere.entry(row.at).or_default(), met.count);
            }
        }
    }

    /// Samples in user mode at these addresses.
    #[must_use]
    pub fn in_user_mode(&self, wanted: &BTreeSet<u64>) -> u64 {
        let met = |at| self.user.get(at).map_or(0, |(samples, ..)| *samples);
        wanted.iter().map(met).fold(0, u64::saturating_add)
    }

    /// Samples in calls that threads wait with: a spinner that gives up now and then makes such calls.
    #[must_use]
    pub fn in_waiting_calls(&self) -> u64 {
        let waits = self.sites.iter().filter(|((_, call), _)| *call == YIELD || NOTHING.contains(call));
        waits.map(|(_, count)| *count).fold(0, u64::saturating_add)
    }

    /// How the thread waits, if it does.
    #[must_use]
    pub fn waits(&self, about: &About) -> Vec<Waits> {
        let mut waits: Vec<Waits> = self.yields(about).into_iter().collect();
        waits.extend(self.empty(about));
        if waits.is_empty() {
            waits.extend(self.clock(about));
        }
        waits
    }

    fn near(&self, site: u64) -> Vec<u64> {
        let around = site.saturating_sub(WRAPPER)..site.saturating_add(WRAPPER);
        self.user.range(around).map(|(at, _)| *at).collect()
    }

    fn yields(&self, about: &About) -> Option<Waits> {
        let yields = || self.sites.iter().filter(|((_, call), _)| *call == YIELD);
        let (&(site, _), _) = yields().max_by_key(|(_, n)| **n)?;
        let kernel = yields().map(|(_, n)| *n).fold(0, u64::saturating_add);
        let at_least = (kernel.saturating_mul(about.period_ns) / YIELD_NS) as f64;
        let seconds = about.window_ns as f64 / 1e9;
        let often = at_least > YIELDS_A_SECOND * seconds && at_least > YIELDS_A_SLEEP * about.sleeps as f64;
        (often || about.loops).then(|| Waits {
            how: How::Yields,
            site,
            kernel,
            user: self.near(site),
            way: 0,
        })
    }

    fn empty(&self, about: &About) -> Option<Waits> {
        let all = self.sites.values().copied().fold(0, u64::saturating_add);
        let (&(site, call), &kernel) = self.sites.iter().max_by_key(|(_, n)| **n)?;
        let (seen, zero, again) = self.user.get(&site).copied()?;
        let nothing = again.saturating_add(if NOTHING.contains(&call) { zero } else { 0 });
        let one_site = all >= ENOUGH && kernel as f64 >= ONE_SITE * all as f64 && call != YIELD;
        let empty = seen >= RESULTS && nothing as f64 >= EMPTY * seen as f64;
        let waits = one_site && empty && (self.only_calls(kernel) || !CLOCKS.contains(&call));
        let user = self.near(site);
        let way = self.way(kernel, &user, about);
        waits.then_some(Waits { how: How::Empty(call), site, kernel, user, way })
    }

    fn outside(&self) -> u64 {
        self.user.values().map(|(samples, ..)| *samples).fold(0, u64::saturating_add)
    }

    fn only_calls(&self, kernel: u64) -> bool {
        self.outside().saturating_mul(WAY_TO_IT) <= kernel && self.is_in_few_rows()
    }

    fn is_in_few_rows(&self) -> bool {
        let mut rows: Vec<u64> = self.elsewhere.values().copied().collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        rows.truncate(CALLERS);
        let near = rows.into_iter().fold(0, u64::saturating_add);
        near as f64 >= NOTHING_ELSE * self.outside() as f64
    }

    fn way(&self, kernel: u64, near: &[u64], about: &About) -> u64 {
        let near = self.in_user_mode(&near.iter().copied().collect());
        let rest = self.outside().saturating_sub(near).saturating_sub(about.computing);
        let is_way = !about.loops && rest <= kernel && self.is_in_few_rows();
        if is_way { rest } else { 0 }
    }

    fn clock(&self, about: &About) -> Option<Waits> {
        let mut readers: Vec<(u64, u64)> = self.elsewhere.iter().map(|(row, n)| (*n, *row)).collect();
        readers.sort_unstable_by(|a, b| b.cmp(a));
        readers.truncate(READERS);
        let read = readers.iter().map(|(n, _)| *n).fold(self.clock, u64::saturating_add);
        let all = about.samples as f64;
        if self.clock < ENOUGH || (self.clock as f64) < IN_CLOCK * all || (read as f64) < NOTHING_ELSE * all {
            return None;
        }
        let site = readers.first().map_or(0, |(_, row)| *row);
        Some(Waits { how: How::Clock, site, kernel: 0, user: self.user.keys().copied().collect(), way: 0 })
    }
}
