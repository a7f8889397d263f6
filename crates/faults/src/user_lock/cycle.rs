//! Threads that wait for each other, and a pool that waits for work.

use std::cell::UnsafeCell;
use std::io;
use std::sync::{Arc, Barrier};

use super::{Plan, note};
use crate::{clock, sys};

/// A mutex of the C library.
pub(super) struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex may be used by several threads at once.
unsafe impl Sync for Mutex {}
// SAFETY: as above; it is never moved while it is held (kept in an Arc).
unsafe impl Send for Mutex {}

impl Mutex {
    pub fn new() -> Self {
        Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    pub fn lock(&self) {
        // SAFETY: it is initialized and lives as long as `self`.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    pub fn unlock(&self) {
        // SAFETY: as above; we hold it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }

    /// Acquire it within this time. Returns whether that worked.
    pub fn lock_within(&self, ms: u64) -> bool {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes and reads a plain struct of ours.
        unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut until);
            let ns = until.tv_nsec + (ms % 1000) as i64 * 1_000_000;
            until.tv_sec += (ms / 1000) as i64 + ns / 1_000_000_000;
            until.tv_nsec = ns % 1_000_000_000;
            libc::pthread_mutex_timedlock(self.0.get(), &until) == 0
        }
    }
}

/// Each thread takes its own lock and waits for the next one's. A thread with a timeout releases its lock after it; threads without one
/// wait until they are killed.
pub(super) fn live(plan: &Plan) -> io::Result<()> {
    let n = plan.names.len();
    let mutexes: Arc<Vec<Mutex>> = Arc::new((0..n).map(|_| Mutex::new()).collect());
    let all = Arc::new(Barrier::new(n));
    let (ms, timed) = (plan.ms, plan.timed);
    let thread = move |at: usize, name: &str, mutexes: &[Mutex], all: &Barrier| {
        sys::set_name(name);
        mutexes[at].lock();
        all.wait();
        let from = clock::now();
        if timed {
            mutexes[(at + 1) % n].lock_within(ms);
        } else {
            mutexes[(at + 1) % n].lock();
        }
        (from, clock::now())
    };
    let mut others = Vec::new();
    for (at, name) in plan.names.iter().cloned().enumerate().skip(1) {
        let (mutexes, all) = (mutexes.clone(), all.clone());
        others.push(std::thread::spawn(move || thread(at, &name, &mutexes, &all)));
    }
    let (from, to) = thread(0, &plan.names[0], &mutexes, &all);
    note(plan, from, to)
}

/// Each thread waits for work that never comes; the first one sleeps a little now and then.
pub(super) fn rest(plan: &Plan) -> io::Result<()> {
    let queue = Arc::new((std::sync::Mutex::new(0_u32), std::sync::Condvar::new()));
    for name in plan.names.iter().skip(1) {
        let (name, queue) = (name.clone(), queue.clone());
        std::thread::spawn(move || {
            sys::set_name(&name);
            let Ok(mut jobs) = queue.0.lock() else { return };
            while *jobs == 0 {
                let Ok(again) = queue.1.wait(jobs) else { return };
                jobs = again;
            }
        });
    }
    sys::set_name(&plan.names[0]);
    let from = clock::now();
    for _ in 0..plan.ms / 50 {
        sys::sleep_us(50_000);
    }
    note(plan, from, clock::now())
}
