//! A word that the thread below sends through a connection when it is done, however the one above waits for it.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use super::{Taken, Thing};
use crate::lock_chain::{Way, Wire};
use crate::sys::ring::Ring;
use crate::sys::{kernel, polls};

/// One look of who looks again and again, in ms: some in each round.
const LOOK_MS: i32 = 20;

thread_local! {
    /// Of the thread that waits: a ring is not shared with those that were born later.
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// Its two ends.
pub struct Peer {
    above: OwnedFd,
    below: OwnedFd,
    wire: Wire,
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
            Wire::Queue => kernel::queue()?,
            Wire::Event => {
                let event = kernel::counter()?;
                [event.try_clone()?, event]
            }
        };
        let set = if way == Way::Epoll { Some(polls::epoll()?) } else { None };
        set.iter().try_for_each(|set| polls::watch(set, &above, 0))?;
        Ok(Peer { above, below, wire, way, set })
    }

    fn receive(&self) -> io::Result<()> {
        match self.wire {
            Wire::Queue => kernel::receive_message(&self.above),
            _ => kernel::read_word(&self.above),
        }
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

fn through_ring(fd: &OwnedFd) -> io::Result<()> {
    RING.with_borrow_mut(|ring| match ring {
        Some(ring) => ring.read_word(fd),
        none => none.insert(Ring::new()?).read_word(fd),
    })
}

impl Thing for Peer {
    fn want(&self) -> io::Result<()> {
        match (self.way, &self.set) {
            (Way::Read, _) => {}
            (Way::Ring, _) => return through_ring(&self.above),
            (Way::Epoll, Some(set)) => while polls::ready(set, -1).is_empty() {},
            (Way::Poll | Way::Epoll, _) => while !polls::can_be_read(&self.above, -1)? {},
            (Way::Select, _) => polls::select(&self.above)?,
            (Way::Looks, _) => while !polls::can_be_read(&self.above, LOOK_MS)? {},
        }
        self.receive()
    }

    fn give(&self, _: Taken<'_>) -> io::Result<()> {
        match self.wire {
            Wire::Queue => kernel::send_message(&self.below),
            _ => kernel::write_word(&self.below),
        }
    }
}
