//! An echo server for datagrams of whyslow.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::clock::{monotonic, real};
use super::control::{self, array, messages};
use super::datagram::{LARGEST, Stay, answer};
use super::socket::{RawAddress, Socket, cooked, polled, raw, wait};
use super::{PingError, nanos};

/// Longest sleep: a stop waits no longer.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Requests answered before we look whether to stop.
const BATCH: usize = 64;

/// What came to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests, each of which got an answer of its own size.
    pub requests: u64,
    /// Other datagrams: none got an answer.
    pub foreign: u64,
}

/// Answers requests to `address` until the window is over or `stop` is set.
pub fn serve(address: SocketAddr, window: Duration, stop: &AtomicBool) -> Result<Served, PingError> {
    let socket = listener(address)?;
    let end = monotonic().saturating_add(nanos(window));
    let mut served = Served::default();
    let mut desk = Desk::new();
    let mut polled = [polled(&socket)];
    while !stop.load(Relaxed) {
        let left = Duration::from_nanos(end.saturating_sub(monotonic()));
        if left.is_zero() {
            break;
        }
        wait(&mut polled, left.min(LONGEST_SLEEP));
        for _ in 0..BATCH {
            match desk.take(&socket) {
                Ok(Some(size)) if desk.answer(&socket, size) => served.requests += 1,
                Ok(_) => served.foreign += 1,
                Err(_) => break,
            }
        }
    }
    Ok(served)
}

/// A socket at this address; where IPv6 is off, "[::]" is "0.0.0.0".
fn listener(address: SocketAddr) -> Result<Socket, PingError> {
    let failed = |act| move |error| PingError::Call { act, object: address.to_string(), error };
    let socket = match Socket::new(address.is_ipv6(), libc::SOCK_DGRAM, 0) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) && address.ip().is_unspecified() => {
            return listener(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())));
        }
        opened => opened.map_err(failed("open a socket for"))?,
    };
    tell_own_address(&socket, address.is_ipv6()).map_err(failed("tell the address asked of"))?;
    // A sandbox without stamps has answers without times.
    let _ = socket.stamp_what_comes();
    socket.bind(address).map_err(failed("listen on"))?;
    Ok(socket)
}

fn tell_own_address(socket: &Socket, v6: bool) -> io::Result<()> {
    match v6 {
        // IPv4 comes to "[::]" unless net.ipv6.bindv6only says otherwise.
        true => socket
            .set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &0_i32)
            .and_then(|()| socket.set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1_i32)),
        false => socket.set(libc::IPPROTO_IP, libc::IP_PKTINFO, &1_i32),
    }
}

/// A datagram, and who asked whom.
struct Desk {
    packet: [u8; LARGEST],
    from: RawAddress,
    from_length: u32,
    control: Control,
    control_length: usize,
}

#[repr(C, align(8))]
struct Control([u8; 256]);

impl Desk {
    fn new() -> Desk {
        let (from, from_length) = raw(SocketAddr::from(([0_u16; 8], 0)));
        Desk { packet: [0; LARGEST], from, from_length, control: Control([0; 256]), control_length: 0 }
    }

    /// The size of the next datagram; `None`: it is larger than any request.
    fn take(&mut self, socket: &Socket) -> io::Result<Option<usize>> {
        self.from_length = size_of::<RawAddress>() as u32;
        let (mut head, mut area) = self.head(LARGEST, size_of::<Control>());
        head.msg_iov = &raw mut area;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the head and all that it points to outlive the call and are as long as it says.
        let got = unsafe { libc::recvmsg(fd, &raw mut head, libc::MSG_DONTWAIT) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        self.from_length = head.msg_namelen;
        self.control_length = head.msg_controllen;
        Ok((head.msg_flags & libc::MSG_TRUNC == 0).then_some(got))
    }

    /// Whether it was a request, which is answered from the address that was asked. Dropped answers are like dropped requests.
    fn answer(&mut self, socket: &Socket, size: usize) -> bool {
        let came_with = self.control.0.get(..self.control_length).unwrap_or_default();
        let asked = reply_from(came_with);
        let stay = control::parse(came_with).stamp.map(|arrived| Stay { arrived, left: real() });
        let request = self.packet.get_mut(..size).is_some_and(|packet| answer(packet, stay));
        let (Some(source), true, true) = (asked, request, self.has_port()) else { return false };
        let length = source.len();
        self.control.0[..length].copy_from_slice(&source);
        let (mut head, mut area) = self.head(size, length);
        head.msg_iov = &raw mut area;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the head and all that it points to outlive the call and are as long as it says.
        unsafe { libc::sendmsg(fd, &raw const head, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        true
    }

    /// Nothing can be sent to port 0.
    fn has_port(&self) -> bool {
        cooked(&self.from).is_some_and(|from| from.port() != 0)
    }

    fn head(&mut self, size: usize, control: usize) -> (libc::msghdr, libc::iovec) {
        // SAFETY: it consists of numbers and pointers, for which zero is valid.
        let mut head: libc::msghdr = unsafe { std::mem::zeroed() };
        head.msg_name = (&raw mut self.from).cast();
        head.msg_namelen = self.from_length;
        head.msg_iovlen = 1;
        head.msg_control = (&raw mut self.control).cast();
        head.msg_controllen = control;
        (head, libc::iovec { iov_base: self.packet.as_mut_ptr().cast(), iov_len: size })
    }
}

/// Bytes of the longer message, with its head: `struct in6_pktinfo`.
const LONGEST: usize = 40;

/// The control message that sends from the address which was asked, on the way that the routes say; `None`: many hosts were asked at once.
fn reply_from(control: &[u8]) -> Option<Vec<u8>> {
    messages(control).find_map(|(level, kind, data)| match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // `struct in_pktinfo`: the interface, the address to answer from, and the one in the packet, which is another in a broadcast.
            let (from, asked): ([u8; 4], [u8; 4]) = (array(data, 4)?, array(data, 8)?);
            let reply = [[0; 4], from, [0; 4]].concat();
            (from == asked).then(|| message(level, kind, &reply))
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // `struct in6_pktinfo`: the address in the packet, and the interface.
            let asked: [u8; 16] = array(data, 0)?;
            let is_many = asked.first() == Some(&0xff);
            (!is_many).then(|| message(level, kind, &[&asked[..], &[0; 4]].concat()))
        }
        _ => None,
    })
}

fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let head = size_of::<libc::cmsghdr>();
    let mut bytes = Vec::with_capacity(LONGEST);
    bytes.extend((head + data.len()).to_ne_bytes());
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
    bytes
}
