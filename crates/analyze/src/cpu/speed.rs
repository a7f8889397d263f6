//! What each CPU delivers, measured with loops of known length: which CPU is slow, compared with what, and why.
//!
//! Each loop gives two times. The wall-clock time that its thread needed, less the thread's wait for the CPU, is what tasks get; the
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
