//! A guest that runs out of free memory: one process keeps most of it, another reads a file through the rest, and processes that allocate
//! and free memory must reclaim it themselves (direct reclaim).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use whyslow_faults::cgroup::Group;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Span, Truth, Victim, host};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting, group_and_victim};

/// The victims do at most one part in 1.4 of their work.
const LEAST_RATIO: f64 = 1.4;
/// The process that keeps memory touches one page of it at this interval, and does nothing else.
const LOOK_US: u64 = 500_000;
/// Size of the reader's blocks.
const BLOCK: u64 = 256 << 10;

/// Memory pressure.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Processes that allocate memory and free it ...
    threads: u64,
    /// ... this much each at a time ...
    mib: u64,
    /// ... and rest this long.
    rest_us: u64,
    /// Memory that no process keeps.
    left_mib: u64,
    /// Size of the file that is read through it; larger than that memory.
    file_mib: u64,
}

struct Wanting {
    // Ended before the victim: while memory is short no process ends in time.
    eaters: Vec<Victim>,
    victim: Victim,
    group: Group,
    spec: Spec,
    eat: Box<dyn Fn(Work, u64) -> Result<Victim, Trouble>>,
    file: PathBuf,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        if !testbed.is_guest() {
            return Err("no host is run out of memory".into());
        }
        // The fence's limit would be reached before the guest's memory is used up: that is another fault.
        testbed.fence.top().set_memory_limit(None)?;
        let file = testbed.dir.join(draw.word(8));
        host::make_file(&file, self.file_mib << 20)?;
        let group = testbed.fence.group(&draw.word(6))?;
        let work = Work::Churn { bytes: self.mib << 20, rest_us: self.rest_us };
        let mut spec = testbed.fence.spec(&group, &draw.word(7), self.threads, work);
        // Threads of one process would wait for each other, because one maps while others touch pages: on emulated CPUs their rate falls to
        // a tenth for seconds at a time, even with much free memory.
        spec.apart = true;
        let victim = Victim::spawn(spec)?;
        victim.go();
        let others = testbed.fence.group(&draw.word(6))?;
        let base = testbed.fence.spec(&others, &draw.word(7), 1, Work::Spin { burst_us: 1, rest_us: 1 });
        let eat = move |work, threads: u64| {
            let mut spec = base.clone();
            (spec.work, spec.threads) = (work, threads as usize);
            let eater = Victim::spawn(spec)?;
            eater.go();
            Ok(eater)
        };
        Ok(Box::new(Wanting {
            eaters: Vec::new(),
            victim,
            group,
            spec: self.clone(),
            eat: Box::new(eat),
            file,
        }))
    }
}

impl Part for Wanting {
    fn impose(&mut self) -> Result<(), Trouble> {
        let cold = host::available_memory()?.saturating_sub(self.spec.left_mib << 20);
        let keep = Work::Hoard { hot: 4096, cold, more: 0, burst_us: 0, every_us: LOOK_US };
        self.eaters.push((self.eat)(keep, 1)?);
        let read = Work::Reread { file: self.file.clone(), block: BLOCK, random: false, burst_us: 0 };
        self.eaters.push((self.eat)(read, 1)?);
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.eaters.clear();
        Ok(self.victim.until_it_moves()?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        group_and_victim(&self.group, &self.victim)
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let truth = Truth::reported_by(self.victim.ledger(), window, without);
        let what = format!(
            "{} processes get {} MiB and give it back; times a second",
            self.spec.threads, self.spec.mib
        );
        let proof = Proof::falls(what, truth.rate_with, truth.rate_without, LEAST_RATIO);
        Ok(Facts { proof, lost_s: None, names: self.names() })
    }
}
