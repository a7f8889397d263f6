//! Packets wait because a real-time thread has the CPU of the thread that polls their device (threaded NAPI). In the healthy form the receive
//! softirq handles the packets, and an interrupt stops the real-time thread; or that thread has another CPU, where a still more urgent one
//! sends the packets.
//!
//! Before v6.5 the softirq waits as well, once ksoftirqd is awake (kernel/softirq.c, ksoftirqd_running, removed by d15121be7485): many
//! datagrams keep that awake.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

use super::actor::{Act, Actor, Order, Pen};
use super::burst::{self, Burst};
use super::named;
use super::packets::{self, Least};
use super::stall::{FarEnd, Pinger, pinger};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Setting};

/// Above all tasks that are not real-time, below the pinger.
const PRIORITY: i32 = 10;

fn packet_every_ms() -> u64 {
    1
}

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Name of the real-time thread.
    by: String,
    /// It computes for so long ...
    for_ms: u64,
    /// ... at this interval.
    every_ms: u64,
    cpu: usize,
    /// The same load without the fault: the receive softirq handles the packets.
    #[serde(default)]
    twin: bool,
    /// The receive softirq handles the packets, with so many datagrams at each tick ...
    #[serde(default)]
    datagrams: u64,
    /// ... at this interval.
    #[serde(default)]
    datagrams_every_us: u64,
    /// Packets of the pinger come so often: a stall is seen from its first packet on.
    #[serde(default = "packet_every_ms")]
    packet_every_ms: u64,
    /// ... or the real-time thread has another CPU.
    #[serde(default)]
    elsewhere: bool,
}

/// Computes without a break at each tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hog {
    for_ms: u64,
    every_ms: u64,
}

struct Polling {
    spec: Spec,
    hog: Actor,
    pinger: Pinger,
    _sender: Option<Actor>,
    _far: Actor,
}

impl Setting for Spec {
    fn set(&self, _: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let other = host::cpus().into_iter().find(|one| *one != self.cpu).ok_or("this wants two CPUs")?;
        let device = draw.word(6);
        let act = Act::FarEnd(FarEnd {
            device: device.clone(),
            cpu: self.cpu,
            polled: !self.twin && self.datagrams == 0,
        });
        let far = (Order::new(&draw.word(7), act).apart().start()?, device);
        let pinger = pinger(&far, other, self.packet_every_ms, draw)?;
        let act = Act::Hog(Hog { for_ms: self.for_ms, every_ms: self.every_ms });
        let mut hog = Order::new(&self.by, act).on(if self.elsewhere { other } else { self.cpu });
        hog.real_time = Some(PRIORITY);
        let burst =
            Burst { to: pinger.target, count: self.datagrams, every_ns: self.datagrams_every_us * 1_000 };
        let sender = (self.datagrams > 0).then(|| burst::sender(burst, &pinger, draw)).transpose()?;
        let spec = self.clone();
        Ok(Box::new(Polling { spec, hog: hog.start()?, pinger, _sender: sender, _far: far.0 }))
    }
}

impl Hog {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        pen.at_each_tick(self.every_ms * 1_000_000, |pen| {
            let until = clock::now() + self.for_ms * 1_000_000;
            while pen.mode() != 0 && clock::now() < until {
                std::hint::spin_loop();
            }
            pen.did_one();
            Ok(())
        })
    }
}

impl Part for Polling {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.hog.set_mode(1);
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.hog.set_mode(0);
        Ok(self.pinger.actor.until_noted(clock::now(), Duration::from_secs(20))?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        let mut names = named([("by", self.spec.by.clone()), ("cpu", self.spec.cpu.to_string())]);
        names.extend(named(self.pinger.names()));
        names
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let is_healthy = self.spec.twin || self.spec.elsewhere;
        packets::waited(
            &self.pinger,
            self.spec.every_ms,
            window,
            without,
            Least::of(is_healthy),
            self.names(),
        )
    }
}
