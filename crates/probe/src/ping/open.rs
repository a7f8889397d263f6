//! Sockets of each way to ask.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use whyslow_model::ping::PingHow;

use super::datagram::Datagrams;
use super::echo::Echo;
use super::ready::Ready;
use super::socket::{Socket, random};
use super::syn::Syns;
use super::wire::{Nonce, Wire};
use super::{Aim, PingError, filter};

/// Source ports: flows that a receiver with several queues spreads over them. With 16, all of 4 queues are hit in 96 of 100 runs.
const PORTS: u128 = 16;
/// Most of them. Each needs a descriptor.
const MOST_PORTS: u128 = 1000;

/// What a pinger asks through.
pub struct Opened {
    pub sockets: Vec<Socket>,
    pub ready: Ready,
    pub wire: Wire,
    /// Source ports, in turn.
    pub ports: Vec<u16>,
    /// Sockets that keep the source ports of TCP from others.
    pub _reserved: Vec<Socket>,
}

pub fn open(aim: &Aim) -> Result<Opened, PingError> {
    let (id, nonce, base) = identity();
    match aim.how {
        PingHow::Icmp => echo(aim, id, nonce),
        PingHow::Tcp => syn(aim, base),
        PingHow::Udp => datagrams(aim, nonce),
    }
}

fn identity() -> (u16, Nonce, u32) {
    let [id0, id1, base0, base1, base2, base3, _, _, nonce @ ..] = random();
    (u16::from_be_bytes([id0, id1]), nonce, u32::from_be_bytes([base0, base1, base2, base3]))
}

fn echo(aim: &Aim, id: u16, nonce: Nonce) -> Result<Opened, PingError> {
    let v6 = aim.address.is_ipv6();
    let protocol = if v6 { libc::IPPROTO_ICMPV6 } else { libc::IPPROTO_ICMP };
    let (socket, id, is_raw) = match Socket::new(v6, libc::SOCK_RAW, protocol) {
        Ok(socket) => {
            let filtered =
                socket.keep_echo_answers(v6).and_then(|()| socket.keep(&filter::of_identifier(v6, id)));
            filtered.map_err(|error| aim.failed("set a filter for", error))?;
            connect(aim, &socket, 0)?;
            (socket, id, true)
        }
        Err(error) if is_refused(&error) => {
            let (socket, id) = unprivileged_echo(aim, protocol)?;
            (socket, id, false)
        }
        Err(error) => return Err(aim.not_opened(error)),
    };
    let echo = Echo { v6, with_ip_head: is_raw && !v6, id, nonce };
    aim.opened(vec![socket], Wire::Echo(echo), vec![], vec![])
}

/// A socket for users of the groups in net.ipv4.ping_group_range, to which the kernel gives an identifier.
fn unprivileged_echo(aim: &Aim, protocol: i32) -> Result<(Socket, u16), PingError> {
    let socket = Socket::new(aim.address.is_ipv6(), libc::SOCK_DGRAM, protocol)
        .map_err(|error| aim.not_opened(error))?;
    connect(aim, &socket, 0)?;
    let id = socket.name().map_err(|error| aim.failed("tell the identifier for", error))?.port();
    Ok((socket, id))
}

fn syn(aim: &Aim, base: u32) -> Result<Opened, PingError> {
    let v6 = aim.address.is_ipv6();
    let opened = || Socket::new(v6, libc::SOCK_RAW, libc::IPPROTO_TCP).map_err(|error| aim.not_opened(error));
    let way = opened()?;
    connect(aim, &way, 0)?;
    let own = way.name().map_err(|error| aim.failed("tell the own address for", error))?;
    drop(way);
    // A raw socket that was connected once is found by no packet after it is disconnected (__udp_disconnect unhashes it): a second one.
    let socket = opened()?.sending_to(aim.at(0));
    crate::open_files::raise_limit();
    let (reserved, ports) = reserve(aim, own, libc::SOCK_STREAM, aim.ports())?;
    socket
        .keep(&filter::of_port(aim.address, aim.port))
        .map_err(|error| aim.failed("set a filter for", error))?;
    socket.report(v6).map_err(|error| aim.failed("hear of errors of", error))?;
    socket.bind(own).map_err(|error| aim.failed("use the own address for", error))?;
    let syns = Syns { from: own.ip(), to: aim.address, port: aim.port, ports: ports.clone(), base };
    aim.opened(vec![socket], Wire::Syn(syns), ports, reserved)
}

fn datagrams(aim: &Aim, nonce: Nonce) -> Result<Opened, PingError> {
    let any = match aim.address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    crate::open_files::raise_limit();
    let (sockets, ports) = reserve(aim, SocketAddr::new(any, 0), libc::SOCK_DGRAM, aim.ports())?;
    for socket in &sockets {
        connect(aim, socket, aim.port)?;
    }
    let wire = Wire::Datagram(Datagrams { port: aim.port, nonce });
    aim.opened(sockets, wire, ports, vec![])
}

/// Sockets with ports of their own. A TCP socket that is bound, but neither connects nor listens, keeps its port from the connections of
/// others, and the kernel answers what comes to it with a reset: the target forgets its half of the connection.
fn reserve(
    aim: &Aim,
    own: SocketAddr,
    kind: i32,
    wanted: u128,
) -> Result<(Vec<Socket>, Vec<u16>), PingError> {
    let one = || -> io::Result<(Socket, u16)> {
        let socket = Socket::new(own.is_ipv6(), kind, 0)?;
        let mut any = own;
        any.set_port(0);
        socket.bind(any)?;
        let port = socket.name()?.port();
        Ok((socket, port))
    };
    let (mut sockets, mut ports) = (Vec::new(), Vec::new());
    let mut unusable = None;
    while (sockets.len() as u128) < wanted {
        let (socket, port) = one().map_err(|error| aim.failed("get a source port for", error))?;
        // On this very host the port asked may be given to us: it would answer itself.
        if port == aim.port {
            unusable = Some(socket);
            continue;
        }
        sockets.push(socket);
        ports.push(port);
    }
    drop(unusable);
    Ok((sockets, ports))
}

fn connect(aim: &Aim, socket: &Socket, port: u16) -> Result<(), PingError> {
    let to = aim.at(port);
    socket.report(to.is_ipv6()).map_err(|error| aim.failed("hear of errors of", error))?;
    socket.connect(to).map_err(|error| match error.raw_os_error() {
        // Of a broadcast address without SO_BROADCAST (ip4_datagram_connect), and of a route of type `prohibit`.
        Some(libc::EACCES) => PingError::Aim { address: aim.address, reason: PROHIBITED },
        _ => aim.failed("reach", error),
    })
}

pub const BROADCAST: &str = "it is a broadcast address; name one host";
const PROHIBITED: &str = "it is a broadcast address, or its route prohibits it; see ip route get";

impl Aim {
    fn at(&self, port: u16) -> SocketAddr {
        match self.address {
            IpAddr::V4(address) => SocketAddr::new(address.into(), port),
            IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, self.scope).into(),
        }
    }

    /// So many source ports that none is used again before its last request is answered or lost. A second SYN from the port of a
    /// half-open connection would get no SYN-ACK but, now and then, a challenge ACK (tcp_check_req).
    fn ports(&self) -> u128 {
        (self.timeout.as_nanos() / self.interval.as_nanos().max(1) + 2).clamp(PORTS, MOST_PORTS)
    }

    fn opened(
        &self,
        sockets: Vec<Socket>,
        wire: Wire,
        ports: Vec<u16>,
        reserved: Vec<Socket>,
    ) -> Result<Opened, PingError> {
        let ready = Ready::of(&sockets).map_err(|error| self.failed("wait for answers of", error))?;
        Ok(Opened { sockets, ready, wire, ports, _reserved: reserved })
    }

    fn failed(&self, act: &'static str, error: io::Error) -> PingError {
        PingError::Call { act, object: self.address.to_string(), error }
    }

    fn not_opened(&self, error: io::Error) -> PingError {
        if is_refused(&error) { PingError::NotPermitted } else { self.failed("open a socket for", error) }
    }
}

fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
