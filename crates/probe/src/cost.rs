//! What the observation cost: CPU time and memory of this process and of its children.

use std::time::Duration;

/// CPU time and peak memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// User and system time, with that of children that ended.
    pub cpu: Duration,
    /// Peak resident memory since the exec; 0: not known.
    pub rss_bytes: u64,
}

/// CPU time since this process began; it survives exec, so callers take differences.
#[must_use]
pub fn so_far() -> Cost {
    let own = usage(libc::RUSAGE_SELF);
    let children = usage(libc::RUSAGE_CHILDREN);
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Cost {
        cpu: time(own.ru_utime) + time(own.ru_stime) + time(children.ru_utime) + time(children.ru_stime),
        rss_bytes: peak(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()).unwrap_or(0),
    }
}

/// From /proc/PID/status, not from getrusage(2): `ru_maxrss` is the greatest peak of all programs that the process ever ran, also of its
/// caller before the exec (fs/exec.c, exec_mmap: setmax_mm_hiwater_rss).
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: rusage is plain numbers, for which zero is a value; the kernel fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn peak_memory_is_nonzero_and_cpu_time_never_falls() {
        let first = super::so_far();
        assert!(first.rss_bytes > 100_000);
        assert!(super::so_far().cpu >= first.cpu);
    }

    #[test]
    fn the_peak_is_that_of_this_program() {
        assert_eq!(
            super::peak("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t    5120 kB\nVmRSS:\t 1 kB\n"),
            Some(5 << 20)
        );
        for other in ["", "VmHWM:", "VmHWM: 5 MB", "VmHWM: -5 kB", "VmHWM: 18446744073709551615 kB"] {
            assert_eq!(super::peak(other), None, "{other:?}");
        }
    }
}
