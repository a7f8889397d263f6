//! Capabilities that a system call shows.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libbpf_rs::libbpf_sys;

use super::Capability;

/// A descriptor that a call returned, closed at once.
fn close(fd: libc::c_long, what: &str) -> Result<(), String> {
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(format!("cannot open {what}: {}", io::Error::last_os_error()));
    }
    // SAFETY: the call just made the descriptor, and it has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Whether a cpu-clock event can be opened on CPU 0. It is never enabled.
pub(super) fn cpu_clock() -> Result<(), String> {
    const PERF_TYPE_SOFTWARE: u64 = 1;
    const ATTR_SIZE_VER0: u64 = 64;
    const DISABLED: u64 = 1;
    // struct perf_event_attr, VER0: type and size, config (0: cpu-clock), period, sample_type, read_format, flags ...
    let attr: [u64; 8] = [PERF_TYPE_SOFTWARE | ATTR_SIZE_VER0 << 32, 0, 1_000_000, 0, 0, DISABLED, 0, 0];
    // SAFETY: attr is 64 readable bytes, as its size field says; the other arguments are numbers.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), -1, 0, -1, 0) };
    close(fd, "a cpu-clock event")
}

/// Whether BPF statistics can be switched on. They are switched off at once.
pub(super) fn bpf_stats() -> Result<(), String> {
    // SAFETY: takes a number, returns a descriptor or -1.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    close(fd.into(), "BPF statistics")
}

/// include/uapi/linux/magic.h
const CGROUP2: u64 = 0x6367_7270;
const TMPFS: u64 = 0x0102_1994;

fn filesystem(at: &Path) -> io::Result<u64> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    // SAFETY: statfs is plain numbers: all zeroes is a value of it.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: path ends with NUL, found is writable, both outlive the call.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.f_type as u64)
}

/// Which cgroup hierarchies are mounted, by the type of the file systems; /proc/cgroups would take cgroup_mutex.
pub(super) fn cgroups(mount: &Path) -> Capability {
    let unified = filesystem(&mount.join("unified")).is_ok_and(|kind| kind == CGROUP2);
    let found = match filesystem(mount) {
        Ok(CGROUP2) => Ok("version 2".to_owned()),
        Ok(TMPFS) if unified => Ok("hybrid: version 1 controllers, version 2 without".to_owned()),
        Ok(TMPFS) => Ok("version 1".to_owned()),
        Ok(_) => Err(format!("no cgroup file system at {}", mount.display())),
        Err(err) => Err(format!("cannot open {}: {err}", mount.display())),
    };
    Capability::new(
        "cgroup hierarchies",
        "limits of services; their tasks and quotas still come from BPF",
        found,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_cgroups_says_so() {
        assert!(!cgroups(Path::new("/proc")).ok);
        assert!(!cgroups(Path::new("/nonexistent")).ok);
    }
}
