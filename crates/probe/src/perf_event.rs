//! Events of perf_event_open(2): counters and timers of one CPU.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _};

/// `struct perf_event_attr`, as far as the code here sets it (PERF_ATTR_SIZE_VER0, 64 bytes).
#[repr(C)]
#[derive(Default)]
pub struct Attr {
    /// `type`.
    pub kind: u32,
    /// Its size: set by `open`.
    pub size: u32,
    /// Which event of that type.
    pub config: u64,
    /// Events between two samples; with the flag `FREQ`, samples a second.
    pub sample_freq: u64,
    /// What a sample holds.
    pub sample_type: u64,
    /// What a read returns.
    pub read_format: u64,
    /// Bits of the attribute.
    pub flags: u64,
    /// Wake-ups of readers, breakpoints, more of the event: always zero here.
    pub rest: [u64; 2],
}

const SIZE: u32 = 64;

/// Open it on `cpu`, for all tasks that run there. `group`: the descriptor of the group's leader, or -1.
pub fn open(attr: Attr, cpu: u32, group: i32) -> io::Result<File> {
    const CLOEXEC: libc::c_ulong = 8;
    let attr = Attr { size: SIZE, ..attr };
    // SAFETY: the attribute outlives the call and says its own size; the other arguments are plain numbers.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, -1, cpu as i32, group, CLOEXEC) };
    match i32::try_from(fd) {
        // SAFETY: the kernel just made this descriptor for us; it has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Run a BPF program at each sample, until the event is closed. A link would do the same, but needs one more descriptor per CPU.
pub fn run(event: &File, program: BorrowedFd<'_>) -> io::Result<()> {
    const SET_BPF: libc::c_ulong = 0x4004_2408;
    const ENABLE: libc::c_ulong = 0x2400;
    // SAFETY: both take a number, and the descriptors are open.
    let set = unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF as _, program.as_raw_fd()) };
    // SAFETY: as above.
    if set < 0 || unsafe { libc::ioctl(event.as_raw_fd(), ENABLE as _, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
