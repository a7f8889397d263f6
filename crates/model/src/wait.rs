//! The vocabulary of waits: reason, state, thing waited for, task, and remarks on a chain. One thing has one name, from the
//! recording to JSON; `report` makes sentences of these names.

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
mod target;
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
pub use target::WaitTarget;
pub use who::Who;
