//! One thread waits for what another thread holds.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cycle::Mutex;
use super::{Held, Meanwhile, Nap, Plan, act, note};
use crate::{clock, sys};

/// Number of timeouts of a timed wait; the last one ends the wait without the lock.
const LOOKS: u64 = 3;

pub(super) fn live(plan: &Plan, held: Held, does: Meanwhile) -> io::Result<()> {
    match held {
        Held::Mutex => mutex(plan, does),
        Held::Join => join(plan, does),
        _ => file(plan, held, does),
    }
}

fn mutex(plan: &Plan, does: Meanwhile) -> io::Result<()> {
    let mutex = Arc::new(Mutex::new());
    let is_held = Arc::new(AtomicBool::new(false));
    let (its, held, name) = (mutex.clone(), is_held.clone(), plan.names[1].clone());
    // A waiter that gives up must not get the lock.
    let ms = if plan.timed { plan.ms * 2 } else { plan.ms };
    std::thread::spawn(move || {
        sys::set_name(&name);
        its.lock();
        held.store(true, Ordering::Release);
        act(does, ms);
        its.unlock();
    });
    sys::set_name(&plan.names[0]);
    while !is_held.load(Ordering::Acquire) {
        sys::sleep_us(500);
    }
    let from = clock::now();
    if plan.timed {
        (0..LOOKS).for_each(|_| {
            mutex.lock_within(plan.ms / LOOKS);
        });
    } else {
        mutex.lock();
    }
    note(plan, from, clock::now())
}

fn join(plan: &Plan, does: Meanwhile) -> io::Result<()> {
    let (name, ms) = (plan.names[1].clone(), plan.ms);
    let thread = std::thread::spawn(move || {
        sys::set_name(&name);
        act(does, ms);
    });
    sys::set_name(&plan.names[0]);
    let from = clock::now();
    thread.join().map_err(|_| io::Error::other("the thread panicked"))?;
    note(plan, from, clock::now())
}

/// One write lock on the whole file, or on its start where the waiter retries. An alarm ends the wait for it.
fn take(file: &File, held: Held) -> bool {
    let (fd, whole) = (file.as_raw_fd(), 0);
    match held {
        // SAFETY: the descriptor is open.
        Held::Flock | Held::FlockOfChild => unsafe { libc::flock(fd, libc::LOCK_EX) == 0 },
        // SAFETY: as above.
        Held::FlockRetried | Held::FlockOfChildRetried => unsafe {
            libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) == 0
        },
        Held::Ofd => record(fd, libc::F_OFD_SETLKW, libc::F_WRLCK, whole),
        Held::FcntlRetried => record(fd, libc::F_SETLK, libc::F_WRLCK, 100),
        _ => record(fd, libc::F_SETLKW, libc::F_WRLCK, whole),
    }
}

/// This process holds it afterwards, whichever process takes it.
fn take_here(file: &File, held: Held) -> io::Result<()> {
    if !matches!(held, Held::FlockOfChild | Held::FlockOfChildRetried) {
        take(file, held);
        return Ok(());
    }
    match sys::fork_child()? {
        None => sys::leave(i32::from(!take(file, held))),
        Some(child) if sys::reap(child)?.0.success() => Ok(()),
        Some(_) => Err(io::Error::other("the child has not got the lock")),
    }
}

/// A lock on so many bytes.
fn record(fd: i32, call: i32, what: i32, length: i64) -> bool {
    // SAFETY: the descriptor is open; the struct is ours.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        (lock.l_type, lock.l_len) = (what as i16, length);
        libc::fcntl(fd, call, &lock) == 0
    }
}

fn let_go(file: &File, held: Held) {
    if held == Held::FlockRetried {
        // SAFETY: the descriptor is open.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
    } else {
        record(file.as_raw_fd(), libc::F_SETLK, libc::F_UNLCK, 0);
    }
}

fn nap(plan: &Plan) {
    let (nap, ms) = plan.nap;
    let mut time = libc::timeval { tv_sec: 0, tv_usec: ms as i64 * 1000 };
    let none = std::ptr::null_mut::<libc::fd_set>();
    // SAFETY: no descriptors; the struct is ours.
    unsafe {
        match nap {
            Nap::Nanosleep => sys::sleep_us(ms * 1000),
            Nap::Poll => drop(libc::poll(none.cast(), 0, ms as i32)),
            Nap::Select => drop(libc::select(0, none, none, none, &raw mut time)),
        }
    }
}

/// Retry until it gets the lock, or its time is up.
fn retry(plan: &Plan, file: &File, held: Held) {
    let until = if plan.timed { clock::now() + plan.ms * 1_000_000 } else { u64::MAX };
    while clock::now() < until && !take(file, held) {
        nap(plan);
    }
}

/// Takes a lock that no other process wants, again and again, beside another process that holds a lock on another file.
pub(super) fn free(plan: &Plan, held: Held, does: Meanwhile) -> io::Result<()> {
    if sys::fork()? {
        sys::die_with_parent()?;
        sys::set_name(&plan.names[1]);
        let file = open(&plan.dir.join("another"))?;
        take(&file, held);
        act(does, plan.ms);
        sys::leave(0);
    }
    sys::set_name(&plan.names[0]);
    let file = open(&plan.dir.join("locked"))?;
    std::fs::write(plan.dir.join("begun"), "")?;
    let (from, mut slept) = (clock::now(), 0);
    while clock::now() < from + plan.ms * 1_000_000 {
        if take(&file, held) {
            let_go(&file, held);
        }
        let before = clock::now();
        nap(plan);
        slept += clock::now() - before;
    }
    note(plan, from, from + slept)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

extern "C" fn nothing(_: i32) {}

/// An alarm that ends system calls.
fn alarm_after(ms: u64) {
    let time = libc::timeval { tv_sec: (ms / 1000) as i64, tv_usec: (ms % 1000) as i64 * 1000 };
    let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: time };
    // SAFETY: plain structs of ours; the handler does nothing, and calls are not restarted (no SA_RESTART).
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}

fn file(plan: &Plan, held: Held, does: Meanwhile) -> io::Result<()> {
    let (path, ready) = (plan.dir.join("locked"), plan.dir.join("ready"));
    if sys::fork()? {
        sys::die_with_parent()?;
        sys::set_name(&plan.names[1]);
        let file = open(&path)?;
        take_here(&file, held)?;
        std::fs::write(&ready, "")?;
        if does == Meanwhile::Stopped {
            // SAFETY: the signal goes to this process; the third process continues it.
            unsafe { libc::raise(libc::SIGSTOP) };
        } else {
            act(does, if plan.timed { plan.ms * 2 } else { plan.ms });
        }
        drop(file);
        sys::leave(0);
    }
    sys::set_name(&plan.names[0]);
    while !ready.exists() {
        sys::sleep_us(500);
    }
    let holder = child_of(std::process::id()).ok_or_else(|| io::Error::other("there is no holder"))?;
    if does == Meanwhile::Stopped && !plan.timed && sys::fork()? {
        sys::set_name("goes-on");
        sys::die_with_parent()?;
        sys::sleep_until(clock::now() + plan.ms * 1_000_000);
        sys::stop(holder, false);
        sys::leave(0);
    }
    if does == Meanwhile::Traced {
        trace(plan, holder)?;
    }
    let file = open(&path)?;
    std::fs::write(plan.dir.join("begun"), "")?;
    let from = clock::now();
    if matches!(held, Held::FlockRetried | Held::FcntlRetried | Held::FlockOfChildRetried) {
        retry(plan, &file, held);
    } else if plan.timed {
        for _ in 0..LOOKS {
            alarm_after(plan.ms / LOOKS);
            take(&file, held);
        }
    } else {
        take(&file, held);
    }
    note(plan, from, clock::now())
}

/// A third process traces the holder for the time of the wait; with timeouts for twice as long, so that the waiter gives up first.
fn trace(plan: &Plan, holder: i32) -> io::Result<()> {
    let attached = plan.dir.join("attached");
    if sys::fork()? {
        sys::set_name("traces");
        sys::die_with_parent()?;
        sys::hold_traced(holder)?;
        std::fs::write(&attached, "")?;
        sys::sleep_until(clock::now() + plan.ms * if plan.timed { 2 } else { 1 } * 1_000_000);
        sys::leave(0);
    }
    while !attached.exists() {
        sys::sleep_us(500);
    }
    Ok(())
}

/// The first child of a process.
fn child_of(pid: u32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
