//! A connection over the loopback of a test's own namespace: one end sends messages on a timer, the other end reads them and may be too
//! slow.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::Worker;
use crate::ledger::Word;
use crate::sys;

/// Small buffers on both sides: the sender soon notices a slow reader.
static BUFFER: i32 = 8 << 10;
const MOST: usize = 4096;

fn small(socket: &OwnedFd, option: i32) {
    // SAFETY: the option outlives the call and has the given size.
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

/// Both ends of one connection: one end sends messages of `bytes` at each tick. The socket's filter drops so many in a thousand of the
/// arriving segments, as if they had been lost on the way: TCP never sees them (net/ipv4/tcp_ipv4.c, tcp_filter).
pub fn lossy(mut w: Worker<'_>, port: u16, per_mille: u32, bytes: u64, every_us: u64) -> io::Result<()> {
    let listener = sys::socket(libc::SOCK_STREAM)?;
    sys::listen(&listener, port, 4)?;
    let sender = sys::socket(libc::SOCK_STREAM)?;
    sys::connect(&sender, port)?;
    let (mut received, _) = TcpListener::from(listener).accept()?;
    if per_mille > 0 {
        drop_segments(&received, per_mille)?;
    }
    received.set_nonblocking(true)?;
    let mut sender = TcpStream::from(sender);
    sender.set_nodelay(true)?;
    sender.set_nonblocking(true)?;
    let (message, mut read) = (vec![7; (bytes as usize).min(MOST)], vec![0; 64 << 10]);
    w.at_each_tick(every_us, |_| {
        // A message without room is not sent: the fault is the loss among the others.
        ready(sender.write(&message))?;
        while ready(received.read(&mut read))? > 0 {}
        Ok(())
    })
}

/// Zero, where the call would have to wait.
fn ready(done: io::Result<usize>) -> io::Result<usize> {
    match done {
        Err(err) if err.kind() == io::ErrorKind::WouldBlock => Ok(0),
        done => done,
    }
}

/// `SKF_AD_OFF + SKF_AD_RANDOM`: a random number (include/uapi/linux/filter.h, since v3.16, 4cd3675ebf74).
const RANDOM: u32 = (-0x1000_i32 + 56).cast_unsigned();

fn drop_segments(socket: &TcpStream, per_mille: u32) -> io::Result<()> {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let threshold = (u64::from(u32::MAX) * u64::from(per_mille.min(1000)) / 1000) as u32;
    let mut program = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, RANDOM),
        op(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, threshold),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter and its program outlive the call, and have the given sizes.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
