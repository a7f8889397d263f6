//! A slow disk, in a guest. An emulated disk costs CPU time of the guest: a task that a limit throttles leaves this CPU time to other
//! tasks, so its clock does not show what tasks would do without the limit.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use whyslow_faults::rounds::Trouble;

use crate::guest_modules;

const DISK: &str = "/dev/nullb0";

/// Mount a disk of 1 GiB in memory at `dir`. Each request takes this long, however many there are at a time.
pub fn mount_at(dir: &Path, request_us: u64) -> Result<(), Trouble> {
    /// Requests are completed by a timer (NULL_IRQ_TIMER).
    const BY_TIMER: u32 = 2;
    let nanoseconds = request_us.saturating_mul(1000);
    let parameters =
        format!("nr_devices=1 gb=1 bs=4096 memory_backed=1 irqmode={BY_TIMER} completion_nsec={nanoseconds}");
    guest_modules::load_with("null_blk", &parameters).map_err(|trouble| trouble.to_string())?;
    let made = Command::new("mke2fs")
        .args([
            "-q",
            "-F",
            "-t",
            "ext4",
            "-O",
            "^has_journal",
            "-E",
            "lazy_itable_init=1,nodiscard",
            DISK,
            "256M",
        ])
        .stdin(Stdio::null())
        .output()?;
    if !made.status.success() {
        return Err(format!("cannot make a file system: {}", String::from_utf8_lossy(&made.stderr)).into());
    }
    let (disk, at) = (CString::new(DISK)?, CString::new(dir.as_os_str().as_bytes())?);
    // SAFETY: strings that end in zero and live until the call returns.
    let done = unsafe { libc::mount(disk.as_ptr(), at.as_ptr(), c"ext4".as_ptr(), 0, std::ptr::null()) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}
