//! Many sleeping tasks, beside one that works at each tick of a clock.

use serde::{Deserialize, Serialize};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Victim};

use super::{PACED, Steady};
use crate::testbed::TestBed;
use crate::testbed::part::{Part, Setting};

/// Tasks beside the sleepers: whyslow, the test bed, its children.
const OTHERS: u64 = 512;

/// A herd.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Number of sleepers.
    tasks: u64,
    /// Each wakes up once in this time.
    idle_ms: u64,
    /// The working task computes for this long ...
    burst_us: u64,
    /// ... at this interval.
    every_us: u64,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        testbed.fence.top().set_pids_limit(self.tasks + OTHERS)?;
        let group = testbed.fence.group(&draw.word(6))?;
        let work = Work::Herd {
            tasks: self.tasks,
            idle_us: self.idle_ms * 1000,
            burst_us: self.burst_us,
            every_us: self.every_us,
        };
        let victim = Victim::spawn(testbed.fence.spec(&group, &draw.word(7), 1, work))?;
        let what = format!("beside {} sleepers; ticks in time a second", self.tasks);
        Ok(Box::new(Steady::start(victim, group, what, PACED)))
    }
}
