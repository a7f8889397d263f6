//! The nouns of whyslow: what the other crates speak about. No I/O, no clock.

#![forbid(unsafe_code)]

pub mod blocked;
pub mod cgroup_path;
pub mod chain;
pub mod churn;
mod cpu_list;
mod document;
mod failed;
mod finding;
mod group;
mod io_file;
pub mod job;
mod latency;
mod missing;
pub mod napi;
mod pattern;
pub mod ping;
mod probe;
mod recording;
pub mod resource;
pub mod shell;
pub mod speed;
pub mod spin;
pub mod stall;
pub mod stat_read;
pub mod syscall;
pub mod table;
pub mod task;
pub mod timeline;
mod units;
pub mod wait;
mod words;
pub mod work;

pub use cpu_list::CpuList;
pub use document::{
    About, Account, CgroupShare, Contradiction, CpuAccount, Document, OwnCost, SCHEMA, StateShare,
};
pub use finding::{
    Check, Culprit, Finding, Fix, Hop, Kind, PACKET_STALLS, RuledOut, SLOW_CPU, Subject, SubjectKind,
};
pub use missing::{Missing, MissingNote};
pub use probe::Probe;
pub use recording::{FORMAT, FileSnapshot, Meta, Recording};
pub use units::{Bytes, Share, counted, seconds, times};
