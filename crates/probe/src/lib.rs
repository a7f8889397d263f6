//! The hands that look: BPF programs, kernel files, clocks. Nothing here changes the host, and nothing here judges.

pub mod bpf;
pub mod files;
mod record;

pub use record::{Plan, record};
