//! Requests over loopback.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{allowed_cpus, fork, parts, pin_to, reap};

/// Requests in a row before a pause: 20,000 a second.
const AT_ONCE: u64 = 20;
const EVERY: Duration = Duration::from_millis(1);

/// A client sends requests to a service, which answers at once; each has a CPU of its own where the host has two. The scheduler chooses the
/// CPU on which a task wakes up, and chooses differently beside a tool: without pinning, this load alone takes three times the CPU time.
pub fn apart(count: u64) -> io::Result<f64> {
    let cpus = allowed_cpus();
    requests(count, cpus.first().copied(), cpus.last().copied())
}

/// The same load with both ends on one CPU.
pub fn together(count: u64) -> io::Result<f64> {
    let cpu = allowed_cpus().first().copied();
    requests(count, cpu, cpu)
}

fn requests(count: u64, client: Option<usize>, server: Option<usize>) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let service = fork(move || {
        pin_to(server);
        let (mut from, _) = listener.accept()?;
        from.set_nodelay(true)?;
        let mut word = [0; 64];
        for _ in 0..count {
            from.read_exact(&mut word)?;
            from.write_all(&word)?;
        }
        Ok(())
    })?;
    pin_to(client);
    let mut to = TcpStream::connect(address)?;
    to.set_nodelay(true)?;
    let (begin, mut word) = (Instant::now(), [0; 64]);
    let took = parts::of(count, service, |request| {
        if request % AT_ONCE == 0 {
            let due = begin + EVERY * u32::try_from(request / AT_ONCE).unwrap_or(u32::MAX);
            sleep(due.saturating_duration_since(Instant::now()));
        }
        to.write_all(&word)?;
        to.read_exact(&mut word)
    })?;
    reap(service)?;
    Ok(took)
}
