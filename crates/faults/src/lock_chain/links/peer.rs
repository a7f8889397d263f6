//! A word that the thread below sends through a connection when it is done; the thread above waits for it in one of several ways.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use super::{Object, Taken, veth};
use crate::lock_chain::{Way, Wire};
use crate::sys;
use crate::sys::ring::Ring;
use crate::sys::{kernel, polls};

/// Timeout of one poll in a polling loop, in ms: some polls in each round.
const LOOK_MS: i32 = 20;

thread_local! {
    /// The ring of the waiting thread: threads that start later do not share it.
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
    /// Whether the word of its last wait arrived between two polls.
    static CAME_UNSEEN: Cell<bool> = const { Cell::new(false) };
}

/// The two ends of the connection.
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
            Wire::TcpAcross => veth::tcp()?,
            Wire::UdpAcross => veth::udp()?,
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

/// A wait shorter than this is too short to observe, in ns.
const NO_WAIT: u64 = 300_000;

/// Whether the last wait of this thread ended between two polls: then it is not visible which thread ended the wait.
pub fn came_unseen() -> bool {
    CAME_UNSEEN.get()
}

fn look(fd: &OwnedFd) -> io::Result<()> {
    let mut looks = 0;
    loop {
        let begin = sys::monotonic_ns();
        let has_come = polls::can_be_read(fd, LOOK_MS)?;
        looks += 1;
        if has_come {
            CAME_UNSEEN.set(looks > 1 && sys::monotonic_ns() - begin < NO_WAIT);
            return Ok(());
        }
    }
}

fn through_ring(fd: &OwnedFd) -> io::Result<()> {
    RING.with_borrow_mut(|ring| match ring {
        Some(ring) => ring.read_word(fd),
        none => none.insert(Ring::new()?).read_word(fd),
    })
}

impl Object for Peer {
    fn want(&self) -> io::Result<()> {
        CAME_UNSEEN.set(false);
        match (self.way, &self.set) {
            (Way::Read, _) => {}
            (Way::Ring, _) => return through_ring(&self.above),
            (Way::Epoll, Some(set)) => while polls::ready(set, -1).is_empty() {},
            (Way::Poll | Way::Epoll, _) => while !polls::can_be_read(&self.above, -1)? {},
            (Way::Select, _) => polls::select(&self.above)?,
            (Way::Looks, _) => look(&self.above)?,
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
