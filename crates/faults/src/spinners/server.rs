//! An event loop under load, as in redis or nginx: it sleeps in `epoll_wait` when no request is pending, and here a request is always
//! pending. Runs in the victim processes.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use crate::ledger::Word;
use crate::spec::Place;
use crate::sys::{self, polls};
use crate::work::{Worker, disk};

pub(crate) const REQUEST: [u8; 32] = [b'?'; 32];
const LISTENER: u64 = u64::MAX;

/// The server: `burst_us` of computing for each request, plus a sleep and a request of its own if the harness orders it.
pub fn answer<'l>(
    ready: impl FnOnce() -> Worker<'l>,
    at: &Place,
    [burst_us, sleep_us]: [u64; 2],
    upstream: Option<&Place>,
) -> io::Result<()> {
    let mut upstream = upstream.map(connect).transpose()?;
    serve(ready, at, |worker| {
        worker.compute(burst_us);
        if worker.word(Word::Mode) == 1 {
            sys::sleep_us(sleep_us);
            upstream.as_mut().map_or(Ok(()), |upstream| ask_once(upstream.as_mut()))?;
        }
        Ok(())
    })
}

/// A server that reads a block of a file for each request, past the page cache.
pub fn fetch<'l>(ready: impl FnOnce() -> Worker<'l>, at: &Place, path: &Path, block: u64) -> io::Result<()> {
    let mut file = disk::Random::of(path, block)?;
    serve(ready, at, |worker| file.read(worker))
}

/// Act on each request, and answer it.
fn serve<'l>(
    ready: impl FnOnce() -> Worker<'l>,
    at: &Place,
    mut each: impl FnMut(&mut Worker<'l>) -> io::Result<()>,
) -> io::Result<()> {
    let mut requests = Requests::at(at)?;
    let mut worker = ready();
    while worker.goes_on() {
        for client in requests.next()?.iter().filter(|client| client.has_asked()) {
            each(&mut worker)?;
            client.answer();
            worker.did_one();
        }
    }
    Ok(())
}

/// Requests that arrive at a listening socket.
pub(crate) struct Requests {
    listener: Listener,
    epoll: OwnedFd,
    clients: Vec<Arc<OwnedFd>>,
}

/// A client that has sent a request.
pub(crate) struct Client(Arc<OwnedFd>);

impl Client {
    /// Read its request: until then the request stays unread.
    pub fn has_asked(&self) -> bool {
        polls::receive_now(&self.0, &mut [0; 64]) > 0
    }

    pub fn answer(&self) {
        polls::send(&self.0, &REQUEST);
    }
}

impl Requests {
    pub fn at(place: &Place) -> io::Result<Self> {
        let (listener, epoll) = (Listener::at(place)?, polls::epoll()?);
        match &listener {
            Listener::Unix(listener) => polls::watch(&epoll, listener, LISTENER)?,
            Listener::Tcp(listener) => polls::watch(&epoll, listener, LISTENER)?,
        }
        Ok(Requests { listener, epoll, clients: Vec::new() })
    }

    /// Wait for requests.
    pub fn next(&mut self) -> io::Result<Vec<Client>> {
        let mut ready = Vec::new();
        for token in polls::ready(&self.epoll, -1) {
            if token == LISTENER {
                let client = self.listener.accept()?;
                polls::watch(&self.epoll, &client, self.clients.len() as u64)?;
                self.clients.push(Arc::new(client));
                continue;
            }
            ready.extend(self.clients.get(token as usize).cloned().map(Client));
        }
        Ok(ready)
    }
}

pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub fn at(place: &Place) -> io::Result<Self> {
        match place {
            Place::Path(path) => UnixListener::bind(path).map(Listener::Unix),
            Place::Port(port) => TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).map(Listener::Tcp),
        }
    }

    pub fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Listener::Unix(listener) => Ok(listener.accept()?.0.into()),
            Listener::Tcp(listener) => {
                let client = listener.accept()?.0;
                client.set_nodelay(true)?;
                Ok(client.into())
            }
        }
    }
}

/// A client: sends a request, waits for the answer, repeats.
pub fn ask(mut worker: Worker<'_>, at: &Place) -> io::Result<()> {
    let mut server = connect(at)?;
    while worker.goes_on() {
        ask_once(server.as_mut())?;
        worker.did_one();
    }
    Ok(())
}

/// A client that makes a new connection for each request.
pub fn visit(mut worker: Worker<'_>, at: &Place, rest_us: u64) -> io::Result<()> {
    while worker.goes_on() {
        ask_once(connect(at)?.as_mut())?;
        worker.did_one();
        sys::sleep_us(rest_us);
    }
    Ok(())
}

trait Peer: io::Read + io::Write {}

impl<P: io::Read + io::Write> Peer for P {}

fn connect(at: &Place) -> io::Result<Box<dyn Peer>> {
    Ok(match at {
        Place::Path(path) => Box::new(UnixStream::connect(path)?),
        Place::Port(port) => {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
            server.set_nodelay(true)?;
            sys::reset_on_close(&server);
            Box::new(server)
        }
    })
}

fn ask_once(server: &mut dyn Peer) -> io::Result<()> {
    let mut answer = REQUEST;
    server.write_all(&REQUEST)?;
    server.read_exact(&mut answer)
}
