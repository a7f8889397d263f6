//! The hands that look: BPF programs, kernel files, clocks. Nothing here changes the host, and nothing here judges.

pub mod bpf;
pub mod child;
mod cost;
pub mod files;
mod host;
mod probes;
pub mod doctor;
pub mod listeners;
mod record;
mod sample_table;
mod symbols;
mod task_table;

pub use doctor::{Rung, doctor};
pub use record::{Plan, record};

#[cfg(test)]
mod test_group;
