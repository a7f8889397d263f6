//! Requests over loopback.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{fork, reap};

/// So many one after the other, then a pause: 20,000 a second.
const AT_ONCE: u64 = 20;
const EVERY: Duration = Duration::from_millis(1);

/// A client asks a service, which answers at once.
pub fn requests(count: u64) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let service = fork(move || {
        let (mut from, _) = listener.accept()?;
        from.set_nodelay(true)?;
        let mut word = [0; 64];
        for _ in 0..count {
            from.read_exact(&mut word)?;
            from.write_all(&word)?;
        }
        Ok(())
    })?;
    let mut to = TcpStream::connect(address)?;
    to.set_nodelay(true)?;
    let (begin, mut word) = (Instant::now(), [0; 64]);
    for request in 0..count {
        if request % AT_ONCE == 0 {
            let due = begin + EVERY * u32::try_from(request / AT_ONCE).unwrap_or(u32::MAX);
            sleep(due.saturating_duration_since(Instant::now()));
        }
        to.write_all(&word)?;
        to.read_exact(&mut word)?;
    }
    reap(service)
}
