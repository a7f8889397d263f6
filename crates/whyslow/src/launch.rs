//! Starts the command of `whyslow run`. The command waits until whyslow follows it, and then runs as it would without whyslow.

pub mod inherited;
mod signals;
mod start;
mod user;

pub use signals::Signals;
pub use start::{End, OUR_FAILURE, Started};
pub use user::{User, UserOptions, whose};
