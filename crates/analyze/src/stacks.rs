//! Stacks and system calls: what tasks did on a CPU, in which call, and the pictures of it.

pub mod calls;
pub mod doing;
pub mod flame;
pub mod syscalls;

/// A frame of a program: its function, or of a stripped one the file (`redis+0x1628f1 (build id 01ab)`) without the place in it.
#[must_use]
pub fn named_or_file(frame: &str) -> &str {
    let file = frame.split_once("+0x").filter(|(_, at)| at.contains(" (build id ")).map(|(file, _)| file);
    file.unwrap_or(frame)
}

/// The function of a frame: without "+0x1f/0x80", " [module]" and what compilers add (".isra.0", ".constprop.0").
#[must_use]
pub fn symbol(frame: &str) -> &str {
    let end = frame.find(['+', ' ', '.', '[']).unwrap_or(frame.len());
    frame.get(..end).unwrap_or(frame)
}
