//! A BPF program of another process, and the kernel's statistics about all BPF programs.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// From enum bpf_cmd (include/uapi/linux/bpf.h).
const PROG_LOAD: libc::c_int = 5;
const ENABLE_STATS: libc::c_int = 32;
/// From enum bpf_prog_type.
const SOCKET_FILTER: u32 = 1;
/// include/uapi/asm-generic/socket.h; MIPS and SPARC have others.
const SO_ATTACH_BPF: libc::c_int = 50;

fn bpf<T>(command: libc::c_int, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attribute outlives the call and has the given size.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    // SAFETY: no other code has a descriptor that was just made.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }) }
}

/// The kernel counts the run time of all programs until this is dropped (since v5.8, d46edd671a14; type 0).
pub fn statistics() -> io::Result<OwnedFd> {
    bpf(ENABLE_STATS, &[0u32; 1])
}

/// The first fields of the load attribute.
#[repr(C)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
}

/// Datagrams to the same process, each passed by a BPF program. Ends when it is dropped.
pub struct Filtered {
    ends: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl Filtered {
    pub fn begin(pace: Duration) -> io::Result<Self> {
        // w0 = -1; exit
        let program: [u64; 2] = [0xffff_ffff_0000_00b4, 0x95];
        let license = c"GPL";
        let load = Load {
            prog_type: SOCKET_FILTER,
            insn_cnt: program.len() as u32,
            insns: program.as_ptr() as u64,
            license: license.as_ptr() as u64,
        };
        let program = bpf(PROG_LOAD, &load)?;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let (fd, size) = (program.as_raw_fd(), size_of::<i32>() as libc::socklen_t);
        // SAFETY: the descriptor outlives the call and has the given size.
        let attached = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_ATTACH_BPF,
                (&raw const fd).cast(),
                size,
            )
        };
        if attached != 0 {
            return Err(io::Error::last_os_error());
        }
        socket.set_nonblocking(true)?;
        let to = socket.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ends);
        let sender = std::thread::spawn(move || {
            let mut datagram = [0; 8];
            while !asked.load(Ordering::Relaxed) {
                // A datagram that is not sent or not read is one program run less.
                let _ = socket.send_to(&datagram, to).and_then(|_| socket.recv(&mut datagram));
                std::thread::sleep(pace);
            }
        });
        Ok(Filtered { ends, sender: Some(sender) })
    }
}

impl Drop for Filtered {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join(); // it cannot panic
        }
    }
}

/// Whether another process has the statistics on now.
pub fn others_count() -> bool {
    let sysctl = std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled");
    let below = |path: std::path::PathBuf| {
        std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let mut held = below("/proc".into()).flat_map(|process| below(process.join("fd")));
    let is_of_statistics = |fd: std::path::PathBuf| {
        std::fs::read_link(fd).is_ok_and(|to| to.to_string_lossy().contains("bpf-stats"))
    };
    sysctl.is_ok_and(|text| text.trim() == "1") || held.any(is_of_statistics)
}
