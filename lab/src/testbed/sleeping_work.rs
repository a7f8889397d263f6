//! A work item of the kernel that sleeps, and processes that wait until it is done.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::rounds::Trouble;

use crate::guest::module::{Act, Fault, WORKS};
use crate::testbed::TestBed;
use crate::testbed::part::{Part, Setting};
use crate::testbed::read_fault::Made;
use crate::testbed::readers::Readers;

/// One work item.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Time of each run.
    for_us: u64,
    /// It stays on a CPU meanwhile; otherwise it sleeps.
    #[serde(default)]
    spins: bool,
    /// How the processes wait: for the item itself, or for a completion that it signals.
    #[serde(default)]
    how: How,
    victims: Readers,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum How {
    #[default]
    Flush,
    Await,
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let folio = testbed.folio.loaded(draw)?;
        let work = draw.pick(&WORKS).to_owned();
        let file = draw.word(6);
        let act = match self.how {
            How::Flush => Act::Flush(work.clone()),
            How::Await => Act::Await(work.clone()),
        };
        let standing = Fault::File { name: file.clone(), act };
        let lasts = Duration::from_micros(self.for_us);
        let slow = Fault::Work { work: work.clone(), lasts, spins: self.spins, label: draw.word(6) };
        let mut made = Made::new(folio, vec![standing], vec![slow])?;
        made.name("work", &work);
        made.read_by(&self.victims, testbed, &file, draw)?;
        Ok(Box::new(made))
    }
}
