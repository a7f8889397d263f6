//! An event loop under load, as that of redis or nginx: it sleeps in `epoll_wait` when nothing is there, and here
//! something always is. Runs in the victim processes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::sys::polls;
use crate::work::Worker;

const REQUEST: [u8; 32] = [b'?'; 32];
const LISTENER: u64 = u64::MAX;

/// The server: `burst_us` of computing for each request.
pub fn answer<'l>(ready: impl FnOnce() -> Worker<'l>, path: &Path, burst_us: u64) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let epoll = polls::epoll()?;
    polls::watch(&epoll, &listener, LISTENER)?;
    let mut clients: Vec<OwnedFd> = Vec::new();
    let mut worker = ready();
    let mut request = [0; 64];
    while worker.goes_on() {
        for token in polls::ready(&epoll, -1) {
            if token == LISTENER {
                let client = OwnedFd::from(listener.accept()?.0);
                polls::watch(&epoll, &client, clients.len() as u64)?;
                clients.push(client);
                continue;
            }
            let Some(client) = clients.get(token as usize) else { continue };
            if polls::receive_now(client, &mut request) > 0 {
                worker.compute(burst_us);
                polls::send(client, &request[..REQUEST.len()]);
                worker.did_one();
            }
        }
    }
    Ok(())
}

/// A client: asks, waits for the answer, and asks again.
pub fn ask(mut worker: Worker<'_>, path: &Path) -> io::Result<()> {
    use std::io::{Read as _, Write as _};
    let mut server = UnixStream::connect(path)?;
    let mut answer = REQUEST;
    while worker.goes_on() {
        server.write_all(&REQUEST)?;
        server.read_exact(&mut answer)?;
        worker.did_one();
    }
    Ok(())
}
