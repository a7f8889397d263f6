//! Names of user code, also of processes that have ended when names are looked up.
//!
//! The sampler notes where code lies while it runs: file and offset (`user_places.bpf.h`). A child of ours opens each file when it
//! is first met, makes unwinding tables of the code that runs, and looks up names during the window; after the window only the last
//! requests are left. The child may hang on a dead disk, or grow: it is killed at its deadline, and its answers until then are kept.

mod ask;
mod child;
mod elf;
mod go;
mod kept;
#[cfg(test)]
mod live_tests;
mod open;
mod perf_map;
mod place;
mod python;
mod readable;
mod scan;
mod symbols_of;
mod unwind;

pub use ask::{Maps, Namer, UserNames};
pub use child::Budget;
pub use place::Place;
pub use python::Codes;
