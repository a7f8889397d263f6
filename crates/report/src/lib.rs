//! The mouth: functions from a document to bytes. One file an output. Nothing is computed here but layout.

#![forbid(unsafe_code)]

mod flame;
mod json;
mod page;
pub mod safe;
mod text;

pub use flame::{CannotDraw, flame};
pub use json::{json, json_line};
pub use page::paragraph;
pub use text::{blocked, chains, cpus, jobs, locks, pings, stalls, text, work};

/// How the text is to look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// With colours: for a terminal whose user did not set `NO_COLOR`.
    pub colour: bool,
    /// Everything: each question that could not be answered, each thing that was not seen, every cgroup, chain, lock
    /// and call.
    pub verbose: bool,
    /// Columns of the terminal; `None`: it is none, and a page has 80.
    pub columns: Option<u16>,
}
