//! A kernel lock that a kernel thread holds again and again, and processes that want it: reading a file acquires it.

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::rounds::Trouble;

use crate::guest::module::{Act, Fault, Grip, MUTEXES, Meanwhile, PERCPU_RWSEMS, RWSEMS};
use crate::testbed::TestBed;
use crate::testbed::part::{Part, Setting};
use crate::testbed::read_fault::Made;
use crate::testbed::readers::Readers;

use std::time::Duration;

/// One lock, or a chain of two.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    lock: Sort,
    /// The kernel thread that holds it.
    by: String,
    /// For this long each time.
    for_us: u64,
    /// Interval from start to start.
    every_us: u64,
    /// It stays on a CPU meanwhile; otherwise it sleeps.
    #[serde(default)]
    spins: bool,
    /// The holder waits for a second lock meanwhile, which this thread holds: this thread is the one that takes time.
    #[serde(default)]
    behind: Option<String>,
    victims: Readers,
}

/// The sort of lock, and whether it is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sort {
    Mutex,
    /// Held by a writer, wanted by writers.
    Rwsem,
    /// Held by a writer, wanted by readers.
    RwsemWantedByReaders,
    /// Held by a reader, wanted by writers.
    RwsemKeptByReader,
    /// Held by a writer, wanted by readers.
    PercpuRwsem,
}

impl Sort {
    /// All locks of its sort, whether it is held shared, and wanted shared.
    fn locks(self) -> (&'static [&'static str], bool, bool) {
        match self {
            Sort::Mutex => (&MUTEXES, false, false),
            Sort::Rwsem => (&RWSEMS, false, false),
            Sort::RwsemWantedByReaders => (&RWSEMS, false, true),
            Sort::RwsemKeptByReader => (&RWSEMS, true, false),
            Sort::PercpuRwsem => (&PERCPU_RWSEMS, false, true),
        }
    }
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let folio = testbed.folio.loaded(draw)?;
        let (locks, kept_shared, wanted_shared) = self.lock.locks();
        // The first is acquired before the second: it comes earlier in the order of locks.
        let at = draw.between(0, locks.len() as u64 - 2) as usize;
        let (first, second) = (locks[at], locks[at + 1]);
        let grip = |lock: &str, shared| Grip { lock: lock.to_owned(), shared };
        let file = draw.word(6);
        let wanted = Act::Take(grip(first, wanted_shared), Duration::ZERO);
        let standing = Fault::File { name: file.clone(), act: wanted };
        let (lasts, every) = (Duration::from_micros(self.for_us), Duration::from_micros(self.every_us));
        let does = if self.spins { Meanwhile::Spin } else { Meanwhile::Sleep };
        let held = |lock: &str, lasts, by: &str, meanwhile| Fault::Held {
            grip: grip(lock, kept_shared),
            lasts,
            every,
            by: by.to_owned(),
            meanwhile,
        };
        let faults = match &self.behind {
            None => vec![held(first, lasts, &self.by, does)],
            Some(behind) => vec![
                held(second, lasts, behind, does),
                held(first, Duration::ZERO, &self.by, Meanwhile::Take(grip(second, false))),
            ],
        };
        let mut made = Made::new(folio, vec![standing], faults)?;
        made.name("lock", first);
        made.name("second_lock", second);
        made.name("by", &self.by);
        made.name("behind", self.behind.as_deref().unwrap_or(&self.by));
        made.read_by(&self.victims, testbed, &file, draw)?;
        Ok(Box::new(made))
    }
}
