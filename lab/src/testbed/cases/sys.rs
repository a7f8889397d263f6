//! System calls that only the cases need; calls that victims need, too, are in `whyslow_faults::sys`.

use std::ffi::{CString, c_int, c_long};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use whyslow_faults::sys::{
    c_path, die_after, die_with_parent, enter_network, leave, memory_file, pin, set_name, sleep_until,
    start_in_network, thread_id, write_file,
};

/// `PERF_FLAG_FD_CLOEXEC` of linux/perf_event.h.
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_long(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The CPU that this thread runs on at the moment.
pub fn this_cpu() -> usize {
    // SAFETY: no arguments; -1 (no such call) becomes a CPU that does not exist.
    unsafe { libc::sched_getcpu() as usize }
}

/// Fork. None in the child. Only for a process with one thread.
pub fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the caller has one thread, so the child's copy of everything is whole.
    check(unsafe { libc::fork() }).map(|pid| (pid > 0).then_some(pid))
}

/// Wait for a child to end.
pub fn wait_for(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: room for the status.
    check(unsafe { libc::waitpid(pid, &mut status, 0) }).map(|_| status)
}

/// Namespaces of our own, for this thread (`CLONE_NEW*`).
pub fn unshare(what: c_int) -> io::Result<()> {
    // SAFETY: a number only.
    check(unsafe { libc::unshare(what) }).map(drop)
}

/// A mount namespace of our own with a /sys that shows this thread's network namespace.
pub fn own_sysfs() -> io::Result<()> {
    unshare(libc::CLONE_NEWNS)?;
    mount(None, "/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    mount(Some("lab"), "/sys", Some("sysfs"), 0)
}

fn mount(source: Option<&str>, on: &str, kind: Option<&str>, flags: libc::c_ulong) -> io::Result<()> {
    let text = |text: &str| CString::new(text).map_err(io::Error::other);
    let (source, kind) = (source.map(text).transpose()?, kind.map(text).transpose()?);
    let on = text(on)?;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    // SAFETY: C strings that live through the call, or null where nothing is to be said.
    check(unsafe { libc::mount(pointer(&source), on.as_ptr(), pointer(&kind), flags, std::ptr::null()) })
        .map(drop)
}

/// Schedule this thread before all ordinary tasks (SCHED_FIFO).
pub fn real_time(priority: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter outlives the call.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) }).map(drop)
}

/// Bind a thread of this host to a CPU.
pub fn pin_other(pid: u32, cpu: usize) -> io::Result<()> {
    // SAFETY: the set is initialised and outlives the call.
    check(unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu.min(1023), &mut set);
        libc::sched_setaffinity(pid as libc::pid_t, size_of::<libc::cpu_set_t>(), &set)
    })
    .map(drop)
}

/// include/uapi/linux/ethtool.h: ETHTOOL_SGRO, the device merges packets that it receives.
pub const MERGE: u32 = 0x2c;
/// ETHTOOL_STSO: the device takes segments of TCP that it splits.
pub const SPLIT: u32 = 0x1f;
/// include/uapi/linux/sockios.h
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// Turn an offload of a device of this thread's network namespace on or off.
pub fn set_offload(device: &str, which: u32, on: bool) -> io::Result<()> {
    let socket = whyslow_faults::sys::socket(libc::SOCK_DGRAM)?;
    // struct ethtool_value
    let mut value = [which, u32::from(on)];
    // SAFETY: the request and the value are initialised and outlive the call; ifr_name ends in a zero byte.
    check(unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().take(15).zip(device.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &mut request)
    })
    .map(drop)
}

/// Let a device of this thread's network namespace take so many multicast addresses.
pub fn join_groups(device: &str, count: u32) -> io::Result<()> {
    let socket = whyslow_faults::sys::socket(libc::SOCK_DGRAM)?;
    for at in 0..count {
        let [_, high, middle, low] = at.to_be_bytes();
        // Addresses of IPv4 groups.
        let address = [0x01, 0x00, 0x5e, high & 0x7f, middle, low];
        // SAFETY: the request is initialised and outlives the call; ifr_name ends in a zero byte.
        check(unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (to, from) in request.ifr_name.iter_mut().take(15).zip(device.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_hwaddr.sa_family = libc::AF_UNSPEC as u16;
            for (to, from) in request.ifr_ifru.ifru_hwaddr.sa_data.iter_mut().zip(address) {
                *to = from as libc::c_char;
            }
            libc::ioctl(socket.as_raw_fd(), libc::SIOCADDMULTI as _, &mut request)
        })?;
    }
    Ok(())
}

/// A queue of System V messages in this process's namespace.
pub fn message_queue() -> io::Result<c_int> {
    // SAFETY: numbers only.
    check(unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) })
}

/// Send a message of so many bytes.
pub fn send_message<const BYTES: usize>(queue: c_int) -> io::Result<()> {
    #[repr(C)]
    struct Message<const BYTES: usize> {
        kind: c_long,
        text: [u8; BYTES],
    }
    let message = Message { kind: 1, text: [0x5a; BYTES] };
    // SAFETY: the message outlives the call and has the given size behind its kind.
    check(unsafe { libc::msgsnd(queue, (&raw const message).cast(), BYTES, libc::IPC_NOWAIT) }).map(drop)
}

/// Remove a queue with its messages.
pub fn remove_queue(queue: c_int) -> io::Result<()> {
    // SAFETY: no buffer belongs to this command.
    check(unsafe { libc::msgctl(queue, libc::IPC_RMID, std::ptr::null_mut()) }).map(drop)
}

/// Set the nice value of this process.
pub fn nice(value: c_int) -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) }).map(drop)
}

/// Map all pages of a file at once, and unmap them again.
pub fn map_and_unmap(file: &File, size: usize) -> io::Result<()> {
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: the kernel picks an address where nothing is; no code accesses it; unmapped with the same size.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, flags, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        check(libc::munmap(at, size)).map(drop)
    }
}

/// A perf counter of CPU time of one CPU. Reading it from another CPU sends an interrupt there and spins until that CPU answers.
pub fn cpu_counter(cpu: usize) -> io::Result<File> {
    // The first version of perf_event_attr: type (1: software), its size (64), config (0: cpu-clock).
    let mut attr = [0_u8; 64];
    attr[0] = 1;
    attr[4] = 64;
    // SAFETY: the attribute has the size that it says; the new descriptor is ours alone.
    unsafe {
        let fd = check_long(libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_ptr(),
            -1 as c_int,
            cpu as c_int,
            -1 as c_int,
            PERF_FLAG_FD_CLOEXEC,
        ))?;
        Ok(File::from_raw_fd(fd as RawFd))
    }
}

/// CPU time that a process has used, by the kernel's CPU clock of that process.
pub fn cpu_time_ns(pid: u32) -> io::Result<u64> {
    let mut clock = 0;
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the clock's id and for the time.
    unsafe {
        match libc::clock_getcpuclockid(pid as i32, &mut clock) {
            0 => check(libc::clock_gettime(clock, &mut ts))?,
            errno => return Err(io::Error::from_raw_os_error(errno)),
        };
    }
    Ok((ts.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(ts.tv_nsec as u64))
}

/// A raw socket for ICMP.
pub fn icmp_socket() -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the new descriptor is ours alone.
    unsafe {
        let fd = check(libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_ICMP))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// How long ago the kernel took the last packet of this socket from its device, in ns: its reader may have come later. The first question
/// makes the kernel note the time, and has no answer.
pub fn packet_age(socket: &OwnedFd) -> Option<u64> {
    /// `SIOCGSTAMPNS_OLD` of asm-generic/sockios.h; a `timespec` of 64-bit words on x86-64.
    const SIOCGSTAMPNS: libc::c_ulong = 0x8907;
    let mut came = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS as _, &raw mut came) }).ok()?;
    let came = Duration::new(u64::try_from(came.tv_sec).ok()?, u32::try_from(came.tv_nsec).ok()?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(now.checked_sub(came)?.as_nanos()).ok()
}

/// Send a packet.
pub fn send_to(socket: &OwnedFd, packet: &[u8], to: Ipv4Addr) -> io::Result<()> {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: the packet and the address outlive the call and have the given sizes.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            libc::MSG_DONTWAIT,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Wait until a packet arrives or CLOCK_MONOTONIC reaches `ns`; returns the packet's length.
pub fn receive_until(socket: &OwnedFd, into: &mut [u8], ns: u64, now: u64) -> Option<usize> {
    let left = ns.saturating_sub(now);
    let timeout =
        libc::timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, a valid timeout, no signal mask; the buffer has the given length.
    unsafe {
        if libc::ppoll(&mut poll, 1, &timeout, std::ptr::null()) < 1 {
            return None;
        }
        let got = libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT);
        usize::try_from(got).ok()
    }
}

/// Execute this program again in the calling process; returns only if that fails.
pub fn exec_self(name: &str, environment: &str) -> io::Error {
    let (Ok(name), Ok(environment)) = (CString::new(name), CString::new(environment)) else {
        return io::ErrorKind::InvalidInput.into();
    };
    let (words, variables) = ([name.as_ptr(), std::ptr::null()], [environment.as_ptr(), std::ptr::null()]);
    // SAFETY: two lists of C strings that end in null and live through the call.
    unsafe { libc::execve(c"/proc/self/exe".as_ptr(), words.as_ptr(), variables.as_ptr()) };
    io::Error::last_os_error()
}
