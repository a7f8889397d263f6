//! Ways to wait by spinning, each as programs do it. Runs in the victim process.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use super::unseen;
use crate::sys::{self, polls};

/// How a thread waits for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SpinWait {
    /// Read a word until it changes, with the processor's hint that this is a spin.
    FlagPause,
    /// The same without the hint.
    FlagBare,
    /// Read a word, yield the CPU, read again.
    Yield,
    /// `pthread_spin_lock`.
    SpinLock,
    /// `epoll_wait` with a timeout of 0, until an event is there.
    Epoll,
    /// Nonblocking `recv`, until a byte is there.
    Recv,
    /// A wait of the unseen set, which no detector was tuned on.
    Unseen(unseen::UnseenWait),
}

/// What one thread waits for and another thread gives, round after round.
pub trait Gift: Send + Sync {
    /// Spin until it is given.
    fn wait(&self, round: u32);
    /// Called by the giver before the first round.
    fn keep(&self) {}
    /// Give it.
    fn give(&self, round: u32);
}

impl SpinWait {
    /// Ways to wait that detectors may be tuned on.
    pub const ALL: [SpinWait; 6] = [
        SpinWait::FlagPause,
        SpinWait::FlagBare,
        SpinWait::Yield,
        SpinWait::SpinLock,
        SpinWait::Epoll,
        SpinWait::Recv,
    ];

    /// The object that a thread waits for in this way.
    pub(crate) fn gift(self) -> io::Result<Box<dyn Gift>> {
        Ok(match self {
            SpinWait::FlagPause => Box::new(Flag { word: Word::default(), spin: until_equal_with_pause }),
            SpinWait::FlagBare => Box::new(Flag { word: Word::default(), spin: until_equal_bare }),
            SpinWait::Yield => Box::new(Flag { word: Word::default(), spin: until_equal_with_yield }),
            SpinWait::SpinLock => Box::new(Held::<SpinLock>::default()),
            SpinWait::Epoll => Box::new(Event::new()?),
            SpinWait::Recv => Box::new(Byte { ends: sys::kernel::socket_pair()? }),
            SpinWait::Unseen(wait) => wait.gift()?,
        })
    }
}

/// A word with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Word(pub AtomicU32);

/// A word that the giver sets, and how the waiter reads it.
pub struct Flag {
    pub word: Word,
    /// Spin until the word has this value.
    pub spin: fn(&AtomicU32, u32),
}

impl Gift for Flag {
    fn wait(&self, round: u32) {
        (self.spin)(&self.word.0, round);
    }

    fn give(&self, round: u32) {
        self.word.0.store(round, Ordering::Release);
    }
}

#[inline(never)]
fn until_equal_with_pause(word: &AtomicU32, round: u32) {
    while word.load(Ordering::Acquire) != round {
        spin_loop();
    }
}

#[inline(never)]
fn until_equal_bare(word: &AtomicU32, round: u32) {
    while word.load(Ordering::Acquire) != round {}
}

#[inline(never)]
fn until_equal_with_yield(word: &AtomicU32, round: u32) {
    while word.load(Ordering::Acquire) != round {
        std::thread::yield_now();
    }
}

pub trait Lock: Default + Send + Sync {
    /// Acquire it, by spinning.
    fn lock(&self);
    /// Release it.
    fn unlock(&self);
}

/// A lock that the giver holds, releases for a moment, and acquires again.
#[derive(Default)]
pub struct Held<L> {
    lock: L,
    had: AtomicU32,
    held: AtomicU32,
}

/// How often the giver checks whether the waiter had the lock.
const LOOK_US: u64 = 50;

impl<L: Lock> Gift for Held<L> {
    fn wait(&self, round: u32) {
        // The giver acquires the lock again at the end of the previous round.
        while self.held.load(Ordering::Acquire) < round {
            sys::sleep_us(LOOK_US);
        }
        self.lock.lock();
        self.had.store(round, Ordering::Release);
        self.lock.unlock();
    }

    fn keep(&self) {
        self.lock.lock();
        self.held.store(1, Ordering::Release);
    }

    fn give(&self, round: u32) {
        self.lock.unlock();
        while self.had.load(Ordering::Acquire) != round {
            sys::sleep_us(LOOK_US);
        }
        self.lock.lock();
        self.held.store(round + 1, Ordering::Release);
    }
}

struct SpinLock(UnsafeCell<libc::pthread_spinlock_t>);

// SAFETY: the lock is only used through pthread_spin_*, which may be called from any thread.
unsafe impl Sync for SpinLock {}

impl Default for SpinLock {
    fn default() -> Self {
        let lock = SpinLock(UnsafeCell::new(0));
        // SAFETY: no other thread has it yet.
        unsafe { libc::pthread_spin_init(lock.0.get(), libc::PTHREAD_PROCESS_PRIVATE) };
        lock
    }
}

impl Lock for SpinLock {
    fn lock(&self) {
        // SAFETY: it is initialised.
        unsafe { libc::pthread_spin_lock(self.0.get()) };
    }

    fn unlock(&self) {
        // SAFETY: by the thread that has locked it.
        unsafe { libc::pthread_spin_unlock(self.0.get()) };
    }
}

struct Event {
    epoll: OwnedFd,
    event: OwnedFd,
}

impl Event {
    fn new() -> io::Result<Self> {
        let event = polls::event()?;
        let epoll = polls::epoll()?;
        polls::watch(&epoll, &event, 0)?;
        Ok(Event { epoll, event })
    }
}

impl Gift for Event {
    #[inline(never)]
    fn wait(&self, _round: u32) {
        while polls::ready(&self.epoll, 0).is_empty() {}
        polls::take_event(&self.event);
    }

    fn give(&self, _round: u32) {
        polls::raise_event(&self.event);
    }
}

struct Byte {
    ends: [OwnedFd; 2],
}

impl Gift for Byte {
    #[inline(never)]
    fn wait(&self, _round: u32) {
        let mut bytes = [0; 64];
        while polls::receive_now(&self.ends[0], &mut bytes) == 0 {}
    }

    fn give(&self, round: u32) {
        polls::send(&self.ends[1], &round.to_ne_bytes()[..1]);
    }
}
