//! System calls that std does not offer, each wrapped once, each with std's errors.

mod cpu_clock;
pub(crate) mod futex;
pub(crate) mod kernel;
pub(crate) mod netlink;
pub(crate) mod polls;
pub(crate) mod ring;
pub(crate) mod userfault;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

pub use cpu_clock::{ReadyClock, cpu_ns, cpu_ns_of, cpu_ns_of_process};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The path of a file as C wants it.
pub fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: ts is a valid place for the answer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// Sleep until a moment of CLOCK_MONOTONIC.
pub fn sleep_until(ns: u64) {
    let ts = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    // SAFETY: ts is valid, and with TIMER_ABSTIME nothing is written back. An early end only shortens the sleep.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &ts, std::ptr::null_mut());
    }
}

/// Sleep for so many microseconds.
pub fn sleep_us(us: u64) {
    sleep_until(monotonic_ns() + us * 1000);
}

/// Wait until a child has ended, for at most `limit`; does not reap it.
pub fn ends_within(pid: u32, limit: std::time::Duration) -> io::Result<bool> {
    let deadline = monotonic_ns().saturating_add(limit.as_nanos() as u64);
    // SAFETY: numbers only; the new descriptor is ours alone.
    let end = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::c_long, 0 as libc::c_long);
        OwnedFd::from_raw_fd(check(fd as libc::c_int)?)
    };
    loop {
        let left = deadline.saturating_sub(monotonic_ns()) / 1_000_000;
        let mut poll = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        match check(unsafe { libc::poll(&mut poll, 1, left.min(i32::MAX as u64) as libc::c_int) }) {
            Ok(ended) => return Ok(ended > 0),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
}

/// Reap a child that has ended: its exit status, and the CPU time of the child and of its own children.
pub fn reap(pid: u32) -> io::Result<(std::process::ExitStatus, std::time::Duration)> {
    let mut status = 0;
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    loop {
        // SAFETY: both places are valid for the answer.
        match check(unsafe { libc::wait4(pid as libc::pid_t, &mut status, 0, &mut usage) }) {
            Ok(_) => break,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    let of = |time: libc::timeval| {
        std::time::Duration::from_secs(time.tv_sec as u64)
            + std::time::Duration::from_micros(time.tv_usec as u64)
    };
    Ok((std::os::unix::process::ExitStatusExt::from_raw(status), of(usage.ru_utime) + of(usage.ru_stime)))
}

/// This thread's id.
pub fn thread_id() -> u64 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() as u64 }
}

/// Give the calling thread a high priority.
pub fn be_prompt() -> io::Result<()> {
    // SAFETY: numbers only; 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) }).map(drop)
}

/// Name the calling thread (at most 15 bytes are kept).
pub fn set_name(name: &str) {
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: the pointer is a C string that lives through the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Fork. True in the child.
pub fn fork() -> io::Result<bool> {
    fork_child().map(|child| child.is_none())
}

/// The child, in its parent.
pub fn fork_child() -> io::Result<Option<u32>> {
    // SAFETY: called before the victim has a second thread, so the child's copy of everything is whole.
    check(unsafe { libc::fork() }).map(|pid| u32::try_from(pid).ok().filter(|pid| *pid != 0))
}

/// Die when the thread that started us does.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: a number only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).map(drop)
}

/// Let SIGALRM kill this process after so many seconds.
pub fn die_after(seconds: u32) {
    // SAFETY: a number only.
    unsafe { libc::alarm(seconds) };
}

/// Keep a descriptor open over exec.
pub fn keep_over_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: a number only; a bad one gives EBADF.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop)
}

/// Write to a file that exists, without allocating: for use between fork and exec.
pub fn write_file(path: &std::ffi::CStr, text: &[u8]) -> io::Result<()> {
    // SAFETY: the path is a C string, the text has the given length, the descriptor is ours alone.
    unsafe {
        let fd = check(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = libc::write(fd, text.as_ptr().cast(), text.len());
        let result = if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::close(fd);
        result
    }
}

/// Wait for the lock of a file; it is held until the file is closed.
pub fn lock(fd: &impl AsRawFd) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open as long as `fd` is borrowed.
        match check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX) }) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// Take the lock if it is free. Returns whether we have it now.
pub fn try_lock(fd: &impl AsRawFd) -> io::Result<bool> {
    // SAFETY: the descriptor is open as long as `fd` is borrowed.
    match check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Err(err) if err.kind() == io::ErrorKind::WouldBlock => Ok(false),
        done => done.map(|_| true),
    }
}

/// An unnamed file in memory: it is freed with the last process that has it open.
pub fn memory_file(name: &str, size: u64) -> io::Result<OwnedFd> {
    let name = CString::new(name).map_err(io::Error::other)?;
    // SAFETY: the name is a C string; the new descriptor is ours alone.
    let file = unsafe {
        let fd = check(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC))?;
        std::fs::File::from_raw_fd(fd)
    };
    file.set_len(size)?;
    Ok(file.into())
}

/// Map shared (a file) or private (none) memory for the life of the process or until `unmap`.
pub fn map(fd: Option<RawFd>, size: usize) -> io::Result<*mut u8> {
    let (flags, fd) = match fd {
        Some(fd) => (libc::MAP_SHARED, fd),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: the kernel picks an address where nothing is.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// # Safety
/// `at` came from `map` with this size, and no code uses it any more.
pub unsafe fn unmap(at: *mut u8, size: usize) {
    // SAFETY: promised by the caller.
    unsafe { libc::munmap(at.cast(), size) };
}

/// Small pages only: a huge page would be swapped as one.
pub fn no_huge_pages(at: *mut u8, size: usize) {
    // SAFETY: advice changes no content; a bad range gives an error.
    unsafe { libc::madvise(at.cast(), size, libc::MADV_NOHUGEPAGE) };
}

/// Tell the page cache about a range of a file; 0 is all of it.
pub fn advise(fd: &impl AsRawFd, at: u64, length: u64, advice: i32) {
    // SAFETY: numbers only.
    unsafe { libc::posix_fadvise(fd.as_raw_fd(), at as i64, length as i64, advice) };
}

/// CPUs that this process may use.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all zeroes is an empty set; the kernel fills at most its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        set
    };
    // SAFETY: the index is below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Let a thread run on these CPUs only.
pub fn pin(tid: i32, cpus: &[usize]) -> io::Result<()> {
    // SAFETY: all zeroes is an empty set; CPU_SET ignores what is out of range; the set outlives the call.
    check(unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        cpus.iter()
            .filter(|cpu| **cpu < libc::CPU_SETSIZE as usize)
            .for_each(|c| libc::CPU_SET(*c, &mut set));
        libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set)
    })
    .map(drop)
}

/// Swap to this file.
pub fn swap_on(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string.
    check(unsafe { libc::swapon(path.as_ptr(), 0) }).map(drop)
}

/// No longer swap to this file.
pub fn swap_off(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string.
    check(unsafe { libc::swapoff(path.as_ptr()) }).map(drop)
}

/// A network namespace of our own, for this thread.
pub fn new_network() -> io::Result<()> {
    // SAFETY: a number only.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// Enter a network namespace, this thread only.
pub fn enter_network(of: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as it is borrowed.
    check(unsafe { libc::setns(of.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Start a program in this network namespace instead of that of the caller, as `nsenter --net` does. /sys stays as it is mounted.
pub fn start_in_network(command: &mut Command, network: File) {
    // SAFETY: between fork and exec the code makes only a system call, it allocates and locks nothing.
    unsafe {
        command.pre_exec(move || enter_network(&network));
    }
}

/// Start a program that may use only this CPU.
pub fn start_on(command: &mut Command, cpu: usize) {
    // SAFETY: between fork and exec the code makes only a system call, it allocates and locks nothing.
    unsafe {
        command.pre_exec(move || pin(0, &[cpu]));
    }
}

/// Bring up `lo` of this thread's network namespace.
pub fn loopback_up() -> io::Result<()> {
    let socket = socket(libc::SOCK_DGRAM)?;
    // SAFETY: the request is initialised and outlives the call; ifr_name ends in a zero byte.
    check(unsafe {
        let mut request: libc::ifreq = mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request)
    })
    .map(drop)
}

/// An IPv4 socket of that kind.
pub fn socket(kind: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the new descriptor is ours alone.
    unsafe {
        let fd = check(libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn loopback(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    }
}

/// Listen on a port of the loopback.
pub fn listen(socket: &OwnedFd, port: u16, backlog: i32) -> io::Result<()> {
    let address = loopback(port);
    // SAFETY: the address outlives the call and has the given size.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
        )
    })?;
    // SAFETY: numbers only.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) }).map(drop)
}

/// Connect to a port of 127.0.0.1.
pub fn connect(socket: &OwnedFd, port: u16) -> io::Result<()> {
    let address = loopback(port);
    // SAFETY: the address outlives the call and has the given size.
    check(unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Wait until a connection is there, then take and close it. False: none came in time.
pub fn accept_within(listener: &OwnedFd, ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd; with null addresses the kernel does not return the peer's address.
    unsafe {
        if libc::poll(&mut poll, 1, ms) < 1 {
            return false;
        }
        let fd = libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC,
        );
        fd >= 0 && libc::close(fd) == 0
    }
}

/// Close with a reset: no TIME_WAIT, so that a closed loop does not run out of ports.
pub fn reset_on_close(socket: &impl AsRawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option outlives the call and has the given size.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        );
    }
}

/// End a process.
pub fn kill(pid: i32) {
    // SAFETY: a number only. Callers pass pids found in cgroups of a test.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Stop a child, or continue it.
pub fn stop(pid: i32, stopped: bool) {
    // SAFETY: numbers only. The caller has not waited for the child yet, so the pid is still the child's.
    unsafe { libc::kill(pid, if stopped { libc::SIGSTOP } else { libc::SIGCONT }) };
}

/// Attach to a child of our parent, and stop it. It continues when we end.
pub fn hold_traced(pid: i32) -> io::Result<()> {
    // SAFETY: numbers only, and a place for a status.
    unsafe {
        let none = std::ptr::null_mut::<libc::c_void>();
        for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
            if libc::ptrace(request, pid, none, none) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let mut status = 0;
        check(libc::waitpid(pid, &raw mut status, libc::__WALL)).map(drop)
    }
}

/// Attach to a process, and stop it at each of its system calls, until one of the two ends.
pub fn trace(pid: i32, mut each: impl FnMut() -> bool) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    let mut status = 0;
    // SAFETY: numbers only, and a place for a status.
    unsafe {
        check(libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) as i32)?;
        check(libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none) as i32)?;
        while each()
            && check(libc::waitpid(pid, &raw mut status, libc::__WALL)).is_ok()
            && libc::WIFSTOPPED(status)
        {
            // SIGTRAP stops come from tracing; any other signal is for the tracee, which stops as it would without a tracer.
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            let (go_on, signal) = match (signal, event) {
                (libc::SIGTRAP, _) => (libc::PTRACE_SYSCALL, 0),
                (_, libc::PTRACE_EVENT_STOP) => (libc::PTRACE_LISTEN, 0),
                (signal, _) => (libc::PTRACE_SYSCALL, signal),
            };
            check(libc::ptrace(go_on, pid, none, signal as libc::c_long) as i32)?;
        }
    }
    Ok(())
}

/// A private mount namespace: other processes do not see later mounts.
pub fn new_mounts() -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: C strings that outlive the calls; the namespace that is changed is one of our own by then.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        check(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast())).map(drop)
    }
}

/// Freeze the file system of a folder, or thaw it: FIFREEZE and FITHAW (include/uapi/linux/fs.h).
pub fn freeze(dir: &impl AsRawFd, frozen: bool) -> io::Result<()> {
    let request: libc::Ioctl = if frozen { 0xc004_5877 } else { 0xc004_5878 };
    // SAFETY: a descriptor and a number; the kernel does not read the argument.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), request, 0) }).map(drop)
}

/// Mount a file system that is served through this descriptor, in a mount namespace of our own, where other processes do not see it.
pub fn mount_fuse(dir: &Path, device: RawFd) -> io::Result<()> {
    let dir = c_path(dir)?;
    let options = CString::new(format!("fd={device},rootmode=40000,user_id=0,group_id=0"))?;
    new_mounts()?;
    // SAFETY: C strings that outlive the call.
    unsafe {
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        check(libc::mount(
            c"whyslow-test".as_ptr(),
            dir.as_ptr(),
            c"fuse".as_ptr(),
            flags,
            options.as_ptr().cast(),
        ))?;
    }
    Ok(())
}

/// A pipe with a name.
pub fn make_fifo(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: a C string that outlives the call.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }).map(drop)
}

/// Request permission events for the files of a folder: the kernel asks before a file is opened.
pub fn fanotify(dir: &Path) -> io::Result<OwnedFd> {
    let dir = c_path(dir)?;
    // SAFETY: a C string that outlives the calls; the new descriptor is ours alone.
    unsafe {
        let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC;
        let group = OwnedFd::from_raw_fd(check(libc::fanotify_init(flags, libc::O_RDONLY as u32))?);
        let events = libc::FAN_OPEN_PERM | libc::FAN_EVENT_ON_CHILD;
        let (fd, flags) = (group.as_raw_fd(), libc::FAN_MARK_ADD);
        check(libc::fanotify_mark(fd, flags, events, libc::AT_FDCWD, dir.as_ptr()))?;
        Ok(group)
    }
}

/// Wait for permission events: returns the files, opened for us.
pub fn asked_for_leave(group: &OwnedFd) -> io::Result<Vec<RawFd>> {
    const SIZE: usize = size_of::<libc::fanotify_event_metadata>();
    let mut events = [0_u8; 16 * SIZE];
    // SAFETY: the buffer is ours, and has the given length.
    let read = unsafe { libc::read(group.as_raw_fd(), events.as_mut_ptr().cast(), events.len()) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    let fd = |event: &[u8]| {
        // SAFETY: the buffer holds the bytes of the struct of numbers, which need not be aligned.
        let event: libc::fanotify_event_metadata =
            unsafe { event.as_ptr().cast::<libc::fanotify_event_metadata>().read_unaligned() };
        event.fd
    };
    Ok(events.get(..read).unwrap_or_default().chunks_exact(SIZE).map(fd).filter(|fd| *fd >= 0).collect())
}

/// Grant the permission for one of them.
pub fn give_leave(group: &OwnedFd, file: RawFd) -> io::Result<()> {
    let response = libc::fanotify_response { fd: file, response: libc::FAN_ALLOW };
    let size = size_of::<libc::fanotify_response>();
    // SAFETY: a struct of numbers that outlives the call.
    let wrote = unsafe { libc::write(group.as_raw_fd(), (&raw const response).cast(), size) };
    usize::try_from(wrote).map(drop).map_err(|_| io::Error::last_os_error())
}

/// Read the own I/O priority (ioprio_get): a call that few programs make.
pub fn own_io_priority() {
    const WHO_PROCESS: libc::c_long = 1;
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0 as libc::c_long) };
}

/// Set a thread's nice value: 0 is the default, 19 gives it the least weight in its cgroup.
pub fn set_nice(tid: i32, nice: i32) -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as u32, nice) }).map(drop)
}

/// Begin a new session, between fork and exec.
pub fn new_session() -> io::Result<()> {
    // SAFETY: no arguments.
    check(unsafe { libc::setsid() }).map(drop)
}

/// Take or release an exclusive lock on a file's first byte (F_SETLKW).
pub fn lock_range(file: &impl AsRawFd, taken: bool) -> io::Result<()> {
    // SAFETY: a struct of numbers.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = (if taken { libc::F_WRLCK } else { libc::F_UNLCK }) as i16;
    range.l_len = 1;
    // SAFETY: a descriptor that the caller keeps open, and a range that lives over the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const range) }).map(drop)
}

/// Release what [`lock`] took.
pub fn unlock(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `fd` is borrowed.
    check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_UN) }).map(drop)
}

/// Whether this process is root.
pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// End at once, without running destructors.
pub fn leave(status: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_of_a_child_is_waited_for_and_not_longer_than_asked() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!ends_within(child.id(), Duration::from_millis(1)).unwrap());
        child.kill().unwrap();
        assert!(ends_within(child.id(), Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
    }
}
