//! Busy processes that fill all CPUs.

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::honest::Crowd;
use whyslow_faults::rounds::Trouble;

use super::{GREEDY, Steady};
use crate::testbed::TestBed;
use crate::testbed::part::{Part, Setting};

/// A crowd.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// How many.
    tasks: usize,
    /// Their cgroup has this part of the default weight, as batch work has: 1 / n.
    #[serde(default = "whole")]
    part: u64,
}

fn whole() -> u64 {
    1
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let (victim, group) = Crowd::start(&testbed.fence, self.tasks, self.part, draw)?.into_parts();
        Ok(Box::new(Steady::start(victim, group, format!("bursts a second of {} tasks", self.tasks), GREEDY)))
    }
}
