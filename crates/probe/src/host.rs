//! Facts about the machine that a recording begins with.

use std::fs;
use std::os::fd::RawFd;
use std::path::Path;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use whyslow_model::{CpuList, Meta};

/// Now, in UTC, to the millisecond.
#[must_use]
pub fn now_rfc3339() -> String {
    let now = OffsetDateTime::now_utc();
    let to_the_ms = now.replace_nanosecond(now.nanosecond() / 1_000_000 * 1_000_000);
    to_the_ms.unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}

/// Name, kernel, CPUs and units of the host below `root`.
#[must_use]
pub fn facts(root: &Path) -> Meta {
    let line = |name: &str| fs::read_to_string(root.join(name)).ok().map(|text| text.trim().to_owned());
    Meta {
        host: line("proc/sys/kernel/hostname").unwrap_or_default(),
        boot_id: line("proc/sys/kernel/random/boot_id"),
        kernel: line("proc/sys/kernel/osrelease").unwrap_or_default(),
        cpus: online_cpus(root).len() as u32,
        // SAFETY: sysconf takes a number and returns one.
        clock_ticks: u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100),
        page_size: page_size(),
        // SAFETY: geteuid has no arguments and cannot fail.
        privileged: unsafe { libc::geteuid() } == 0,
        ..Meta::default()
    }
}

/// Size of a page in bytes.
#[must_use]
pub fn page_size() -> u64 {
    // SAFETY: sysconf takes a number and returns one.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Length of a tick of the kernel (a jiffy): the coarse clocks advance once a tick, and clock_getres reports its length.
#[must_use]
pub fn tick_ns() -> u64 {
    let mut step = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local; this clock always exists.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut step) };
    u64::try_from(step.tv_nsec).unwrap_or(0).max(1)
}

/// Online CPUs, as /sys lists them ("0-3,8").
#[must_use]
pub fn online_cpus(root: &Path) -> Vec<u32> {
    cpu_list(&root.join("sys/devices/system/cpu/online"))
}

/// The CPUs that a file lists ("0-3,8"); none if it cannot be read.
#[must_use]
pub fn cpu_list(file: &Path) -> Vec<u32> {
    // No kernel has as many (CONFIG_NR_CPUS is 8192 at most).
    const MOST: u32 = 65_536;
    let list = CpuList::parse(&fs::read_to_string(file).unwrap_or_default()).unwrap_or_default();
    list.below(MOST).collect()
}

/// CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns and of `Instant`. May be called in a signal's handler.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of this thread so far.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process so far. May be called in a signal's handler.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// The threads of these processes that live now; a process that is gone has none. A process with a pidfd is checked afterwards: if it
/// has ended, its number may belong to another process now, and its threads are left out.
#[must_use]
pub fn threads_of(pids: &[u32], pidfds: &[(u32, RawFd)]) -> Vec<u32> {
    let list = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<u32> = Vec::new();
    for pid in pids {
        let its: Vec<_> =
            list(pid).filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).collect();
        let ended = pidfds.iter().any(|(whose, pidfd)| whose == pid && has_ended(*pidfd));
        threads.extend(its.into_iter().filter(|_| !ended));
    }
    threads
}

/// A pidfd can be read when its process has ended.
fn has_ended(pidfd: RawFd) -> bool {
    let mut asked = libc::pollfd { fd: pidfd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one local pollfd; no time to wait.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_kernel_and_cpus() {
        let meta = facts(Path::new("/"));
        assert!(!meta.kernel.is_empty() && meta.cpus > 0 && meta.page_size >= 4096);
        assert!(now_rfc3339().ends_with('Z'));
    }

    #[test]
    fn threads_of_a_reused_pid_are_left_out() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        // SAFETY: our own child, not waited for.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) } as RawFd;
        let of = |pid| threads_of(&[pid], &[(pid, pidfd)]);
        assert_eq!(of(child.id()), [child.id()]);
        drop(child.stdin.take());
        child.wait().unwrap();
        // The same as if this process had got the number of the child.
        assert!(of(std::process::id()).is_empty());
        assert!(!threads_of(&[std::process::id()], &[]).is_empty());
        // SAFETY: ours alone.
        unsafe { libc::close(pidfd) };
    }

    #[test]
    fn a_host_without_files_has_no_cpus() {
        assert!(online_cpus(Path::new("/nonexistent")).is_empty());
    }
}
