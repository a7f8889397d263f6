//! Where busy threads were met, with the code there: what tells waiting from working.
//!
//! Nothing is judged here. Rows hold the bytes of the code and what the registers showed, so that an old recording is
//! judged anew by a newer head.

use serde::{Deserialize, Serialize};

/// A block of user code of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spin {
    /// Process id.
    pub tgid: u32,
    /// Address of the first byte of `code`, counted from the lowest address that was met in this process: true
    /// addresses would tell how its memory is laid out.
    pub at: u64,
    /// The code, as hexadecimal digits; empty where it could not be read.
    pub code: String,
    /// Machine code of what: "x86_64", "aarch64".
    pub arch: String,
    /// The function, or the file and offset, of the address met most often; "" where it has no name.
    pub place: String,
    /// The file that the code is mapped from, where known.
    pub module: String,
    /// Threads that were sampled here.
    pub met: Vec<Met>,
}

/// One thread at one address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Met {
    /// Thread id.
    pub pid: u32,
    /// Address, in bytes from the start of the code: where it was met, or, if it was in the kernel, where it returns to.
    pub offset: u32,
    /// It was in the kernel: in this system call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
    /// Samples.
    pub count: u64,
    /// Samples with all general registers as in the thread's sample before.
    #[serde(skip_serializing_if = "is_none")]
    pub same: u64,
    /// Samples in which the result register of a system call was 0.
    #[serde(skip_serializing_if = "is_none")]
    pub zero: u64,
    /// Samples in which it was -EAGAIN.
    #[serde(skip_serializing_if = "is_none")]
    pub again: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}
