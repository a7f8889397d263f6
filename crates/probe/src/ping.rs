//! How long does another host take to answer? Requests at fixed times, with the kernel's stamps of both directions.
//!
//! It costs six calls of the kernel for each request. It is no load generator: it sends one packet at a time, and never the ones that it
//! was too late for. It judges nothing.

mod clock;
mod control;
mod datagram;
mod echo;
mod errno;
mod filter;
mod live;
mod mailbox;
mod open;
mod packet;
mod ready;
mod requests;
mod run;
mod serve;
mod socket;
mod syn;
mod wire;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thiserror::Error;
use whyslow_model::ping::{Ping, PingHow};

pub use live::{Live, LiveTimes};
pub use requests::MOST;
pub use serve::{Served, serve};

/// Shortest interval: below it, the prober's own calls take a large part of the time, and 10,000 requests a second show all that fewer do.
pub const SHORTEST_INTERVAL: Duration = Duration::from_micros(100);

/// A host, and how it is asked.
#[derive(Debug, Clone)]
pub struct Aim {
    pub address: IpAddr,
    /// The interface of a link-local IPv6 address; 0: none.
    pub scope: u32,
    pub how: PingHow,
    /// 0 for ICMP.
    pub port: u16,
    /// Each second request is an ICMP echo: ICMP has one receive queue of the target, and ports have all.
    pub with_icmp: bool,
    /// The time between two requests.
    pub interval: Duration,
    /// Stop after so many.
    pub count: Option<u64>,
    /// A request without an answer for so long is lost.
    pub timeout: Duration,
}

/// Why nothing can be sent.
#[derive(Debug, Error)]
pub enum PingError {
    #[error("cannot ask {address}: {reason}")]
    Aim { address: IpAddr, reason: &'static str },
    #[error("cannot open a raw socket: not permitted; use sudo, or --udp PORT")]
    NotPermitted,
    #[error("cannot {act} {object}: {error}")]
    Call { act: &'static str, object: String, error: io::Error },
}

/// Open sockets; nothing was sent yet.
pub struct Pinger {
    aim: Aim,
    opened: open::Opened,
    /// In turn with the others.
    echo: Option<open::Opened>,
}

impl Pinger {
    /// Opens the sockets.
    pub fn open(aim: &Aim) -> Result<Pinger, PingError> {
        if let Some(reason) = aim.objection() {
            return Err(PingError::Aim { address: aim.address, reason });
        }
        let echo = if aim.with_icmp { Some(open::open(&aim.by_icmp())?) } else { None };
        Ok(Pinger { opened: open::open(aim)?, echo, aim: aim.clone() })
    }

    /// Sends from `start_ns` of CLOCK_MONOTONIC on until the window is over, the count is reached or `stop` is set, and then waits for
    /// answers that are still due. Returns the requests in order of sending.
    pub fn run(self, start_ns: u64, window: Duration, stop: &AtomicBool, live: &Live) -> Vec<Ping> {
        let Some(echo) = &self.echo else {
            return run::run(&self.aim, &self.opened, (start_ns, Duration::ZERO), window, stop, live);
        };
        let [by_port, by_icmp] = self.aim.in_turn();
        let mut rows = std::thread::scope(|scope| {
            let echoes =
                scope.spawn(|| run::run(&by_icmp, echo, (start_ns, self.aim.interval), window, stop, live));
            let mut rows = run::run(&by_port, &self.opened, (start_ns, Duration::ZERO), window, stop, live);
            match echoes.join() {
                Ok(echoes) => rows.extend(echoes),
                Err(panic) => std::panic::resume_unwind(panic),
            }
            rows
        });
        rows.sort_by_key(|row| row.sent_ns);
        rows
    }
}

impl Aim {
    fn by_icmp(&self) -> Aim {
        Aim { how: PingHow::Icmp, port: 0, with_icmp: false, ..self.clone() }
    }

    /// Both ways to ask, each half as often.
    fn in_turn(&self) -> [Aim; 2] {
        let interval = self.interval.saturating_mul(2);
        let count = |other: u64| self.count.map(|count| count.saturating_add(other) / 2);
        [
            Aim { interval, count: count(1), ..self.clone() },
            Aim { interval, count: count(0), ..self.by_icmp() },
        ]
    }

    fn objection(&self) -> Option<&'static str> {
        let is_v4 =
            |is: fn(std::net::Ipv4Addr) -> bool| matches!(self.address, IpAddr::V4(address) if is(address));
        let is_link_local = matches!(self.address, IpAddr::V6(address) if address.is_unicast_link_local());
        let rules = [
            (self.address.is_multicast(), "it is a multicast address; name one host"),
            (is_v4(|address| address.is_broadcast()), open::BROADCAST),
            (self.address.is_unspecified(), "it is no address of a host; name one host"),
            (is_link_local && self.scope == 0, "it is an address of one link; add %INTERFACE"),
            (self.port == 0 && self.how != PingHow::Icmp, "there is no port 0; name a port"),
            (self.interval < SHORTEST_INTERVAL, "less than 0.1 ms between requests; use a longer interval"),
            (self.timeout.is_zero(), "no time to answer; use a longer timeout"),
            (self.count.is_some_and(|count| count > MOST), "more than 1,000,000 requests; use fewer"),
        ];
        rules.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "ping/live_tests.rs"]
mod live_tests;
