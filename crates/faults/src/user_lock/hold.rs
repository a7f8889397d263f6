//! One waits for what another holds.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cycle::Mutex;
use super::{Held, Meanwhile, Plan, act, note};
use crate::{clock, sys};

/// Timeouts of a timed wait; the last ends it, and the lock is not got.
const LOOKS: u64 = 3;

pub(super) fn live(plan: &Plan, held: Held, does: Meanwhile) -> io::Result<()> {
    match held {
        Held::Mutex => mutex(plan, does),
        Held::Flock | Held::Fcntl | Held::Ofd => file(plan, held, does),
        Held::Join => join(plan, does),
    }
}

fn mutex(plan: &Plan, does: Meanwhile) -> io::Result<()> {
    let mutex = Arc::new(Mutex::new());
    let is_held = Arc::new(AtomicBool::new(false));
    let (its, held, name) = (mutex.clone(), is_held.clone(), plan.names[1].clone());
    // A waiter that gives up must not see it come.
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

/// One write lock on all of the file. An alarm ends a wait for it.
fn take(file: &File, held: Held) -> bool {
    // SAFETY: the descriptor is open; the struct is ours.
    unsafe {
        if held == Held::Flock {
            return libc::flock(file.as_raw_fd(), libc::LOCK_EX) == 0;
        }
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as i16;
        let call = if held == Held::Ofd { libc::F_OFD_SETLKW } else { libc::F_SETLKW };
        libc::fcntl(file.as_raw_fd(), call, &lock) == 0
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

extern "C" fn nothing(_: i32) {}

/// An alarm that ends system calls.
fn alarm_after(ms: u64) {
    let time = libc::timeval { tv_sec: (ms / 1000) as i64, tv_usec: (ms % 1000) as i64 * 1000 };
    let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: time };
    // SAFETY: plain structs of ours; the handler does nothing, and calls are not begun again (no SA_RESTART).
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
        take(&file, held);
        std::fs::write(&ready, "")?;
        if does == Meanwhile::Stopped {
            // SAFETY: to ourselves; who goes on with us is the third process.
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
    let from = clock::now();
    if plan.timed {
        for _ in 0..LOOKS {
            alarm_after(plan.ms / LOOKS);
            take(&file, held);
        }
    } else {
        take(&file, held);
    }
    note(plan, from, clock::now())
}

/// A third process holds the holder, until nobody waits any more for who waits with timeouts.
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

/// The child that there is.
fn child_of(pid: u32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
