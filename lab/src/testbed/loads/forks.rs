//! Processes that fork, and wait for a child that ends at once.

use serde::{Deserialize, Serialize};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Victim};

use super::{GREEDY, Steady};
use crate::testbed::TestBed;
use crate::testbed::part::{Part, Setting};

/// A storm of forks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Processes that fork.
    parents: u64,
    /// CPU time of a child before it ends.
    #[serde(default)]
    burst_us: u64,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let group = testbed.fence.group(&draw.word(6))?;
        let comm = draw.word(7);
        let mut spec =
            testbed.fence.spec(&group, &comm, self.parents, Work::Fork { burst_us: self.burst_us });
        spec.apart = true;
        let what = format!("{} processes fork; children born and ended a second", self.parents);
        Ok(Box::new(Steady::start(Victim::spawn(spec)?, group, what, GREEDY)))
    }
}
