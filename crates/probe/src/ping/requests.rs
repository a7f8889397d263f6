//! Requests of a run, and what is known about each.

use std::time::Duration;

use whyslow_model::ping::{Leg, Ping, PingAnswer};

use super::datagram::Stay;
use super::live::Live;
use super::wire::Which;

/// Most requests of a run: 48 MB here, and 110 MB as rows; 24 MB and 16 MB more where the target tells its times.
pub const MOST: u64 = 1_000_000;

/// A stamp this much before our own clock said that we send belongs to another packet; both clocks are read within less.
const BEFORE_NS: u64 = 50_000;

/// Times are of CLOCK_MONOTONIC; 0: unknown.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    /// Our own clock, right before sending.
    own_ns: u64,
    late_ns: u64,
    /// The kernel's stamp at the device's queue.
    queue_ns: u64,
    /// The kernel's stamp in the driver.
    device_ns: u64,
    answered_ns: u64,
    answer: Option<PingAnswer>,
    errno: i32,
    is_lost: bool,
}

impl Request {
    fn sent_ns(&self) -> u64 {
        [self.device_ns, self.queue_ns].into_iter().find(|&ns| ns > 0).unwrap_or(self.own_ns)
    }

    fn is_open(&self) -> bool {
        self.answer.is_none() && self.errno == 0
    }
}

/// Where the kernel stamped a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Queue,
    Device,
}

/// Requests in order of sending; row `n` was sent by socket `n % sockets`.
pub struct Requests<'a> {
    all: Vec<Request>,
    /// By row, as far as the target has told any.
    stays: Vec<Option<Stay>>,
    sockets: u64,
    timeout_ns: u64,
    /// Rows before this one are older than the timeout.
    young: usize,
    /// Open rows that are not older.
    waiting: u64,
    live: &'a Live,
}

impl<'a> Requests<'a> {
    /// Room for `expected` requests, allocated now.
    pub fn new(expected: u64, sockets: u64, timeout: Duration, live: &'a Live) -> Requests<'a> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let all = Vec::with_capacity(expected.min(MOST) as usize);
        Requests { all, stays: Vec::new(), sockets, timeout_ns, young: 0, waiting: 0, live }
    }

    /// The row of the next request.
    pub fn next(&self) -> u64 {
        self.all.len() as u64
    }

    /// Whether an answer may still come in time.
    pub fn waits(&self) -> bool {
        self.waiting > 0
    }

    pub fn sent(&mut self, own_ns: u64, late_ns: u64) {
        self.all.push(Request { own_ns, late_ns, ..Request::default() });
        self.waiting += 1;
        self.live.sent();
    }

    pub fn not_sent(&mut self, own_ns: u64, late_ns: u64, errno: i32) {
        self.all.push(Request { own_ns, late_ns, errno, ..Request::default() });
        self.live.not_sent();
    }

    /// The kernel's stamp of a row, read at `now`.
    pub fn stamp(&mut self, row: u64, place: Place, ns: u64, now: u64) {
        let Some(request) = self.all.get_mut(row as usize) else { return };
        if ns < request.own_ns.saturating_sub(BEFORE_NS) || ns > now {
            return;
        }
        let time = match place {
            Place::Queue => &mut request.queue_ns,
            Place::Device => &mut request.device_ns,
        };
        if *time == 0 {
            *time = ns;
        }
    }

    /// An answer that came through `socket`; `stamp`: of the kernel, `now`: our own clock. The first answer counts: its row.
    pub fn answered(
        &mut self,
        which: Which,
        socket: u64,
        answer: PingAnswer,
        stamp: Option<u64>,
        now: u64,
    ) -> Option<usize> {
        let row = self.find(which, socket)?;
        let request = self.all.get_mut(row).filter(|request| request.is_open())?;
        let possible = request.own_ns.saturating_sub(BEFORE_NS)..=now;
        request.answered_ns = stamp.filter(|ns| possible.contains(ns)).unwrap_or(now);
        request.answer = Some(answer);
        self.waiting -= u64::from(!request.is_lost);
        if answer != PingAnswer::Unreachable {
            self.live.answered(request.answered_ns.saturating_sub(request.sent_ns()), request.is_lost);
        }
        Some(row)
    }

    /// What the target tells of the request of a row that has its answer.
    pub fn stayed(&mut self, row: usize, stay: Stay) {
        if row >= self.stays.len() {
            self.stays.resize(self.all.len().max(row.saturating_add(1)), None);
        }
        if let Some(place) = self.stays.get_mut(row) {
            *place = Some(stay);
        }
    }

    /// From leaving to arrival, by two clocks: only differences mean something.
    fn way(&self, row: usize) -> Option<i128> {
        let stay = self.stays.get(row).copied().flatten()?;
        let sent = self.all.get(row)?.sent_ns();
        Some(i128::from(stay.arrived) - i128::from(sent))
    }

    fn leg(&self, row: usize, least: Option<i128>) -> Option<Box<Leg>> {
        let stay = self.stays.get(row).copied().flatten()?;
        let there = self.way(row)?.saturating_sub(least?);
        let there_ns = u64::try_from(there).unwrap_or(u64::MAX);
        Some(Box::new(Leg { there_ns, stay_ns: stay.left.saturating_sub(stay.arrived) }))
    }

    /// Whether the last request of this row's port has its answer, or is lost. `ports` are used in turn.
    pub fn is_free(&self, row: u64, ports: u64) -> bool {
        let last = row.checked_sub(ports).and_then(|last| self.all.get(last as usize));
        last.is_none_or(|last| !last.is_open() || last.is_lost)
    }

    fn find(&self, which: Which, socket: u64) -> Option<usize> {
        let row = match which {
            Which::Row(row) => row,
            Which::Low(low) => {
                let last = self.next().checked_sub(1)?;
                last.checked_sub(u64::from((last as u16).wrapping_sub(low)))?
            }
            Which::OnlyOpen => self.only_open(socket)?,
        };
        (row % self.sockets == socket).then(|| usize::try_from(row).ok())?
    }

    /// If two are open, the answer may be to either. Older ones than the timeout are given up.
    fn only_open(&self, socket: u64) -> Option<u64> {
        let young = self.young as u64;
        let first = young + (socket + self.sockets - young % self.sockets) % self.sockets;
        let is_open = |row: &u64| self.all.get(*row as usize).is_some_and(Request::is_open);
        let mut open = (first..self.next()).step_by(self.sockets as usize).filter(is_open);
        open.next().filter(|_| open.next().is_none())
    }

    /// Counts what has no answer in time as lost, for the progress; an answer may still come.
    pub fn expire(&mut self, now: u64) {
        while let Some(request) = self.all.get_mut(self.young) {
            if now.saturating_sub(request.own_ns) < self.timeout_ns {
                break;
            }
            if request.is_open() {
                request.is_lost = true;
                self.waiting -= 1;
                self.live.lost();
            }
            self.young += 1;
        }
    }

    /// The rows, in times since `start_ns`; `port`: the source port of a row.
    pub fn rows(self, start_ns: u64, port: impl Fn(u64) -> u16) -> Vec<Ping> {
        let least = (0..self.stays.len()).filter_map(|row| self.way(row)).min();
        let row = |(row, request): (usize, &Request)| {
            let answered = request.answer.map(|_| request.answered_ns);
            // Stamps of CPUs with clocks that differ a little may be out of order.
            let sent = request.sent_ns().min(answered.unwrap_or(u64::MAX));
            Ping {
                sent_ns: sent.saturating_sub(start_ns),
                late_ns: request.late_ns,
                answered_ns: answered.map(|ns| ns.saturating_sub(start_ns)),
                answer: request.answer.map(|answer| answer.word().to_owned()).unwrap_or_default(),
                port: port(row as u64),
                error: (request.errno != 0).then(|| super::errno::name(request.errno)),
                leg: self.leg(row, least),
            }
        };
        self.all.iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
