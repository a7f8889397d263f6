//! The rest that makes a bare kernel a host: name, network, module loader; and its end.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::{fs, io, mem};

use crate::orders::{self, Orders};

/// The environment of the command.
pub const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/run/home"),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("TMPDIR", "/tmp"),
];

/// Limit on open files of a command: the kernel's default is 4,096, service managers set this number.
const OPEN_FILES: libc::rlimit = libc::rlimit { rlim_cur: 1024, rlim_max: 524_288 };

/// Name, home, loopback, modules.
pub fn settle(orders: &Orders) -> io::Result<()> {
    fs::create_dir_all("/run/home")?;
    fs::create_dir_all("/run/lock")?;
    fs::write(orders::MODULES, orders.modules.as_os_str().as_bytes())?;
    fs::write("/proc/sys/kernel/modprobe", orders.lab.as_os_str().as_bytes())?;
    fs::write("/proc/sys/kernel/hostname", &orders.hostname)?;
    // SAFETY: a valid limit, which the kernel copies.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &OPEN_FILES) };
    loopback()
}

fn loopback() -> io::Result<()> {
    let name = CString::new("lo")?;
    // SAFETY: a socket of our own, an all-zero request with a name that fits and flags that are set before use.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut request: libc::ifreq = mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes_with_nul()) {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let done = libc::ioctl(socket, libc::SIOCSIFFLAGS, &request);
        let error = io::Error::last_os_error();
        libc::close(socket);
        if done == 0 { Ok(()) } else { Err(error) }
    }
}

/// Reap every child, ours and orphans, until `wanted` has ended. Returns its status as a shell would.
pub fn reap(wanted: u32) -> io::Result<i32> {
    loop {
        let mut status = 0;
        // SAFETY: the status is a valid place to write to.
        let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
        let error = io::Error::last_os_error();
        if pid < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        if u32::try_from(pid) == Ok(wanted) {
            let killed = libc::WIFSIGNALED(status);
            return Ok(if killed {
                libc::WTERMSIG(status).saturating_add(128)
            } else {
                libc::WEXITSTATUS(status)
            });
        }
    }
}

/// Kill processes that the command has left behind: otherwise their files would vanish, and they would print errors on the console.
pub fn end_all() {
    // SAFETY: system calls without memory; the signal goes to all other processes.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
        while libc::waitpid(-1, std::ptr::null_mut(), 0) > 0 {}
    }
}

/// Power off; if that fails, panic, which also ends the guest.
pub fn power_off() -> ! {
    // SAFETY: system calls without memory.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    std::process::exit(1)
}
