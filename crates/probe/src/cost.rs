//! What looking cost: CPU time and memory of this process and the children it had.

use std::time::Duration;

/// CPU time and peak memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// User and system time, children that ended included.
    pub cpu: Duration,
    /// Peak resident memory.
    pub rss_bytes: u64,
}

/// Since this process began; CPU time survives exec, so callers take differences.
#[must_use]
pub fn so_far() -> Cost {
    let own = usage(libc::RUSAGE_SELF);
    let children = usage(libc::RUSAGE_CHILDREN);
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Cost {
        cpu: time(own.ru_utime) + time(own.ru_stime) + time(children.ru_utime) + time(children.ru_stime),
        rss_bytes: own.ru_maxrss as u64 * 1024, // KiB on Linux: getrusage(2)
    }
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
    fn what_it_costs_is_never_nothing_and_never_falls() {
        let first = super::so_far();
        assert!(first.rss_bytes > 100_000);
        assert!(super::so_far().cpu >= first.cpu);
    }
}
