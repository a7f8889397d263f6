//! System calls that each take one lock of the kernel.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PAGE: usize = 4096;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn pipe() -> io::Result<[OwnedFd; 2]> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors, which are ours alone.
    unsafe {
        super::check(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok(fds.map(|fd| OwnedFd::from_raw_fd(fd)))
    }
}

/// Two connected unix sockets.
pub fn socket_pair() -> io::Result<[OwnedFd; 2]> {
    pair(libc::SOCK_STREAM)
}

/// The same for datagrams.
pub fn datagram_pair() -> io::Result<[OwnedFd; 2]> {
    pair(libc::SOCK_DGRAM)
}

fn pair(kind: libc::c_int) -> io::Result<[OwnedFd; 2]> {
    let mut fds = [0; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors, which are ours alone.
    unsafe {
        super::check(libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()))?;
        Ok(fds.map(|fd| OwnedFd::from_raw_fd(fd)))
    }
}

/// Write one byte from any place in our memory. For a file: at its start.
///
/// # Safety
/// `from` is a mapped byte.
pub unsafe fn write_byte(fd: &impl AsRawFd, from: *const u8, file: bool) -> io::Result<()> {
    // SAFETY: promised by the caller.
    let written = unsafe {
        if file {
            libc::pwrite(fd.as_raw_fd(), from.cast(), 1, 0)
        } else {
            libc::write(fd.as_raw_fd(), from.cast(), 1)
        }
    };
    check(written as libc::c_long).map(drop)
}

/// Read one byte; 0 bytes are an error.
pub fn read_byte(fd: &impl AsRawFd) -> io::Result<()> {
    let mut byte = 0_u8;
    // SAFETY: room for the requested byte.
    match check(unsafe { libc::read(fd.as_raw_fd(), (&raw mut byte).cast(), 1) } as libc::c_long)? {
        1 => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A counter that a thread can wait for (eventfd).
pub fn counter() -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the new descriptor is ours alone.
    unsafe { Ok(OwnedFd::from_raw_fd(super::check(libc::eventfd(0, libc::EFD_CLOEXEC))?)) }
}

/// Write one as a word.
pub fn write_word(fd: &impl AsRawFd) -> io::Result<()> {
    let one = 1_u64;
    // SAFETY: the source has that many bytes.
    check(unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) } as libc::c_long).map(drop)
}

/// Read a word; less is an error.
pub fn read_word(fd: &impl AsRawFd) -> io::Result<()> {
    let mut word = 0_u64;
    // SAFETY: room for the requested bytes.
    match check(unsafe { libc::read(fd.as_raw_fd(), (&raw mut word).cast(), 8) } as libc::c_long)? {
        8 => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A queue of one-word messages that no other process can open (mq_open(3)): one end for receivers, one for senders.
pub fn queue() -> io::Result<[OwnedFd; 2]> {
    let name =
        std::ffi::CString::new(format!("/whyslow-test-{}-{}", std::process::id(), super::monotonic_ns()))
            .map_err(io::Error::other)?;
    // SAFETY: the name and the attributes outlive the calls; the new descriptor is ours alone.
    unsafe {
        let mut as_asked: libc::mq_attr = std::mem::zeroed();
        (as_asked.mq_maxmsg, as_asked.mq_msgsize) = (4, 8);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let fd = super::check(libc::mq_open(name.as_ptr(), flags, 0o600, &raw mut as_asked))?;
        let queue = OwnedFd::from_raw_fd(fd);
        super::check(libc::mq_unlink(name.as_ptr()))?;
        Ok([queue.try_clone()?, queue])
    }
}

/// Send a word as a message.
pub fn send_message(queue: &impl AsRawFd) -> io::Result<()> {
    let one = 1_u64;
    // SAFETY: the source has that many bytes.
    super::check(unsafe { libc::mq_send(queue.as_raw_fd(), (&raw const one).cast(), 8, 0) }).map(drop)
}

/// Receive a message of one word.
pub fn receive_message(queue: &impl AsRawFd) -> io::Result<()> {
    let mut word = 0_u64;
    // SAFETY: room for a whole message.
    let n = unsafe { libc::mq_receive(queue.as_raw_fd(), (&raw mut word).cast(), 8, std::ptr::null_mut()) };
    check(n as libc::c_long).map(drop)
}

/// Seek data in a file: takes the file's lock for reading (ext4, xfs), and has no other effect.
pub fn seek_data(file: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) }).map(drop)
}

/// Read the number of bytes in a pipe: takes the pipe's lock, and changes nothing.
pub fn bytes_in(pipe: &impl AsRawFd) -> io::Result<()> {
    let mut n = 0;
    // SAFETY: room for the number.
    super::check(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut n) }).map(drop)
}

/// Read a directory from its start into one page.
///
/// # Safety
/// `into` is a mapped page that no other code uses.
pub unsafe fn read_directory(dir: &impl AsRawFd, into: *mut u8) -> io::Result<()> {
    // SAFETY: promised by the caller; the length is that of a page.
    unsafe {
        check(libc::lseek(dir.as_raw_fd(), 0, libc::SEEK_SET))?;
        check(libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), into, PAGE)).map(drop)
    }
}

/// Exchange two names in one directory: takes the directory's lock once, for writing.
pub fn swap_names(dir: &impl AsRawFd, a: &CStr, b: &CStr) -> io::Result<()> {
    let fd = dir.as_raw_fd();
    // SAFETY: two C strings that live through the call.
    let result =
        unsafe { libc::syscall(libc::SYS_renameat2, fd, a.as_ptr(), fd, b.as_ptr(), libc::RENAME_EXCHANGE) };
    check(result).map(drop)
}

/// Wait for an RCU grace period.
pub fn grace_period() -> io::Result<()> {
    // SAFETY: numbers only. 1: MEMBARRIER_CMD_GLOBAL.
    check(unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) }).map(drop)
}

/// Wait for a child of this process to end, if it has one.
pub fn wait_for_child() -> bool {
    // SAFETY: a null pointer means that the status is not wanted.
    unsafe { libc::wait(std::ptr::null_mut()) > 0 }
}

/// Fork, and stop until the child has ended. Returns true in the child. Unlike after vfork(), the child's memory is its own.
pub fn fork_and_stop() -> io::Result<bool> {
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is a fork; called by processes of one thread, so the child's copy of everything is whole.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    super::check(pid as libc::c_int).map(|pid| pid == 0)
}

/// CPU time of this thread.
pub fn cpu_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: ts is a valid place for the answer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// A range of addresses, all mapped to the zero page: only page tables take memory.
pub struct Zeroes {
    at: *mut u8,
    size: usize,
}

// SAFETY: only passed to the kernel, and read as volatile bytes.
unsafe impl Send for Zeroes {}
// SAFETY: as above.
unsafe impl Sync for Zeroes {}

impl Zeroes {
    /// A new one, nothing mapped yet.
    pub fn new(size: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel picks an address where nothing is.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        super::no_huge_pages(at.cast(), size);
        Ok(Zeroes { at: at.cast(), size })
    }

    /// Map all of the first `size` bytes: holds the lock of the address space for reading during the call.
    pub fn populate(&self, size: usize) -> io::Result<()> {
        self.advise(0, size, libc::MADV_POPULATE_READ)
    }

    /// Unmap all of their pages.
    pub fn drop_pages(&self, from: usize, size: usize) -> io::Result<()> {
        self.advise(from, size, libc::MADV_DONTNEED)
    }

    fn advise(&self, from: usize, size: usize, advice: i32) -> io::Result<()> {
        let from = from.min(self.size);
        // SAFETY: inside our range; the advice changes only which zero pages are mapped.
        super::check(unsafe { libc::madvise(self.at.add(from).cast(), size.min(self.size - from), advice) })
            .map(drop)
    }

    /// Change the protection of the first `size` bytes: holds the lock of the address space for writing during the call.
    pub fn protect(&self, size: usize, writable: bool) -> io::Result<()> {
        let how = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: inside our range, which stays readable; no code writes to it.
        super::check(unsafe { libc::mprotect(self.at.cast(), size.min(self.size), how) }).map(drop)
    }

    /// Read a byte: a page fault, if its page is not mapped.
    pub fn touch(&self, offset: usize) {
        // SAFETY: inside our range, which is readable as long as `self` lives.
        unsafe { self.at.add(offset.min(self.size - 1)).read_volatile() };
    }

    /// Map a new page over the one at `offset`: takes the lock of the address space for writing.
    pub fn map_again(&self, offset: usize) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let offset = offset.min(self.size - PAGE);
        // SAFETY: inside our range, to which no reference exists.
        let at = unsafe { libc::mmap(self.at.add(offset).cast(), PAGE, libc::PROT_READ, flags, -1, 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
