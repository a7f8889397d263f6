//! A receiver whose queues stall, and a network with jitter and loss, for tests.

use whyslow_model::ping::{Ping, PingHow, Pinged};
use whyslow_model::{Meta, Recording};

pub(super) const MS: u64 = 1_000_000;
pub(super) const US: u64 = 1_000;

/// Numbers that a seed decides (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low + 1)
    }

    /// From 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An exponential time.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.share()).ln() * mean as f64) as u64
    }
}

#[derive(Debug, Clone)]
pub(super) struct Receiver {
    pub interval: u64,
    pub window: u64,
    pub ports: u16,
    pub queues: u16,
    /// The time of an answer without jitter.
    pub path: u64,
    /// Uniform, in each direction.
    pub jitter: u64,
    /// Exponential, at once for both directions.
    pub tail: u64,
    /// The time of a packet at the receiver.
    pub drain: u64,
    pub loss: f64,
    /// Queue, begin, end.
    pub stalls: Vec<(u16, u64, u64)>,
}

impl Receiver {
    pub fn every(interval: u64, window: u64) -> Self {
        let path = 100 * US;
        Receiver {
            interval,
            window,
            ports: 1,
            queues: 1,
            path,
            jitter: 0,
            tail: 0,
            drain: 5 * US,
            loss: 0.0,
            stalls: vec![],
        }
    }

    /// Stalls of drawn length between drawn pauses, all of queue 0.
    pub fn stalling(mut self, dice: &mut Dice, length: (u64, u64), pause: (u64, u64)) -> Self {
        let mut at = dice.between(pause.0, pause.1);
        loop {
            let end = at + dice.between(length.0, length.1);
            if end + 100 * MS > self.window {
                return self;
            }
            self.stalls.push((0, at, end));
            at = end + dice.between(pause.0, pause.1);
        }
    }

    pub fn stalled(&self) -> f64 {
        self.stalls.iter().map(|(_, from, to)| to - from).sum::<u64>() as f64 / self.window as f64
    }

    pub fn rows(&self, dice: &mut Dice) -> Vec<Ping> {
        let mut free = vec![0; usize::from(self.queues)];
        let mut rows = Vec::new();
        for number in 0..self.window / self.interval {
            let port = (number % u64::from(self.ports)) as u16;
            let queue = port % self.queues;
            let sent_ns = number * self.interval;
            let one_way = self.path / 2;
            let arrived = sent_ns + one_way + dice.between(0, self.jitter) + dice.exponential(self.tail);
            let mut row = Ping { sent_ns, port: 40_000 + port, ..Ping::default() };
            if dice.share() >= self.loss {
                let free = &mut free[usize::from(queue)];
                let begun = arrived.max(*free);
                let held =
                    self.stalls.iter().find(|(of, from, to)| *of == queue && (*from..*to).contains(&begun));
                *free = held.map_or(begun, |(_, _, to)| *to) + self.drain;
                row.answered_ns = Some(*free + one_way + dice.between(0, self.jitter));
                row.answer = "reply".to_owned();
            }
            rows.push(row);
        }
        rows
    }

    /// How many requests came into a stall `ns` or more before its end.
    pub fn held(&self, ns: u64) -> u64 {
        let arrives = |number: u64| {
            (number * self.interval + self.path / 2, number % u64::from(self.ports) % u64::from(self.queues))
        };
        let is_held = |number: &u64| {
            let (at, queue) = arrives(*number);
            self.stalls.iter().any(|(of, from, to)| u64::from(*of) == queue && *from <= at && at + ns <= *to)
        };
        (0..self.window / self.interval).filter(is_held).count() as u64
    }
}

/// A recording of these requests.
pub(super) fn recording(interval_ns: u64, window_ns: u64, rows: Vec<Ping>) -> Recording {
    let how = PingHow::Icmp.word().to_owned();
    let pinged = Pinged {
        target: "db".into(),
        address: "10.0.0.2".into(),
        how,
        interval_ns,
        timeout_ns: 1000 * MS,
        ..Pinged::default()
    };
    let mut rec = Recording {
        meta: Meta { window_ns, pinged: Some(pinged), ..Meta::default() },
        ..Recording::default()
    };
    rec.tables.pings = Some(rows);
    rec
}
