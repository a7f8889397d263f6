//! Threads that burn CPU to wait: they spin, which shows in their code and in what their system calls return.
//!
//! | sign | what |
//! |---|---|
//! | loop | the innermost loop around a thread's samples only waits (`purpose.rs`) |
//! | yields | sched_yield so often that no other task gains by it (`calls.rs`) |
//! | empty calls | one system call that again and again returns nothing (`calls.rs`) |
//! | clock | nothing but reads of a clock (`calls.rs`) |

mod arm64;
mod calls;
mod loops;
mod places;
mod process;
mod purpose;
mod runtime;
mod spun;
mod step;
#[cfg(test)]
mod tests;
mod words;
mod x86;

pub(crate) use process::SQ_THREAD;
pub(crate) use process::spinning;
pub use process::{Process, Sum, Thread, processes};
pub use purpose::Purpose;
pub use runtime::{Hints, Runtime, runtime};
pub use spun::Spun;
pub use words::{folded, place};
