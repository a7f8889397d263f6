//! More ways to wait by spinning. Runs in the victim process.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::spinners::waits::{Flag, Gift, Held, Lock, Word};
use crate::sys;

/// How a thread waits for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnseenWait {
    /// Compare two words and count the turns, without the processor's hint that this is a spin.
    NoPause,
    /// Read a word, burn time until the time stamp counter is past a deadline, read again.
    Deadline,
    /// Read a word, sleep for a moment, read again.
    Usleep,
    /// Machine code that was made at run time.
    Jit,
    /// `pthread_mutex_trylock` until it succeeds.
    TryLock,
}

impl UnseenWait {
    /// All of them.
    pub const ALL: [UnseenWait; 5] =
        [UnseenWait::NoPause, UnseenWait::Deadline, UnseenWait::Usleep, UnseenWait::Jit, UnseenWait::TryLock];

    pub(crate) fn gift(self) -> io::Result<Box<dyn Gift>> {
        Ok(match self {
            UnseenWait::NoPause => Box::new(Ring::default()),
            UnseenWait::Deadline => {
                Box::new(Flag { word: Word::default(), spin: until_equal_with_deadlines })
            }
            UnseenWait::Usleep => Box::new(Flag { word: Word::default(), spin: until_equal_with_usleep }),
            UnseenWait::Jit => Box::new(Made::new()?),
            UnseenWait::TryLock => Box::new(Held::<Mutex>::default()),
        })
    }
}

/// Positions of a ring buffer: empty while they are equal.
#[derive(Default)]
struct Ring {
    read: Word,
    written: Word,
    turns: Word,
}

impl Gift for Ring {
    #[inline(never)]
    fn wait(&self, _round: u32) {
        let mut turns = 0_u32;
        while self.read.0.load(Ordering::Relaxed) == self.written.0.load(Ordering::Acquire) {
            turns = turns.wrapping_add(1);
        }
        self.turns.0.store(turns, Ordering::Relaxed);
        self.read.0.fetch_add(1, Ordering::Relaxed);
    }

    fn give(&self, _round: u32) {
        self.written.0.fetch_add(1, Ordering::Release);
    }
}

/// About ten microseconds on current processors.
#[cfg(target_arch = "x86_64")]
const CYCLES: u64 = 30_000;

#[cfg(target_arch = "x86_64")]
fn cycles() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
const CYCLES: u64 = 10_000;

#[cfg(not(target_arch = "x86_64"))]
fn cycles() -> u64 {
    sys::monotonic_ns()
}

#[inline(never)]
fn until_equal_with_deadlines(word: &AtomicU32, round: u32) {
    while word.load(Ordering::Acquire) != round {
        let until = cycles() + CYCLES;
        while cycles() < until {}
    }
}

#[inline(never)]
fn until_equal_with_usleep(word: &AtomicU32, round: u32) {
    while word.load(Ordering::Acquire) != round {
        // SAFETY: a number only.
        unsafe { libc::usleep(1) };
    }
}

/// A loop in a page that belongs to no file.
struct Made {
    word: Word,
    code: extern "C" fn(*const u32, u32),
}

/// `1: mov eax, [rdi]; cmp eax, esi; jne 1b; ret`.
#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[0x8b, 0x07, 0x39, 0xf0, 0x75, 0xfa, 0xc3];
/// `1: ldar w2, [x0]; cmp w2, w1; b.ne 1b; ret`.
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] =
    &[0x02, 0xfc, 0xdf, 0x88, 0x5f, 0x00, 0x01, 0x6b, 0xc1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6];

impl Made {
    fn new() -> io::Result<Self> {
        let page = sys::map(None, 4096)?;
        // SAFETY: the page is ours and holds the code, which follows C's calling convention and touches its argument only.
        let code = unsafe {
            std::ptr::copy_nonoverlapping(CODE.as_ptr(), page, CODE.len());
            if libc::mprotect(page.cast(), 4096, libc::PROT_READ | libc::PROT_EXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
            std::mem::transmute::<*mut u8, extern "C" fn(*const u32, u32)>(page)
        };
        Ok(Made { word: Word::default(), code })
    }
}

impl Gift for Made {
    fn wait(&self, round: u32) {
        (self.code)(self.word.0.as_ptr(), round);
    }

    fn give(&self, round: u32) {
        self.word.0.store(round, Ordering::Release);
    }
}

struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the mutex is only used through pthread_mutex_*, which may be called from any thread.
unsafe impl Sync for Mutex {}
impl Default for Mutex {
    fn default() -> Self {
        Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }
}

impl Lock for Mutex {
    #[inline(never)]
    fn lock(&self) {
        // SAFETY: it is initialised.
        while unsafe { libc::pthread_mutex_trylock(self.0.get()) } != 0 {}
    }

    fn unlock(&self) {
        // SAFETY: by the thread that has locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}
