//! Datagrams over the loopback of a test's own namespace: many, but not more than the receiver can take.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::Worker;

/// How soon a receiver notices that it should end.
const NOTICE: Duration = Duration::from_millis(20);
/// The largest datagram that fits in one frame of the loopback.
const MOST_BYTES: u64 = 65_000;

pub fn send(mut w: Worker<'_>, port: u16, bytes: u64, count: u64, every_us: u64) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    let datagram = vec![0x5a; bytes.min(MOST_BYTES) as usize];
    w.at_each_tick(every_us, |w| {
        for _ in 0..count {
            if let Err(err) = socket.send(&datagram) {
                w.tally.failed(&err);
            }
        }
        Ok(())
    })
}

pub fn drain<'l>(ready: impl FnOnce() -> Worker<'l>, port: u16, burst_us: u64) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(NOTICE))?;
    let mut w = ready();
    let mut buffer = vec![0; MOST_BYTES as usize];
    while w.goes_on() {
        if socket.recv(&mut buffer).is_ok() {
            w.compute(burst_us);
            w.tally.did_one();
        }
    }
    Ok(())
}
