//! A group above its memory.high: the kernel makes every task that charges more memory sleep. Nothing is swapped and no page comes back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whyslow_faults::cgroup::Group;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Span, Truth, Victim};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting, group_and_victim};

/// The victims do at most one part in 1.4 of their work. In the twin at least that.
const LEAST_RATIO: f64 = 1.4;
/// The share that whyslow itself and a noisy host take from a victim, which is not caused by the fault.
const EXACT: f64 = 0.15;

/// A limit that slows tasks down.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Processes that allocate memory and free it ...
    processes: u64,
    /// ... this much each at a time ...
    mib: u64,
    /// ... and rest this long.
    rest_us: u64,
    /// The group's memory.high.
    high_mib: u64,
    /// The limit is one that they never reach.
    #[serde(default)]
    twin: bool,
}

struct Held {
    victim: Victim,
    group: Group,
    spec: Spec,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let group = testbed.fence.group(&draw.word(6))?;
        let work = Work::Churn { bytes: self.mib << 20, rest_us: self.rest_us };
        let mut spec = testbed.fence.spec(&group, &draw.word(7), self.processes, work);
        // Threads of one process would wait for each other's page tables.
        spec.apart = true;
        let victim = Victim::spawn(spec)?;
        victim.go();
        Ok(Box::new(Held { victim, group, spec: self.clone() }))
    }
}

impl Part for Held {
    fn impose(&mut self) -> Result<(), Trouble> {
        Ok(self.group.set_memory_high(Some(self.spec.high_mib << 20))?)
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.group.set_memory_high(None)?;
        Ok(self.victim.until_it_moves()?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        group_and_victim(&self.group, &self.victim)
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let truth = Truth::reported_by(self.victim.ledger(), window, without);
        let Spec { processes, mib, high_mib, twin, .. } = self.spec;
        let what = format!(
            "{processes} processes get {mib} MiB and give it back, below {high_mib} MiB; times a second"
        );
        let make = if twin { Proof::stays } else { Proof::falls };
        let proof = make(what, truth.rate_with, truth.rate_without, LEAST_RATIO);
        let (lost, slack) = (truth.lost_s(), EXACT * truth.tasks as f64 * truth.window_s);
        Ok(Facts { proof, lost_s: Some(((lost - slack).max(0.0), lost + slack)), names: self.names() })
    }
}
