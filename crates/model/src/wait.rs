//! The vocabulary of waits: why a task waits or what it does, in which state, for what, who it is, and what is to be known
//! of a chain. One name for one thing, from the recording to JSON; sentences are made of them where reports are.

mod deed;
mod detail;
mod io_about;
mod mismatch;
mod named_by;
mod note;
mod operation;
mod port;
mod reason;
mod state;
mod thing;
mod who;

pub use deed::Deed;
pub use detail::Detail;
pub use io_about::IoAbout;
pub use mismatch::Mismatch;
pub use named_by::NamedBy;
pub use note::Note;
pub use operation::{Operation, PeerAct, Spin};
pub use reason::Reason;
pub use state::TaskState;
pub use thing::Thing;
pub use who::Who;
