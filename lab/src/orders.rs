//! The driver's orders to PID 1 of the guest, and its answer: two files in the share.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The lab's own directory in a share.
pub const DIR: &str = ".lab";
/// In it: the orders.
pub const ORDERS: &str = "orders.json";
/// In it: the outcome.
pub const OUTCOME: &str = "outcome.json";
/// In it: the output of the console.
pub const CONSOLE: &str = "console";
/// Where the guest sees the share.
pub const SHARE: &str = "/mnt";
/// In the guest: the directory of the kernel's modules, as text.
pub const MODULES: &str = "/run/lab-modules";
/// PID 1 prints this, and its uptime, when the command begins.
pub const UP: &str = "lab: up ";
/// ... and this when the command has ended.
pub const END: &str = "lab: end ";

/// The orders for PID 1 of a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// The program and its arguments, as bytes: names of files need not be text.
    pub command: Vec<Vec<u8>>,
    /// Where it runs.
    pub directory: PathBuf,
    /// The guest's name.
    pub hostname: String,
    /// Directories of the host that must stay visible where memory is mounted over them.
    pub keep: Vec<PathBuf>,
    /// The directory with modules.dep.
    pub modules: PathBuf,
    /// This binary, as the kernel's module loader.
    pub lab: PathBuf,
    /// A module that mends the emulator.
    pub mend: Option<PathBuf>,
    /// Whether there is a scratch disk for /var/tmp.
    pub disk: bool,
    /// The old cgroup hierarchies instead of the unified one.
    pub cgroup_v1: bool,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its exit status, 128 + n for signal n.
    pub status: i32,
}
