//! The hands that look: BPF programs, kernel files, clocks. Nothing here changes the host, and nothing here judges.

pub mod bpf;
pub mod doctor;
mod record;

pub use doctor::{Rung, doctor};
pub use record::{Plan, record};
