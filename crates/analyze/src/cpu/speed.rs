//! What each CPU delivers: from loops of known length to who is slow, compared with what, and why.
//!
//! Two times are told of a loop. What its thread got of the wall clock, less its wait for the CPU, is what tasks get; the
//! fastest piece of a loop is what the core delivers when nothing interrupts it.

mod compare;
mod fixes;
mod group;
mod measure;
mod reasons;
mod rows;
mod victims;

pub(crate) use compare::{Against, CpuSpeeds, SLOW, Verdict};
pub(crate) use group::Group;
pub(crate) use measure::Measured;
#[cfg(test)]
pub(crate) use measure::tests as measured_tests;
pub(crate) use reasons::{Reason, Reasons, of_disks, reasons};
pub use rows::rows;
pub(crate) use victims::{Places, Victims, requester, victims};
