//! Spinners and honest loops that no detector was tuned on: for the first run after the thresholds are frozen.

mod goroutines;
mod loops;
mod waits;

pub use loops::Loop;
pub use waits::UnseenWait;

pub(super) use goroutines::build as build_go;
