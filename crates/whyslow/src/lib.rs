//! The program: its verbs, and the store of recordings.

pub mod cli;
pub mod cmd;
mod ending;
mod flame;
mod interrupt;
mod launch;
mod nearest;
mod out;
pub mod outcome;
mod progress;
pub mod redact;
pub mod store;
mod target;
mod watch;
