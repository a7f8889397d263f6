//! A word that the thread below sends through a connection when it is done, however the one above waits for it.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use super::{Taken, Thing};
use crate::lock_chain::{Way, Wire};
use crate::sys::{kernel, polls};

/// One look of who looks again and again, in ms: some in each round.
const LOOK_MS: i32 = 20;

/// Its two ends.
pub struct Peer {
    above: OwnedFd,
    below: OwnedFd,
    way: Way,
    set: Option<OwnedFd>,
}

impl Peer {
    pub fn new(wire: Wire, way: Way) -> io::Result<Self> {
        let [above, below] = match wire {
            Wire::Pipe => kernel::pipe()?,
            Wire::Stream => kernel::socket_pair()?,
            Wire::Datagram => kernel::datagram_pair()?,
            Wire::Tcp => tcp()?,
            Wire::Udp => udp()?,
            Wire::Event => {
                let event = kernel::counter()?;
                [event.try_clone()?, event]
            }
        };
        let set = if way == Way::Epoll { Some(polls::epoll()?) } else { None };
        set.iter().try_for_each(|set| polls::watch(set, &above, 0))?;
        Ok(Peer { above, below, way, set })
    }
}

fn tcp() -> io::Result<[OwnedFd; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let above = TcpStream::connect(listener.local_addr()?)?;
    let (below, _) = listener.accept()?;
    below.set_nodelay(true)?;
    Ok([above.into(), below.into()])
}

fn udp() -> io::Result<[OwnedFd; 2]> {
    let [above, below] =
        [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
    above.connect(below.local_addr()?)?;
    below.connect(above.local_addr()?)?;
    Ok([above.into(), below.into()])
}

impl Thing for Peer {
    fn want(&self) -> io::Result<()> {
        match (self.way, &self.set) {
            (Way::Read, _) => {}
            (Way::Epoll, Some(set)) => while polls::ready(set, -1).is_empty() {},
            (Way::Poll | Way::Epoll, _) => while !polls::can_be_read(&self.above, -1)? {},
            (Way::Select, _) => polls::select(&self.above)?,
            (Way::Looks, _) => while !polls::can_be_read(&self.above, LOOK_MS)? {},
        }
        kernel::read_word(&self.above)
    }

    fn give(&self, _: Taken<'_>) -> io::Result<()> {
        kernel::write_word(&self.below)
    }
}
