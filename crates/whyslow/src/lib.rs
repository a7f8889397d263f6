//! The program: its verbs, and the store of recordings.

pub mod cli;
pub mod cmd;
mod flame;
mod interrupt;
mod launch;
mod out;
pub mod outcome;
mod progress;
pub mod redact;
pub mod store;
mod suggest;
mod target;
mod watch;
mod watchdog;
