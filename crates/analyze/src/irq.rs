//! Interrupts: which CPUs take theirs late and why, and what keeps a CPU from being preempted.

pub(crate) mod latency;
pub(crate) mod unpreempted;
