//! The fault module (lab/module) as types: its orders, and its own account of them.
//!
//! Its README has the protocol. All times go over the wire in microseconds, all counters come back in nanoseconds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

mod count;
mod fault;

pub use count::Count;
pub use fault::{Act, Fault, Grip, Interrupter, Meanwhile, When};

/// Its mutexes, in the order in which a holder may wait for the next one; the lock's symbol is its name.
pub const MUTEXES: [&str; 4] = ["atlas", "codex", "ledger", "quire"];
/// Its reader-writer semaphores; after the mutexes in that order.
pub const RWSEMS: [&str; 4] = ["annex", "foyer", "gable", "porch"];
/// Its per-CPU reader-writer semaphores; last in that order.
pub const PERCPU_RWSEMS: [&str; 2] = ["stove", "trough"];
/// Its work items; the item's function has the same name.
pub const WORKS: [&str; 4] = ["bind_pages", "merge_notes", "print_cards", "stamp_rows"];
/// The longest name of a kernel thread (TASK_COMM_LEN less the zero).
pub const THREAD_NAME: usize = 15;

/// The names under which the module is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Of the folder in /proc.
    pub folder: String,
    /// Of the control file in it.
    pub control: String,
}

impl Names {
    /// The parameters for insmod.
    pub fn parameters(&self) -> String {
        format!("dir={} control={}", self.folder, self.control)
    }
}

/// The loaded module.
#[derive(Debug, Clone)]
pub struct Module {
    folder: PathBuf,
    control: PathBuf,
}

impl Module {
    /// The module under the names with which it was loaded; `proc` is /proc.
    pub fn new(proc: &Path, names: &Names) -> Self {
        let folder = proc.join(&names.folder);
        Self { control: folder.join(&names.control), folder }
    }

    /// Path of the module's file with that name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the fault.
    pub fn make(&self, fault: &Fault) -> io::Result<()> {
        self.order(&fault.on())
    }

    /// Ends the fault.
    pub fn end(&self, fault: &Fault) -> io::Result<()> {
        self.order(&fault.off())
    }

    /// Opens a gate permanently: readers that wait there continue.
    pub fn open(&self, file: &str) -> io::Result<()> {
        self.order(&format!("file {file} open"))
    }

    /// Sets all counters to zero.
    pub fn reset(&self) -> io::Result<()> {
        self.order("reset")
    }

    /// Ends all faults.
    pub fn off(&self) -> io::Result<()> {
        self.order("off")
    }

    /// Its counters since each fault was made, or since `reset`.
    pub fn counts(&self) -> io::Result<Vec<Count>> {
        Ok(fs::read_to_string(&self.control)?.lines().filter_map(Count::parse).collect())
    }

    /// One line per write: an error belongs to that line.
    fn order(&self, line: &str) -> io::Result<()> {
        fs::write(&self.control, line)
            .map_err(|error| io::Error::new(error.kind(), format!("the module refused {line:?}: {error}")))
    }
}

#[cfg(test)]
mod tests;
