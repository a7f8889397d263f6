//! Which of many sockets have something: a wait costs the same for one socket and for a thousand.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use super::socket::{Socket, polled, wait};

/// Sockets told at once; the others have their turn at the next wait (epoll keeps them in a circle).
const AT_ONCE: usize = 32;

/// Sockets that are waited for together.
pub struct Ready(OwnedFd);

/// Sockets that have something.
pub struct Found {
    events: [libc::epoll_event; AT_ONCE],
    count: usize,
}

/// What a socket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Has {
    /// Its place in the list.
    pub socket: usize,
    pub answers: bool,
    pub errors: bool,
}

impl Ready {
    pub fn of(sockets: &[Socket]) -> io::Result<Ready> {
        // SAFETY: takes plain numbers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor for us; it has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        for (place, socket) in sockets.iter().enumerate() {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: place as u64 };
            let socket = socket.as_fd().as_raw_fd();
            // SAFETY: the event outlives the call.
            if unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, socket, &raw mut event) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Ready(epoll))
    }

    /// Waits until a socket has something, at most so long. epoll_wait counts in milliseconds, and epoll_pwait2 is younger than Linux 5.10:
    /// ppoll waits for the list.
    pub fn wait(&self, longest: Duration) -> Found {
        let mut found = Found { events: [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE], count: 0 };
        let mut list = [polled(&self.0)];
        wait(&mut list, longest);
        if list[0].revents != 0 {
            let (fd, room) = (self.0.as_raw_fd(), AT_ONCE as i32);
            // SAFETY: the events outlive the call, and are as many as it says.
            let count = unsafe { libc::epoll_wait(fd, found.events.as_mut_ptr(), room, 0) };
            found.count = usize::try_from(count).unwrap_or(0);
        }
        found
    }
}

impl Found {
    pub fn each(&self) -> impl Iterator<Item = Has> {
        self.events.iter().take(self.count).map(|event| {
            let has = |bit: i32| event.events & bit as u32 != 0;
            Has { socket: event.u64 as usize, answers: has(libc::EPOLLIN), errors: has(libc::EPOLLERR) }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn sockets(count: usize) -> Vec<Socket> {
        let bound = |_| {
            let socket = Socket::new(false, libc::SOCK_DGRAM, 0).unwrap();
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            socket
        };
        (0..count).map(bound).collect()
    }

    #[test]
    fn the_socket_that_got_a_packet_is_found() {
        let sockets = sockets(3);
        let ready = Ready::of(&sockets).unwrap();
        assert_eq!(ready.wait(Duration::ZERO).each().count(), 0);
        sockets[0].connect(sockets[2].name().unwrap()).unwrap();
        sockets[0].send(b"x").unwrap();
        let found: Vec<Has> = ready.wait(Duration::from_secs(5)).each().collect();
        assert_eq!(found, [Has { socket: 2, answers: true, errors: false }]);
    }

    #[test]
    fn each_of_many_has_its_turn() {
        let sockets = sockets(3 * AT_ONCE);
        let ready = Ready::of(&sockets).unwrap();
        for socket in &sockets {
            socket.connect(socket.name().unwrap()).unwrap();
            socket.send(b"x").unwrap();
        }
        let mut seen: Vec<usize> = (0..3)
            .flat_map(|_| ready.wait(Duration::from_secs(5)).each().map(|has| has.socket).collect::<Vec<_>>())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..sockets.len()).collect::<Vec<_>>());
    }
}
