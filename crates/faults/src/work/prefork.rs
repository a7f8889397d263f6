//! A service of several processes that share a socket, as in PHP or gunicorn: each takes one connection at a time. Or as in a database:
//! each backend waits for its client at one epoll, and for other backends at another epoll.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use super::Worker;
use crate::ledger::Word;
use crate::spec::Place;
use crate::spinners::{Listener, REQUEST};
use crate::sys::{self, polls};

/// CPU time of an answer.
const BURST_US: u64 = 100;

/// A parent, and so many children. `Word::Mode` 1: a child sleeps before each answer. 2: it opens `fifo`, which has no writer; without
/// `fifo` it waits at an epoll for an event that no process raises.
pub fn run<'l>(
    ready: impl FnOnce() -> Worker<'l>,
    at: &Place,
    processes: u64,
    sleep_us: u64,
    fifo: Option<&Path>,
) -> io::Result<()> {
    let listener = Listener::at(at)?;
    let worker = ready();
    for _ in 0..processes {
        if sys::fork()? {
            sys::die_with_parent()?;
            loop {
                let _ = serve(&worker, File::from(listener.accept()?), sleep_us, fifo);
            }
        }
    }
    while sys::kernel::wait_for_child() {}
    Ok(())
}

/// Serve a client until it closes: a reset by the client is no failure.
fn serve(worker: &Worker<'_>, mut client: File, sleep_us: u64, fifo: Option<&Path>) -> io::Result<()> {
    let mut request = REQUEST;
    let clients = fifo.is_none().then(polls::epoll).transpose()?;
    if let Some(clients) = &clients {
        polls::watch(clients, &client, 0)?;
    }
    loop {
        clients.as_ref().map(|clients| polls::ready(clients, -1));
        client.read_exact(&mut request)?;
        match worker.word(Word::Mode) {
            1 => sys::sleep_us(sleep_us),
            2 => wait_in_vain(fifo)?,
            _ => worker.compute(BURST_US),
        }
        client.write_all(&request)?;
    }
}

fn wait_in_vain(fifo: Option<&Path>) -> io::Result<()> {
    if let Some(fifo) = fifo {
        drop(File::open(fifo));
        return Ok(());
    }
    let (own, event): (OwnedFd, OwnedFd) = (polls::epoll()?, polls::event()?);
    polls::watch(&own, &event, 0)?;
    while polls::ready(&own, -1).is_empty() {}
    Ok(())
}
