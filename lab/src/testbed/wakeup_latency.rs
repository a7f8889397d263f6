//! A CPU that wakes up slowly from an idle state.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;

use crate::guest::module::Fault;
use crate::testbed::TestBed;
use crate::testbed::cases::idle_states;
use crate::testbed::cpu_fault::Hindered;
use crate::testbed::part::{Part, Setting};

/// One CPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    cpu: u32,
    /// From this idle state on.
    from: u32,
    /// Time of a wake-up.
    for_us: u64,
    /// The same work without the fault.
    #[serde(default)]
    twin: bool,
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let lasts = Duration::from_micros(self.for_us);
        let fault = Fault::LateWake { cpus: vec![self.cpu], from: self.from, lasts };
        // The rest is half of the wake-up time, counted from the end of a piece: with ticks of a clock, a little more or less latency than
        // whole ticks would cost one tick more or less.
        let work = Work::Spin { burst_us: 200, rest_us: (self.for_us / 2).max(1_000) };
        let mut hindered = Hindered::on(testbed, draw, &[self.cpu], work, fault)?.or_twin(self.twin);
        hindered.name("state", &idle_states::from(self.cpu, self.from)?.join("|"));
        Ok(Box::new(hindered))
    }
}
