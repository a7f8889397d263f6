//! A connection over the loopback of a test's own namespace: one end sends messages to a clock, the other reads them, and may be
//! too slow for it.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::Worker;
use crate::ledger::Word;
use crate::sys;

/// Small buffers on both sides: a reader that falls behind is felt at once.
static BUFFER: i32 = 8 << 10;
const MOST: usize = 4096;

fn small(socket: &OwnedFd, option: i32) {
    // SAFETY: the option outlives the call and has the size that is said.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const BUFFER).cast(),
            size_of::<i32>() as libc::socklen_t,
        );
    }
}

/// Accept one connection, and read messages of `bytes`. Between two reads it computes for as long as `Word::AcceptPause` says, in
/// us, or sleeps.
pub fn pull<'l>(ready: impl FnOnce() -> Worker<'l>, port: u16, bytes: u64, sleeps: bool) -> io::Result<()> {
    let listener = sys::socket(libc::SOCK_STREAM)?;
    small(&listener, libc::SO_RCVBUF);
    sys::listen(&listener, port, 4)?;
    let mut w = ready();
    let (mut stream, _) = TcpListener::from(listener).accept()?;
    let mut message = vec![0; (bytes as usize).min(MOST)];
    while w.goes_on() {
        stream.read_exact(&mut message)?;
        w.tally.did_one();
        match w.word(Word::AcceptPause) {
            0 => {}
            us if sleeps => sys::sleep_us(us),
            us => w.compute(us),
        }
    }
    Ok(())
}

/// Connect, and send a message of `bytes` at each tick.
pub fn push(mut w: Worker<'_>, port: u16, bytes: u64, every_us: u64) -> io::Result<()> {
    let socket = sys::socket(libc::SOCK_STREAM)?;
    small(&socket, libc::SO_SNDBUF);
    sys::connect(&socket, port)?;
    let mut stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    let message = vec![7; (bytes as usize).min(MOST)];
    w.at_each_tick(every_us, |_| stream.write_all(&message))
}
