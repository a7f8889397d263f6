//! A server that may be too slow to accept, and its clients. All on the loopback of a test's own namespace.

use std::io;
use std::os::fd::OwnedFd;

use super::Worker;
use crate::ledger::{NEVER, Word};
use crate::sys;

/// How soon a server notices that it should behave differently.
const NOTICE_MS: i32 = 20;

pub fn serve<'l>(ready: impl FnOnce() -> Worker<'l>, port: u16, backlog: u32) -> io::Result<()> {
    let listener = sys::socket(libc::SOCK_STREAM)?;
    sys::listen(&listener, port, backlog as i32)?;
    let mut w = ready();
    while w.goes_on() {
        let pause_us = w.word(Word::AcceptPause);
        if pause_us == NEVER {
            sys::sleep_us(NOTICE_MS as u64 * 1000);
        } else if sys::accept_within(&listener, NOTICE_MS) {
            w.tally.did_one();
            rest(&w, pause_us);
        }
    }
    Ok(())
}

/// Sleep in short pieces, so that the thread notices a change of its orders.
fn rest(w: &Worker<'_>, pause_us: u64) {
    let until = sys::monotonic_ns() + pause_us * 1000;
    while sys::monotonic_ns() < until && w.word(Word::AcceptPause) == pause_us {
        sys::sleep_until(until.min(sys::monotonic_ns() + NOTICE_MS as u64 * 1_000_000));
    }
}

fn dial(port: u16, kind: i32) -> io::Result<OwnedFd> {
    let socket = sys::socket(libc::SOCK_STREAM | kind)?;
    sys::reset_on_close(&socket);
    match sys::connect(&socket, port) {
        Err(err) if err.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        done => done.map(|()| socket),
    }
}

pub fn connect(mut w: Worker<'_>, port: u16, think_us: u64) -> io::Result<()> {
    while w.goes_on() {
        match dial(port, 0) {
            Ok(socket) => {
                drop(socket);
                w.tally.did_one();
            }
            Err(err) => w.tally.failed(&err),
        }
        sys::sleep_us(think_us);
    }
    Ok(())
}

pub fn fling(mut w: Worker<'_>, port: u16, burst_us: u64, every_us: u64) -> io::Result<()> {
    w.at_each_tick(every_us, |w| {
        // Closed at once: it does not matter whether the server would have accepted it.
        if let Err(err) = dial(port, libc::SOCK_NONBLOCK) {
            w.tally.failed(&err);
        }
        w.compute(burst_us);
        Ok(())
    })
}
