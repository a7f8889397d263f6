//! Interrupts: which CPUs take theirs late and why, and who keeps a CPU from being given away.

pub(crate) mod latency;
pub(crate) mod unpreempted;
