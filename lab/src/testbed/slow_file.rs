//! A file of /proc whose read sleeps in the kernel, or stays on a CPU there.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::rounds::Trouble;

use crate::guest::module::{Act, Fault};
use crate::testbed::TestBed;
use crate::testbed::part::{Part, Setting};
use crate::testbed::read_fault::Made;
use crate::testbed::readers::Readers;

/// Time of a healthy read.
const AT_ONCE: Duration = Duration::from_micros(1);

/// One file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Time of a read.
    for_us: u64,
    /// It stays on a CPU meanwhile; otherwise it sleeps.
    #[serde(default)]
    spins: bool,
    victims: Readers,
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let folio = testbed.folio.loaded(draw)?;
        let file = draw.word(6);
        let takes = |act| Fault::File { name: file.clone(), act };
        let lasts = Duration::from_micros(self.for_us);
        let slow = if self.spins { Act::Spin(lasts) } else { Act::Sleep(lasts) };
        let mut made = Made::new(folio, Vec::new(), vec![takes(slow)])?;
        made.instead_of(takes(Act::Spin(AT_ONCE)))?;
        made.read_by(&self.victims, testbed, &file, draw)?;
        Ok(Box::new(made))
    }
}
