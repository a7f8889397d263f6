//! Packets wait because a real-time thread has the CPU of the thread that polls their device (threaded NAPI). In the healthy form the receive
//! softirq handles the packets, and an interrupt stops the real-time thread; or that thread has another CPU, where a still more urgent one
//! sends the packets.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

use super::actor::{Act, Actor, Order, Pen};
use super::named;
use super::packets::{self, Least};
use super::stall::{FarEnd, Pinger, pinger};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Setting};

/// Above all tasks that are not real-time, below the pinger.
const PRIORITY: i32 = 10;

/// Packets of the pinger come so often: a stall is seen from its first packet on.
const PACKET_EVERY_MS: u64 = 1;

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
    _far: Actor,
}

impl Setting for Spec {
    fn set(&self, _: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let other = host::cpus().into_iter().find(|one| *one != self.cpu).ok_or("this wants two CPUs")?;
        let device = draw.word(6);
        let act = Act::FarEnd(FarEnd { device: device.clone(), cpu: self.cpu, polled: !self.twin });
        let far = (Order::new(&draw.word(7), act).apart().start()?, device);
        let pinger = pinger(&far, other, PACKET_EVERY_MS, draw)?;
        let act = Act::Hog(Hog { for_ms: self.for_ms, every_ms: self.every_ms });
        let mut hog = Order::new(&self.by, act).on(if self.elsewhere { other } else { self.cpu });
        hog.real_time = Some(PRIORITY);
        Ok(Box::new(Polling { spec: self.clone(), hog: hog.start()?, pinger, _far: far.0 }))
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
