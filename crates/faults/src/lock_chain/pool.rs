//! Idle threads beside those of a lock chain, as in every server: workers without a job, an event loop without events, a housekeeper that
//! wakes up by timeout.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::Plan;
use crate::sys::{self, kernel, polls};

/// Interval of the pool's housekeeper, in us.
const EVERY_US: u64 = 40_000;

/// Start the idle threads beside one thread of the chain. They end with their process.
pub fn start(plan: &Plan, position: usize) -> io::Result<()> {
    for number in 0..plan.rests {
        let rest: Box<dyn FnOnce() + Send> = match (position as u64 + number) % 4 {
            0 => a_loop(polls::event()?)?,
            1 => Box::new(for_a_job),
            2 => reader()?,
            _ => Box::new(|| {
                loop {
                    sys::sleep_us(EVERY_US);
                }
            }),
        };
        let name = plan.rest_name.clone();
        thread::Builder::new().spawn(move || {
            sys::set_name(&name);
            rest();
        })?;
    }
    Ok(())
}

fn a_loop(event: OwnedFd) -> io::Result<Box<dyn FnOnce() + Send>> {
    let set = polls::epoll()?;
    polls::watch(&set, &event, 0)?;
    Ok(Box::new(move || {
        let _event = event;
        loop {
            let _ = polls::ready(&set, -1);
        }
    }))
}

fn reader() -> io::Result<Box<dyn FnOnce() + Send>> {
    let [read, write] = kernel::pipe()?;
    Ok(Box::new(move || {
        let _open = write;
        let _ = kernel::read_word(&read);
    }))
}

fn for_a_job() {
    let shared = Arc::new((Mutex::new(()), Condvar::new()));
    let mut none = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        none = shared.1.wait(none).unwrap_or_else(PoisonError::into_inner);
    }
}
