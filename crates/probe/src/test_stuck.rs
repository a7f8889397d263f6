//! A thread that holds a kernel lock for as long as a test wants: it writes from a page that does not arrive.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

const PAGE: usize = 4096;
/// include/uapi/linux/userfaultfd.h: _IOWR(0xaa, 0x3f, 24 bytes), _IOWR(0xaa, 0, 32 bytes), _IOWR(0xaa, 4, 32 bytes).
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const UFFD_API: u64 = 0xaa;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// The holder. It ends when the page arrives.
pub(crate) struct Stuck {
    /// Its thread id.
    pub(crate) tid: u32,
    faults: OwnedFd,
    page: u64,
    thread: Option<JoinHandle<()>>,
}

/// This thread's id.
pub(crate) fn tid() -> u32 {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() as u32 }
}

impl Stuck {
    /// A thread in the middle of a write to `path`: it holds the inode's lock for writing. Returns when it holds it.
    pub(crate) fn writing(path: &Path) -> Self {
        Stuck::writing_to(OpenOptions::new().write(true).open(path).unwrap())
    }

    /// The same with a file that is open: it also holds the lock of the file's position, if the open file has other users.
    pub(crate) fn writing_to(file: File) -> Self {
        let faults = userfault();
        let page = missing_page(&faults);
        let (tell, reported) = mpsc::channel();
        let thread = std::thread::spawn(move || write_from(&file, page, &tell));
        let tid = reported.recv().unwrap();
        let mut event = [0u8; 32];
        // SAFETY: reads into a local array of the size of one event; blocks until the page fault.
        let got = unsafe { libc::read(faults.as_raw_fd(), event.as_mut_ptr().cast(), event.len()) };
        assert_eq!(got, 32, "{}", std::io::Error::last_os_error());
        Stuck { tid, faults, page, thread: Some(thread) }
    }

    /// Provide the page: the write continues and ends.
    pub(crate) fn let_go(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let mut zero = [self.page, PAGE as u64, 0, 0];
        // SAFETY: the argument is the struct the call takes: four words.
        let done = unsafe { libc::ioctl(self.faults.as_raw_fd(), UFFDIO_ZEROPAGE, zero.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        thread.join().unwrap();
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn write_from(file: &File, page: u64, tell: &mpsc::Sender<u32>) {
    tell.send(tid()).unwrap();
    // SAFETY: the mapping has a page here, which arrives when the test provides it.
    let wrote = unsafe { libc::write(file.as_raw_fd(), page as *const libc::c_void, 1) };
    assert_eq!(wrote, 1, "{}", std::io::Error::last_os_error());
}

fn userfault() -> OwnedFd {
    // SAFETY: flags only; the descriptor is new.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: as above: the descriptor has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut api = [UFFD_API, 0, 0];
    // SAFETY: the argument is the struct the call takes: three words.
    assert_eq!(unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) }, 0);
    fd
}

/// A page that was never touched. Faults on it are reported to `faults`.
fn missing_page(faults: &OwnedFd) -> u64 {
    // SAFETY: a new private mapping, never unmapped; the ioctl's argument is the struct it takes: four words.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        let mut register = [page as u64, PAGE as u64, UFFDIO_REGISTER_MODE_MISSING, 0];
        assert_eq!(libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER, register.as_mut_ptr()), 0);
        page as u64
    }
}
