//! Loads of threads in one process.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// More threads than small machines have CPUs: some must wait.
const THREADS: usize = 4;

/// As `perf bench sched messaging -t`: long-lived senders and receivers, each sender writes to each receiver.
pub fn messages(rounds: u64) -> io::Result<()> {
    let (mut to, mut from) = (Vec::new(), Vec::new());
    for _ in 0..THREADS {
        let (receiver, sender) = UnixStream::pair()?;
        from.push(receiver);
        to.push(sender);
    }
    thread::scope(|scope| {
        let to = &to;
        let senders = (0..THREADS).map(|_| {
            scope.spawn(move || -> io::Result<()> {
                (0..rounds).try_for_each(|_| to.iter().try_for_each(|mut one| one.write_all(&[0; 100])))
            })
        });
        let all: Vec<_> = senders
            .chain(from.iter().map(|mut one| {
                let messages = rounds * THREADS as u64;
                scope.spawn(move || (0..messages).try_for_each(|_| one.read_exact(&mut [0; 100])))
            }))
            .collect();
        all.into_iter().try_for_each(ended)
    })
}

/// Threads that give up the CPU while they hold a mutex: the next thread finds the mutex held and sleeps in futex(2).
pub fn mutex(turns: u64) -> io::Result<()> {
    let shared = Mutex::new(0_u64);
    thread::scope(|scope| {
        let work = || -> io::Result<()> {
            for _ in 0..turns {
                let mut held = shared.lock().unwrap_or_else(PoisonError::into_inner);
                *held = held.wrapping_add(1);
                thread::yield_now();
            }
            Ok(())
        };
        let all: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(ended)
    })
}

/// Threads that map some pages, touch them and unmap them. mmap and munmap take mmap_lock for writing. The first fault in a new mapping
/// takes it for reading, also with per-VMA locks (v6.4), because the mapping has no anon_vma yet.
pub fn mappings(rounds: u64) -> io::Result<()> {
    thread::scope(|scope| {
        let work = || (0..rounds).try_for_each(|_| map_and_touch(8));
        let all: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(ended)
    })
}

fn map_and_touch(pages: usize) -> io::Result<()> {
    const PAGE: usize = 4096;
    // SAFETY: a new private mapping, written within its length, and unmapped once; no other thread knows its address.
    unsafe {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(ptr::null_mut(), pages * PAGE, prot, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for page in 0..pages {
            at.cast::<u8>().add(page * PAGE).write_volatile(1);
        }
        if libc::munmap(at, pages * PAGE) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn ended(thread: thread::ScopedJoinHandle<'_, io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the load panicked")))
}
