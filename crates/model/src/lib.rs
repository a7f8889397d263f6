//! The nouns of whyslow: what the other crates speak about. No I/O, no clock.

#![forbid(unsafe_code)]

pub mod chain;
mod document;
mod finding;
mod missing;
mod recording;
pub mod spin;
pub mod table;
pub mod timeline;
mod units;

pub use document::{Account, CgroupShare, Document, OwnCost, SCHEMA, StateShare};
pub use finding::{Check, Culprit, Finding, Fix, Hop, Kind, Not, Subject, SubjectKind};
pub use missing::{Missing, MissingNote};
pub use recording::{FORMAT, Frame, Meta, Recording};
pub use units::{Bytes, Share, seconds};
