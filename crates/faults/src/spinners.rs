//! Programs that wait by spinning, and programs that work as hard and do useful work.
//!
//! The truth comes from the programs' own clocks: a spinner reads its threads' CPU clocks where its wait begins and ends, so the time that
//! it spent spinning is known to the microsecond, whatever else the host does ([`Account`]). Where a runtime spins inside itself (Erlang),
//! the same load is run without spinning, and the difference is the truth. Honest programs count their progress.

mod account;
mod loops;
mod meter;
mod openmp;
mod outside;
mod pairs;
mod plan;
mod programs;
mod running;
mod runtimes;
mod server;
mod tools;
pub mod unseen;
mod waits;

pub use account::{Account, Told};
pub use loops::Loop;
pub use meter::Meter;
pub use plan::{Plan, Shape};
pub use programs::{Program, Sbwt, Tool};
pub use running::Running;
pub use waits::SpinWait;

pub(crate) use loops::run as run_loop;
pub(crate) use pairs::{prepare, run};
pub(crate) use server::{Client, Listener, REQUEST, Requests, answer, ask, fetch, visit};
