//! A command of the user's: started so that it waits until it is watched, and as if we were not there.

pub mod inherited;
mod signals;
mod start;
mod user;

pub use signals::Signals;
pub use start::{End, OUR_FAILURE, Started};
pub use user::{Asked, User, whose};
