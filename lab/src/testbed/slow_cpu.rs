//! A CPU that does less work in its time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;

use crate::guest::module::{Fault, When};
use crate::testbed::TestBed;
use crate::testbed::cpu_fault::Hindered;
use crate::testbed::part::{Part, Setting};

/// Length of one turn of the burn.
const EVERY: Duration = Duration::from_millis(2);

/// One CPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    cpu: u32,
    /// Share of its time that is lost.
    percent: u32,
    /// The same work without the fault.
    #[serde(default)]
    twin: bool,
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let fault =
            Fault::SlowCpu { cpus: vec![self.cpu], percent: self.percent, every: EVERY, when: When::Always };
        let work = Work::Spin { burst_us: 500, rest_us: 0 };
        Ok(Box::new(Hindered::on(testbed, draw, &[self.cpu], work, fault)?.or_twin(self.twin)))
    }
}
