//! Memory: what a limit costs the tasks below it, and the kernel's functions that show it.

pub(crate) mod limit;
pub(crate) mod loss;
pub(crate) mod stacks;
pub(crate) mod uses;
