//! Packets wait because an agent on their CPU reads a file that the kernel makes from a long list, in one piece: with interrupts off, or
//! with bottom halves off. Another task has that CPU directly before each read, and is innocent.
//!
//! In the healthy form the list is as long, and the agent reads the file beside it, which the kernel makes from a few numbers.

mod acts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

pub use acts::{Before, Glance, Hoard, List};

use super::actor::{Act, Actor, Order};
use super::packets::{self, Least};
use super::stall::{Pinger, far_end, pinger};
use super::{median, named};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Setting};

/// Packets of the pinger come so often: a stall is seen from its first packet on.
const PACKET_EVERY_MS: u64 = 1;
/// A read delays packets by so many times the shortest wait that whyslow lists: by 10 ms.
const LEAST: f64 = 2.0;
/// The innocent task has the CPU for so long: a part of a tick, so that most ticks meet the agent.
const BEFORE_US: u64 = 2000;
/// The agent is due so long after the innocent task's end: it runs there next, and does not take the CPU from it.
const BEHIND_US: u64 = 500;
/// The innocent task ended at most so long before the read: no tick of 4 ms lies between them as a rule.
const DIRECTLY_NS: u64 = 2_000_000;
/// Most reads begin directly behind it; a busy host delays some.
const MOST: f64 = 0.7;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The file that takes long.
    file: List,
    /// The agent's name.
    agent: String,
    /// The name of the task that has the CPU directly before each read.
    before: String,
    /// Interval of the reads.
    read_every_ms: u64,
    cpu: usize,
    /// The agent reads the file beside it.
    #[serde(default)]
    twin: bool,
}

struct Files {
    spec: Spec,
    file: PathBuf,
    pinger: Pinger,
    agent: Actor,
    before: Actor,
    _keeper: Actor,
    _far: Actor,
}

impl Setting for Spec {
    fn set(&self, _: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let available = host::available_memory()?;
        if available < self.file.memory() {
            let [needs, available] = [self.file.memory() >> 20, available >> 20];
            return Err(format!("the list wants {needs} MiB, {available} are there").into());
        }
        let other = host::cpus().into_iter().find(|one| *one != self.cpu).ok_or("this wants two CPUs")?;
        let far = far_end(draw, self.cpu)?;
        let pinger = pinger(&far, other, PACKET_EVERY_MS, draw)?;
        let hoard = Hoard { list: self.file, device: far.1.clone() };
        let mut keeper = Order::new(&draw.word(7), Act::Hoard(hoard)).on(other);
        keeper.network_of = Some(far.0.pid());
        let keeper = keeper.start()?;
        let [slow, quick] = self.file.paths(far.0.pid());
        if !slow.exists() {
            return Err(format!("this kernel has no {}", slow.display()).into());
        }
        let every_ns = self.read_every_ms.saturating_mul(1_000_000);
        let before = Act::Before(Before { every_ns, for_ns: BEFORE_US * 1000 });
        let before = Order::new(&self.before, before).on(self.cpu).start()?;
        let phase_ns = (BEFORE_US + BEHIND_US) * 1000;
        let glance = Glance { slow: slow.clone(), quick, every_ns, phase_ns };
        let agent = Order::new(&self.agent, Act::Glance(glance)).on(self.cpu).start()?;
        let spec = self.clone();
        Ok(Box::new(Files { spec, file: slow, pinger, agent, before, _keeper: keeper, _far: far.0 }))
    }
}

impl Files {
    /// The share of the reads that began directly behind a turn of the innocent task.
    fn followed(&self, window: Span) -> f64 {
        let ends: Vec<u64> = self.before.notes(window).into_iter().map(|(_, end)| end).collect();
        let is_behind = |began: u64| {
            let last = ends.iter().rev().find(|end| **end <= began);
            last.is_some_and(|end| began.saturating_sub(*end) < DIRECTLY_NS)
        };
        let reads = self.agent.notes(window);
        let behind = reads.iter().filter(|(began, _)| is_behind(*began)).count();
        behind as f64 / reads.len().max(1) as f64
    }
}

impl Part for Files {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.agent.set_mode(u64::from(!self.spec.twin));
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.agent.set_mode(0);
        Ok(self.pinger.actor.until_noted(clock::now(), Duration::from_secs(20))?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        let of = |path: &Path| path.display().to_string();
        let mut names = named([("file", of(&self.file)), ("cpu", self.spec.cpu.to_string())]);
        names.extend(named(self.pinger.names()));
        names
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let spec = &self.spec;
        let least = if spec.twin { Least::Healthy } else { Least::Slow(LEAST) };
        let every_ms = spec.read_every_ms;
        let mut facts = packets::waited(&self.pinger, every_ms, window, without, least, self.names())?;
        let followed = self.followed(window);
        let read = median(self.agent.notes(window).into_iter().map(|(_, ns)| ns as f64 / 1e9));
        facts.proof.what +=
            &format!(", read {read:.4} s, {followed:.2} of them directly behind the innocent task");
        facts.proof.holds &= followed >= MOST;
        Ok(facts)
    }
}
