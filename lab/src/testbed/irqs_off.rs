//! A kernel thread, or a timer's function, that keeps interrupts off on one CPU again and again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;

use crate::guest::module::{Fault, Interrupter};
use crate::testbed::TestBed;
use crate::testbed::cpu_fault::Hindered;
use crate::testbed::part::{Part, Setting};

/// One CPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    cpu: u32,
    /// For this long each time.
    for_us: u64,
    /// Interval from start to start.
    every_us: u64,
    /// The kernel thread that does it; `None`: a timer.
    #[serde(default)]
    by: Option<String>,
    /// The same work without the fault.
    #[serde(default)]
    twin: bool,
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let fault = Fault::IrqsOff {
            cpu: self.cpu,
            lasts: Duration::from_micros(self.for_us),
            every: Duration::from_micros(self.every_us),
            by: self.by.clone().map_or(Interrupter::Timer, Interrupter::Thread),
        };
        let work = Work::Paced { burst_us: 300, every_us: 5_000 };
        let mut hindered = Hindered::on(testbed, draw, &[self.cpu], work, fault)?.or_twin(self.twin);
        hindered.name("by", self.by.as_deref().unwrap_or("sort_batch"));
        Ok(Box::new(hindered))
    }
}
