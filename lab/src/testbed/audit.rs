//! A daemon that reads the kernel's audit records, too slowly: tasks whose calls are recorded wait until there is room.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use whyslow_faults::ledger::Word;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Span, Victim};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};
use crate::testbed::readers;

/// Emulated CPUs share the host's CPUs with other processes: a call counts as waiting only if it takes more than so many times as long.
const NO_LOSS: f64 = 3.0;

/// The reader, and the audited tasks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    reader: String,
    /// It sleeps this long after each record.
    sleep_us: u64,
    comm: String,
    threads: u64,
    rest_us: u64,
    /// It never sleeps.
    #[serde(default)]
    twin: bool,
}

struct Running {
    // Dropped first: these tasks end only while the reader reads.
    victim: Victim,
    reader: Victim,
    twin: bool,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let start = |comm: &str, threads: u64, work: Work, draw: &mut Draw| -> Result<Victim, Trouble> {
            let group = testbed.fence.group(&draw.word(6))?;
            let victim = Victim::spawn(testbed.fence.spec(&group, comm, threads, work))?;
            victim.go();
            Ok(victim)
        };
        let reader = start(&self.reader, 1, Work::ReadAudit { sleep_us: self.sleep_us }, draw)?;
        // The kernel audits only tasks that start later.
        let victim = start(&self.comm, self.threads, Work::Audited { rest_us: self.rest_us }, draw)?;
        Ok(Box::new(Running { victim, reader, twin: self.twin }))
    }
}

impl Running {
    fn sleeps(&self, sleeps: bool) {
        self.reader.ledger().word(Word::Mode).store(sleeps.into(), Ordering::Release);
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.sleeps(!self.twin);
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.sleeps(false);
        Ok(self.victim.until_it_moves()?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        let mut names = readers::names(&self.victim);
        names.insert("reader".to_owned(), self.reader.comm().to_owned());
        names
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let facts = readers::facts(&self.victim, window, without, self.names());
        if !self.twin {
            return Ok(facts);
        }
        let Proof { with, without, .. } = facts.proof;
        let proof = Proof::stays("calls that fit into a second", 1.0 / with, 1.0 / without, NO_LOSS);
        Ok(Facts { proof, ..facts })
    }
}
