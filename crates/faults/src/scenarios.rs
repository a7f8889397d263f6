//! The six faults, one file each: the load, the fault, its twin and its false-positive control.

pub mod blkio_throttle;
pub mod cpu_pinned;
pub mod cpu_quota;
pub mod listen_overflow;
pub mod memory_limit;
pub mod swap_in;
mod tree;
