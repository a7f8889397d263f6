//! Real pathologies, made on purpose; the victim's own clock gives the truth. Never shipped.
//!
//! A [`Fence`] protects the host: one test at a time, in cgroups of its own, with limits and an end. A [`Scenario`] is one pathology (or
//! its healthy twin, or its false-positive control) with parameters from a [`Draw`]: its victims do countable work in processes of their
//! own and record when each piece was done ([`Ledger`]). [`Truth`] comes from that record alone, never from a file that whyslow reads.

pub mod cgroup;
pub mod clock;
pub mod draw;
pub mod expected;
pub mod fence;
pub mod grace;
pub mod honest;
pub mod host;
pub mod ledger;
pub mod leftovers;
pub mod lock_chain;
pub mod look;
pub mod process;
pub mod programs;
pub mod proven;
pub mod report_checks;
pub mod rounds;
pub mod scenario;
pub mod scenarios;
pub mod spec;
pub mod spinners;
pub mod stand_in;
pub mod story;
pub mod swap;
pub mod sys;
pub mod thresholds;
pub mod trial;
pub mod truth;
pub mod turns;
pub mod user_lock;
pub mod victim;
mod work;
pub mod wrong;

pub use clock::Span;
pub use draw::Draw;
pub use fence::Fence;
pub use ledger::Ledger;
pub use lock_chain::LockChain;
pub use scenario::{FaultKind, Form, Scenario};
pub use truth::Truth;
pub use victim::Victim;
pub use wrong::Wrong;
