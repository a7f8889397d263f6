//! Faults that averages hide: a few full threads among many sleeping ones, and tasks in uninterruptible sleep.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use whyslow_faults::cgroup::Group;
use whyslow_faults::ledger::Word;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Span, Victim, truth};

use super::loads;
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// A full thread does ten times the work of one that rests; other tasks use emulated CPUs, too.
const LEAST_RATIO: f64 = 2.0;
/// Starting children costs time: tasks that are otherwise in D state all the time do this part of their possible work.
const MOST_OF_IT: f64 = 0.5;
const ON_REAL_CPUS: f64 = 0.75;
/// The mode of healthy victims.
const HEALTHY: u64 = 0;
const COMPUTES: u64 = 2;

/// A process with a few full threads.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    /// Name of its threads.
    pub comm: String,
    /// Number of full threads.
    pub full: u64,
    /// Number of all threads.
    pub of: u64,
    /// Each of the others wakes up once in this time.
    pub idle_ms: u64,
    /// The same threads, none full.
    #[serde(default)]
    pub twin: bool,
}

/// Processes that wait for their children in uninterruptible sleep.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiters {
    /// Name of the processes.
    pub comm: String,
    /// How many.
    pub tasks: u64,
    /// How long each child lives.
    pub child_ms: u64,
    /// The same processes in ordinary sleep.
    #[serde(default)]
    pub twin: bool,
    /// The children compute: that is their parents' own work.
    #[serde(default)]
    pub computes: bool,
}

struct Running {
    victim: Victim,
    group: Group,
    names: BTreeMap<String, String>,
    mode: u64,
    what: String,
    /// Pieces of work a second that prove the fault; `None`: as many times the usual rate.
    least: Option<f64>,
    /// How long each piece of work keeps a task waiting.
    piece_s: f64,
}

impl Setting for Threads {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let group = testbed.fence.group(&draw.word(6))?;
        let work = Work::Few { tasks: self.of.saturating_sub(self.full), idle_us: self.idle_ms * 1000 };
        let victim = Victim::spawn(testbed.fence.spec(&group, &self.comm, self.full, work))?;
        victim.go();
        let names = loads::names(&group, victim.comm(), victim.pid());
        let what = format!("pieces of work a second of {} threads", self.full);
        Ok(Box::new(Running {
            victim,
            group,
            names,
            mode: u64::from(!self.twin),
            what,
            least: None,
            piece_s: 0.0,
        }))
    }
}

impl Setting for Waiters {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let group = testbed.fence.group(&draw.word(6))?;
        let work = Work::Vfork { child_us: self.child_ms * 1000 };
        let mut spec = testbed.fence.spec(&group, &self.comm, self.tasks, work);
        spec.apart = true;
        let victim = Victim::spawn(spec)?;
        victim.go();
        let names = loads::names(&group, victim.comm(), victim.pid());
        let most_of_it = if testbed.is_guest() { MOST_OF_IT } else { ON_REAL_CPUS };
        let least = self.tasks as f64 * 1000.0 / self.child_ms.max(1) as f64 * most_of_it;
        let what = format!("children a second of {} processes", self.tasks);
        let mode = if self.computes { COMPUTES } else { u64::from(!self.twin) };
        let piece_s = self.child_ms as f64 / 1000.0;
        Ok(Box::new(Running { victim, group, names, mode, what, least: Some(least), piece_s }))
    }
}

impl Running {
    fn set_mode(&self, mode: u64) {
        self.victim.ledger().word(Word::Mode).store(mode, Ordering::Release);
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.set_mode(self.mode);
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.set_mode(HEALTHY);
        Ok(())
    }

    fn names(&self) -> BTreeMap<String, String> {
        self.names.clone()
    }

    fn groups(&self) -> Vec<&Group> {
        vec![&self.group]
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let ledger = self.victim.ledger();
        let [with, outside] = [ledger.rate(window), truth::median_rate(ledger, without)];
        let proof = match (self.mode == HEALTHY, self.least) {
            (true, None) => Proof::stays(&*self.what, with, outside, LEAST_RATIO),
            (true, Some(least)) => Proof::falls(&*self.what, with, least, LEAST_RATIO),
            (false, None) => Proof::rises(&*self.what, with, outside, LEAST_RATIO),
            (false, Some(least)) => Proof::rises(&*self.what, with, least, 1.0),
        };
        let waited = with * self.piece_s * window.length().as_secs_f64();
        let lost_s = (self.piece_s > 0.0).then_some((waited, waited));
        Ok(Facts { proof, lost_s, names: self.names() })
    }
}
