//! Services of several threads: a pool that takes requests from a queue, and threads that share an interpreter's lock.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::Worker;
use crate::ledger::Word;
use crate::spec::Place;
use crate::spinners::{Client, Requests};
use crate::sys;

/// CPU time of an answer.
const BURST_US: u64 = 100;
/// A thread that waits for the interpreter's lock requests it after this time (CPython's switch interval).
const LOOK: Duration = Duration::from_millis(5);

/// A value that threads wait for.
#[derive(Default)]
struct Shared<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Shared<T> {
    /// Wait until `take` returns a value.
    fn wait<R>(&self, look: Option<Duration>, mut take: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(taken) = take(&mut value) {
                return taken;
            }
            value = match look {
                None => self.changed.wait(value).unwrap_or_else(PoisonError::into_inner),
                Some(look) => {
                    self.changed.wait_timeout(value, look).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }
}

/// One thread reads requests, several others answer them.
pub fn pool<'l>(
    ready: impl FnOnce() -> Worker<'l>,
    at: &Place,
    threads: u64,
    sleep_us: u64,
    fifo: &Path,
) -> io::Result<()> {
    let mut requests = Requests::at(at)?;
    let worker = ready();
    let (compute, mode) = (worker.computer(), || worker.word(Word::Mode));
    let jobs: Shared<VecDeque<Client>> = Shared::default();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let client = jobs.wait(None, VecDeque::pop_front);
                    match mode() {
                        1 => sys::sleep_us(sleep_us),
                        2 => drop(File::open(fifo)),
                        _ => compute(BURST_US),
                    }
                    client.answer();
                }
            });
        }
        while worker.goes_on() {
            for client in requests.next()?.into_iter().filter(Client::has_asked) {
                jobs.change(|jobs| jobs.push_back(client));
            }
        }
        Ok(())
    })
}

/// One thread answers, another thread works; only one of them runs at a time.
pub fn interpreter<'l>(
    ready: impl FnOnce() -> Worker<'l>,
    at: &Place,
    [hold_us, rest_us]: [u64; 2],
) -> io::Result<()> {
    let mut requests = Requests::at(at)?;
    let worker = ready();
    let (compute, mode) = (worker.computer(), || worker.word(Word::Mode));
    let taken: Shared<bool> = Shared::default();
    let with_lock = |work: &mut dyn FnMut()| {
        taken.wait(Some(LOOK), |taken| (!std::mem::replace(taken, true)).then_some(()));
        work();
        taken.change(|taken| *taken = false);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                if mode() == 1 {
                    with_lock(&mut || compute(hold_us));
                }
                sys::sleep_us(rest_us);
            }
        });
        while worker.goes_on() {
            for client in requests.next()?.iter().filter(|client| client.has_asked()) {
                with_lock(&mut || compute(BURST_US));
                client.answer();
            }
        }
        Ok(())
    })
}
