//! netlink(7) to the kernel's audit subsystem.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// struct nlmsghdr: length, type, flags, sequence number, port id.
const HEAD: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const ERROR: u16 = 2;
/// Longest audit message (MAX_AUDIT_MESSAGE_LENGTH, and the header).
const LONGEST: usize = 9_000;

/// A socket.
pub fn audit() -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the new descriptor is ours alone.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let fd = super::check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_AUDIT))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The next message: its type and its body.
pub fn receive(socket: &OwnedFd) -> io::Result<(u16, Vec<u8>)> {
    let mut bytes = vec![0_u8; LONGEST];
    // SAFETY: the buffer is ours, and has the given length.
    let read = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    bytes.truncate(read);
    let kind = bytes.get(4..6).and_then(|kind| kind.try_into().ok()).map_or(0, u16::from_ne_bytes);
    Ok((kind, bytes.split_off(HEAD.min(read))))
}

/// Send a request, and wait until the kernel acknowledges it.
pub fn ask(socket: &OwnedFd, kind: u16, body: &[u8]) -> io::Result<()> {
    let length = (HEAD + body.len()) as u32;
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    let head = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8]];
    let message = [&head.concat()[..], body].concat();
    // SAFETY: the message is ours, and has the given length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    loop {
        let (kind, body) = receive(socket)?;
        if kind != ERROR {
            continue;
        }
        let code = body.first_chunk().map_or(-libc::EPROTO, |code| i32::from_ne_bytes(*code));
        return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
    }
}
