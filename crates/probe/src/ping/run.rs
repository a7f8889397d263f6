//! The loop of a pinger: sends in time, and listens between.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use whyslow_model::ping::Ping;

use super::clock::{RealClock, monotonic};
use super::control::{self, ORIGIN_STAMP, Trouble};
use super::live::Live;
use super::mailbox::{BATCH, Mailbox};
use super::open::Opened;
use super::requests::{MOST, Place, Requests};
use super::socket::be_punctual;
use super::wire::Request;
use super::{Aim, nanos};

/// Longest sleep: a stop waits no longer.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Batches from one socket before the next one has its turn: a flood must not keep us from sending for more than about a millisecond.
const BATCHES: usize = 64;

struct Run<'a> {
    opened: &'a Opened,
    requests: Requests<'a>,
    /// By socket: the row whose stamps have number 0.
    numbered_from: Vec<u64>,
    clock: RealClock,
    mailbox: Mailbox,
    packet: Request,
}

pub fn run(
    aim: &Aim,
    opened: &Opened,
    (start_ns, first): (u64, Duration),
    window: Duration,
    stop: &AtomicBool,
    live: &Live,
) -> Vec<Ping> {
    be_punctual();
    let interval = nanos(aim.interval).max(1);
    let most = aim.count.unwrap_or(MOST).min(MOST);
    let expected = (nanos(window) / interval).saturating_add(1).min(most);
    let sockets = opened.sockets.len() as u64;
    let mut run = Run {
        opened,
        requests: Requests::new(expected, sockets, aim.timeout, live),
        numbered_from: (0..sockets).collect(),
        clock: RealClock::default(),
        mailbox: Mailbox::new(),
        packet: [0; _],
    };
    // The clock's first look has nothing to compare with.
    run.clock.offset();
    let end = start_ns.saturating_add(nanos(window));
    run.send_all(Grid { start_ns: start_ns.saturating_add(nanos(first)), interval, end }, most, stop);
    run.hear_the_rest(stop);
    let ports = &opened.ports;
    let port = |row: u64| row.checked_rem(ports.len() as u64).and_then(|lane| ports.get(lane as usize));
    run.requests.rows(start_ns, |row| port(row).copied().unwrap_or(0))
}

/// Times at which requests are due.
#[derive(Clone, Copy)]
struct Grid {
    start_ns: u64,
    interval: u64,
    end: u64,
}

impl Grid {
    /// The first one after `now`.
    fn after(self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.start_ns) / self.interval;
        self.start_ns.saturating_add(passed.saturating_add(1).saturating_mul(self.interval))
    }
}

impl Run<'_> {
    /// After a stall, one request is sent late and the others that were due are left out: a burst would make its own queue.
    fn send_all(&mut self, grid: Grid, most: u64, stop: &AtomicBool) {
        let mut due = grid.start_ns;
        while due < grid.end && self.requests.next() < most && !stop.load(Relaxed) {
            let now = monotonic();
            if now >= grid.end {
                break;
            }
            if now >= due {
                due = grid.after(self.send(due).max(due));
            }
            self.listen(Duration::from_nanos(due.saturating_sub(monotonic())).min(LONGEST_SLEEP));
        }
    }

    fn hear_the_rest(&mut self, stop: &AtomicBool) {
        self.requests.expire(monotonic());
        while self.requests.waits() && !stop.load(Relaxed) {
            self.listen(LONGEST_SLEEP);
        }
        (0..self.opened.sockets.len()).for_each(|socket| {
            self.read_errors(socket);
        });
    }

    /// Sends the next request; the time right before.
    fn send(&mut self, due: u64) -> u64 {
        let row = self.requests.next();
        let index = (row % self.opened.sockets.len() as u64) as usize;
        let Some(socket) = self.opened.sockets.get(index) else { return monotonic() };
        if self.opened.wire.is_of_connections() && !self.requests.is_free(row, self.opened.ports.len() as u64)
        {
            let now = monotonic();
            self.requests.not_sent(now, now.saturating_sub(due), libc::EADDRINUSE);
            self.number_from(index, row.saturating_add(1));
            return now;
        }
        let length = self.opened.wire.request(row, &mut self.packet);
        let mut own = monotonic();
        let mut sent = socket.send(self.packet.get(..length).unwrap_or_default());
        if sent.is_err() {
            // An ICMP error about an earlier request may have been handed to this call.
            self.read_errors(index);
            self.number_from(index, row);
            own = monotonic();
            sent = socket.send(self.packet.get(..length).unwrap_or_default());
        }
        let late = own.saturating_sub(due);
        match sent {
            // Most drivers stamp a packet before the call returns.
            Ok(()) => {
                self.requests.sent(own, late);
                self.read_errors(index);
            }
            Err(error) => {
                self.requests.not_sent(own, late, error.raw_os_error().unwrap_or(libc::EIO));
                self.number_from(index, row.saturating_add(self.opened.sockets.len() as u64));
            }
        }
        own
    }

    fn number_from(&mut self, index: usize, row: u64) {
        let Some(socket) = self.opened.sockets.get(index) else { return };
        if let (Ok(()), Some(from)) = (socket.number_again(), self.numbered_from.get_mut(index)) {
            *from = row;
        }
    }

    /// Takes what comes until the time is over or something came.
    fn listen(&mut self, longest: Duration) {
        for has in self.opened.ready.wait(longest).each() {
            if has.errors
                && !self.read_errors(has.socket)
                && let Some(socket) = self.opened.sockets.get(has.socket)
            {
                socket.take_error();
            }
            if has.answers {
                self.read_answers(has.socket);
            }
        }
        self.requests.expire(monotonic());
    }

    fn read_answers(&mut self, index: usize) {
        let Some(socket) = self.opened.sockets.get(index) else { return };
        for _ in 0..BATCHES {
            let Ok(count) = self.mailbox.receive(socket.as_fd(), 0) else { break };
            let offset = self.clock.offset();
            for letter in self.mailbox.letters() {
                let Some((which, answer)) = self.opened.wire.answered(letter.data) else { continue };
                let stamp = control::parse(letter.control).stamp.and_then(|ns| offset.monotonic(ns));
                let row = self.requests.answered(which, index as u64, answer, stamp, offset.at);
                if let (Some(row), Some(stay)) = (row, self.opened.wire.stay(letter.data)) {
                    self.requests.stayed(row, stay);
                }
            }
            if count < BATCH {
                break;
            }
        }
    }

    /// Stamps of what was sent, and ICMP errors; whether there were any.
    fn read_errors(&mut self, index: usize) -> bool {
        let Some(socket) = self.opened.sockets.get(index) else { return false };
        let mut any = false;
        for _ in 0..BATCHES {
            let Ok(count) = self.mailbox.receive(socket.as_fd(), libc::MSG_ERRQUEUE) else { break };
            any |= count > 0;
            let offset = self.clock.offset();
            for letter in self.mailbox.letters() {
                let told = control::parse(letter.control);
                let Some(trouble) = told.trouble else { continue };
                let stamp = told.stamp.and_then(|ns| offset.monotonic(ns));
                if trouble.origin == ORIGIN_STAMP {
                    let row = stamped_row(trouble, self.numbered_from.get(index), self.opened.sockets.len());
                    if let (Some(row), Some(place), Some(ns)) = (row, place(trouble), stamp) {
                        self.requests.stamp(row, place, ns, offset.at);
                    }
                } else if let Some((which, answer)) = self.opened.wire.refused(trouble, letter.data) {
                    self.requests.answered(which, index as u64, answer, stamp, offset.at);
                }
            }
            if count < BATCH {
                break;
            }
        }
        any
    }
}

fn stamped_row(trouble: Trouble, from: Option<&u64>, sockets: usize) -> Option<u64> {
    u64::from(trouble.data).checked_mul(sockets as u64)?.checked_add(*from?)
}

/// `SCM_TSTAMP_SND` and `SCM_TSTAMP_SCHED` of linux/errqueue.h.
fn place(trouble: Trouble) -> Option<Place> {
    match trouble.info {
        0 => Some(Place::Device),
        1 => Some(Place::Queue),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_next_time_is_on_the_grid_and_later(start: u32, interval in 1..u64::from(u32::MAX), now: u32) {
            let grid = Grid { start_ns: start.into(), interval, end: u64::MAX };
            let next = grid.after(now.into());
            prop_assert!(next > u64::from(now) && (next - grid.start_ns).is_multiple_of(interval));
            prop_assert!(next <= grid.start_ns.max(now.into()) + interval);
        }
    }
}
