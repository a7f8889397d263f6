//! Packets wait because a kernel thread of the fault module keeps bottom halves off on their CPU: interrupts come, and the softirqs that they
//! raise do not begin.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

use super::actor::Actor;
use super::named;
use super::packets::{self, Least};
use super::stall::{Pinger, far_end, pinger};
use crate::guest::module::{Fault, Interrupter};
use crate::testbed::TestBed;
use crate::testbed::fault_module::Loaded;
use crate::testbed::part::{Facts, Part, Setting};

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Name of the kernel thread.
    by: String,
    /// It keeps bottom halves off for so long ...
    for_ms: u64,
    /// ... at this interval.
    every_ms: u64,
    cpu: usize,
    /// Packets come so often: a stall is seen from its first packet on.
    packet_every_ms: u64,
    /// The same packets without the fault.
    #[serde(default)]
    twin: bool,
}

struct BottomHalves {
    spec: Spec,
    fault: Fault,
    folio: Rc<Loaded>,
    pinger: Pinger,
    _far: Actor,
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let other = host::cpus().into_iter().find(|one| *one != self.cpu).ok_or("this wants two CPUs")?;
        let folio = testbed.folio.loaded(draw)?;
        let far = far_end(draw, self.cpu)?;
        let pinger = pinger(&far, other, self.packet_every_ms, draw)?;
        let fault = Fault::IrqsOff {
            cpu: u32::try_from(self.cpu)?,
            lasts: Duration::from_millis(self.for_ms),
            every: Duration::from_millis(self.every_ms),
            by: Interrupter::BottomHalves(self.by.clone()),
        };
        Ok(Box::new(BottomHalves { spec: self.clone(), fault, folio, pinger, _far: far.0 }))
    }
}

impl Part for BottomHalves {
    fn impose(&mut self) -> Result<(), Trouble> {
        if self.spec.twin { Ok(()) } else { Ok(self.folio.module.make(&self.fault)?) }
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        if !self.spec.twin {
            self.folio.module.end(&self.fault)?;
        }
        Ok(self.pinger.actor.until_noted(clock::now(), Duration::from_secs(60))?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        let function = self.fault.function().to_owned();
        let spec = &self.spec;
        let mut names =
            named([("by", spec.by.clone()), ("cpu", spec.cpu.to_string()), ("function", function)]);
        names.extend(named(self.pinger.names()));
        names
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let spec = &self.spec;
        packets::waited(&self.pinger, spec.every_ms, window, without, Least::of(spec.twin), self.names())
    }
}
