//! Stacks and system calls: what tasks did on a CPU, in which call, and the pictures of it.

pub mod calls;
pub mod doing;
pub mod flame;
pub mod syscalls;

/// The function of a frame: without "+0x1f/0x80", " [module]" and what compilers add (".isra.0", ".constprop.0").
#[must_use]
pub fn symbol(frame: &str) -> &str {
    let end = frame.find(['+', ' ', '.', '[']).unwrap_or(frame.len());
    frame.get(..end).unwrap_or(frame)
}
