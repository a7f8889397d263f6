//! The lab: boots real kernels under emulation, puts real faults into them, and runs programs of this project there.

pub mod plan;
pub mod scenario;
pub mod stage;
