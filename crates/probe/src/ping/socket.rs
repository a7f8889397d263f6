//! Sockets: calls of the kernel, and nothing else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use super::filter::LONGEST;

/// Stamps of what is sent, when it leaves the stack and when the driver has it, with a number and without the packet; and of what is
/// received. A driver without stamps leaves the first one: it is taken before the queue of the device, but after the way of our thread
/// through the kernel, in which it may lose its CPU.
const STAMPS: u32 = libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_RX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;

/// Answers and stamps that come while the prober has no CPU for a second: each takes about 1 KiB.
const BUFFER: i32 = 4 << 20;

/// `ICMP_FILTER` of linux/icmp.h and `ICMP6_FILTER` of linux/icmpv6.h: both have this number.
const TYPES: i32 = 1;

/// A socket; where each packet is sent to, if it is not connected.
pub struct Socket(OwnedFd, Option<SocketAddr>);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// One that never blocks.
    pub fn new(v6: bool, kind: i32, protocol: i32) -> io::Result<Socket> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        // SAFETY: takes plain numbers.
        let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol) };
        told(fd)?;
        // SAFETY: the kernel just made this descriptor for us; it has no other owner.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }, None))
    }

    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let (raw, length) = raw(address);
        // SAFETY: the address outlives the call and is as long as it says.
        told(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const raw).cast(), length) })
    }

    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        let (raw, length) = raw(address);
        // SAFETY: the address outlives the call and is as long as it says.
        told(unsafe { libc::connect(self.0.as_raw_fd(), (&raw const raw).cast(), length) })
    }

    /// The own address; of an ICMP datagram socket, the port is the identifier.
    pub fn name(&self) -> io::Result<SocketAddr> {
        let (mut raw, mut length) = raw(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0).into());
        // SAFETY: the address and its length outlive the call, which writes no more than that length.
        told(unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut raw).cast(), &raw mut length) })?;
        cooked(&raw).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
    }

    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let (fd, data, length) = (self.0.as_raw_fd(), packet.as_ptr().cast(), packet.len());
        let sent = match self.1.map(raw) {
            // SAFETY: the packet outlives the call and is as long as it says.
            None => unsafe { libc::send(fd, data, length, flags) },
            // SAFETY: so does the address.
            Some((to, size)) => unsafe {
                libc::sendto(fd, data, length, flags, (&raw const to).cast(), size)
            },
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Each packet is sent to `to`. A device with several queues gets all packets of a connected socket in one of them (netdev_pick_tx keeps
    /// it beside the socket's route), and of this one each in the queue of its ports; a veth hands each of its queues to one of its peer.
    pub fn sending_to(self, to: SocketAddr) -> Socket {
        Socket(self.0, Some(to))
    }

    /// Stamps and ICMP errors come to the error queue. A sandbox without stamps leaves us our own clock.
    pub fn report(&self, v6: bool) -> io::Result<()> {
        let (level, option) =
            if v6 { (libc::SOL_IPV6, libc::IPV6_RECVERR) } else { (libc::SOL_IP, libc::IP_RECVERR) };
        self.set(level, option, &1_i32)?;
        let larger = self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER);
        let _ = larger.or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &BUFFER));
        let _ = self.number_again();
        Ok(())
    }

    /// The kernel's stamp comes with each packet.
    pub fn stamp_what_comes(&self) -> io::Result<()> {
        let stamps = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE;
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &stamps)
    }

    /// The next packet has number 0 in its stamps. A failed call has counted before v6.9, 488b6d91b071 ("net-timestamp: make sk_tskey more
    /// predictable in error path"), and never says whether; setting the option anew starts at 0.
    pub fn number_again(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &STAMPS)?;
        let numbered = STAMPS | libc::SOF_TIMESTAMPING_OPT_ID;
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &numbered)
    }

    /// Takes the error that the last ICMP error left for the next call.
    pub fn take_error(&self) {
        let (mut error, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
        let fd = self.0.as_raw_fd();
        // SAFETY: number and length outlive the call.
        let _ = unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &raw mut length)
        };
    }

    /// Of a raw ICMP socket: echo answers only.
    pub fn keep_echo_answers(&self, v6: bool) -> io::Result<()> {
        if v6 {
            let mut blocked = [u32::MAX; 8];
            blocked[129 / 32] &= !(1 << (129 % 32));
            self.set(libc::IPPROTO_ICMPV6, TYPES, &blocked)
        } else {
            self.set(libc::SOL_RAW, TYPES, &!1_u32)
        }
    }

    pub fn keep(&self, filter: &[libc::sock_filter]) -> io::Result<()> {
        assert!(filter.len() <= LONGEST, "filters are short");
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// `T`: what the kernel expects for this option.
    pub fn set<T>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        let (at, length) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the value outlives the call and is as long as it says; a filter's steps outlive it too.
        told(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, at, length) })
    }
}

/// Waits until one of the descriptors has something, at most so long. The kernel rounds up by the slack of the thread.
pub fn wait(polled: &mut [libc::pollfd], longest: Duration) {
    let time = libc::timespec {
        tv_sec: longest.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: the list and the time outlive the call. After an error, a signal for example, the caller looks again.
    let ready =
        unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as _, &raw const time, std::ptr::null()) };
    if ready <= 0 {
        polled.iter_mut().for_each(|socket| socket.revents = 0);
    }
}

pub fn polled(socket: &impl AsFd) -> libc::pollfd {
    libc::pollfd { fd: socket.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Sleeps of this thread end in time: the default slack is 50 µs.
pub fn be_punctual() {
    // SAFETY: takes plain numbers and changes this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Random bytes; without them, those of the clock, which are as good against accidents.
pub fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let flags = libc::GRND_NONBLOCK;
    // SAFETY: the bytes outlive the call and are as long as it says.
    if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), flags) } != 16 {
        let seed = u128::from(super::clock::monotonic()) << 40 | u128::from(std::process::id());
        bytes = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)).to_be_bytes();
    }
    bytes
}

fn told(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The address as the kernel reads it; one of IPv4 lies at the beginning of the same bytes.
#[repr(C)]
pub union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

pub fn raw(address: SocketAddr) -> (RawAddress, libc::socklen_t) {
    match address {
        SocketAddr::V4(address) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            (RawAddress { v4 }, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        SocketAddr::V6(address) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            (RawAddress { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
    }
}

/// The address that the kernel wrote over one of IPv6.
pub fn cooked(raw: &RawAddress) -> Option<SocketAddr> {
    // SAFETY: the family is the first field of both, and all bytes were set: numbers, for which any value is valid.
    let (family, v4, v6) = unsafe { (raw.v4.sin_family, raw.v4, raw.v6) };
    match i32::from(family) {
        libc::AF_INET => {
            let address = IpAddr::V4(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()));
            Some(SocketAddr::new(address, u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            let address = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(address, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}
