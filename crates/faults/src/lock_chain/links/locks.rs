//! Locks of user space.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Object, Taken};
use crate::sys::{self, futex};

/// Memory for a lock: private to this process, or shared with its children.
fn place(shared: bool) -> io::Result<*mut u8> {
    const PAGE: usize = 4096;
    if shared {
        use std::os::fd::AsRawFd as _;
        let file = sys::memory_file("whyslow-test-lock", PAGE as u64)?;
        sys::map(Some(file.as_raw_fd()), PAGE)
    } else {
        sys::map(None, PAGE)
    }
}

fn word(shared: bool) -> io::Result<&'static AtomicU32> {
    // SAFETY: a new mapping, zeroed, page aligned, never unmapped.
    Ok(unsafe { AtomicU32::from_ptr(place(shared)?.cast()) })
}

/// Three states, as in "Futexes are tricky": 0 free, 1 taken, 2 taken and perhaps wanted.
pub struct Futex {
    word: &'static AtomicU32,
    shared: bool,
}

impl Futex {
    pub fn new(shared: bool) -> io::Result<Self> {
        Ok(Futex { word: word(shared)?, shared })
    }

    fn lock(&self) {
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.swap(2, Ordering::Acquire) != 0 {
                futex::wait(self.word, 2, self.shared);
            }
        }
    }

    fn unlock(&self) {
        if self.word.swap(0, Ordering::Release) == 2 {
            futex::wake_one(self.word, self.shared);
        }
    }
}

impl Object for Futex {
    fn take(&self) -> io::Result<Taken<'_>> {
        self.lock();
        Ok(Taken::Nothing)
    }

    fn want(&self) -> io::Result<()> {
        self.lock();
        self.unlock();
        Ok(())
    }

    fn give(&self, _: Taken<'_>) -> io::Result<()> {
        self.unlock();
        Ok(())
    }
}

/// The word holds the owner's thread id; the kernel hands the lock over.
pub struct Pi {
    word: &'static AtomicU32,
    shared: bool,
}

impl Pi {
    pub fn new(shared: bool) -> io::Result<Self> {
        Ok(Pi { word: word(shared)?, shared })
    }

    fn lock(&self) -> io::Result<()> {
        let me = sys::thread_id() as u32;
        match self.word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => futex::lock_pi(self.word, self.shared),
        }
    }

    fn unlock(&self) -> io::Result<()> {
        let me = sys::thread_id() as u32;
        match self.word.compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => futex::unlock_pi(self.word, self.shared),
        }
    }
}

impl Object for Pi {
    fn take(&self) -> io::Result<Taken<'_>> {
        self.lock().map(|()| Taken::Nothing)
    }

    fn want(&self) -> io::Result<()> {
        self.lock()?;
        self.unlock()
    }

    fn give(&self, _: Taken<'_>) -> io::Result<()> {
        self.unlock()
    }
}

/// A mutex of the C library.
pub struct Pthread(*mut libc::pthread_mutex_t);

// SAFETY: a mutex may be used by all threads; its memory is never unmapped.
unsafe impl Send for Pthread {}
// SAFETY: as above.
unsafe impl Sync for Pthread {}

impl Pthread {
    pub fn new(shared: bool) -> io::Result<Self> {
        let at = place(shared)?.cast::<libc::pthread_mutex_t>();
        let who = if shared { libc::PTHREAD_PROCESS_SHARED } else { libc::PTHREAD_PROCESS_PRIVATE };
        // SAFETY: the place is large enough, page aligned and ours; the attributes live through the calls.
        unsafe {
            let mut how: libc::pthread_mutexattr_t = std::mem::zeroed();
            check(libc::pthread_mutexattr_init(&mut how))?;
            check(libc::pthread_mutexattr_setpshared(&mut how, who))?;
            check(libc::pthread_mutex_init(at, &how))?;
        }
        Ok(Pthread(at))
    }

    fn lock(&self) -> io::Result<()> {
        // SAFETY: initialised in `new`, never destroyed.
        check(unsafe { libc::pthread_mutex_lock(self.0) })
    }

    fn unlock(&self) -> io::Result<()> {
        // SAFETY: as above; the calling thread holds it.
        check(unsafe { libc::pthread_mutex_unlock(self.0) })
    }
}

fn check(errno: libc::c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

impl Object for Pthread {
    fn take(&self) -> io::Result<Taken<'_>> {
        self.lock().map(|()| Taken::Nothing)
    }

    fn want(&self) -> io::Result<()> {
        self.lock()?;
        self.unlock()
    }

    fn give(&self, _: Taken<'_>) -> io::Result<()> {
        self.unlock()
    }
}

/// A mutex of Rust's library: a futex without an owner.
#[derive(Default)]
pub struct Std(Mutex<()>);

impl Object for Std {
    fn take(&self) -> io::Result<Taken<'_>> {
        let guard = self.0.lock().map_err(|_| io::Error::other("a holder died"))?;
        Ok(Taken::Guard { _until_dropped: guard })
    }

    fn want(&self) -> io::Result<()> {
        self.take().map(drop)
    }
}
