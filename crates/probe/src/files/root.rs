//! The directory that is a host: "/" live, or a folder (an unpacked recording, a captured tree).
//!
//! Reading must not hang and must not leave the folder: files are opened without blocking and read only if they are
//! regular (a FIFO or a device node in a folder is refused before it is opened), and symbolic links of a folder are
//! resolved inside it (openat2, Linux 5.6), so that a hostile recording cannot point at this host's files.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory that is a host.
#[derive(Debug)]
pub(crate) struct Root {
    /// Its path, for a child that must open it again.
    pub path: PathBuf,
    /// It is this machine: /proc below it is procfs.
    pub live: bool,
    dir: Option<OwnedFd>,
}

/// Something that reads files below a root: the host itself, or a test's invented one.
pub(crate) trait Reads {
    /// Fills `into` with at most `cap` bytes of the file. `false`: there was more.
    fn read(&self, path: &CStr, cap: usize, into: &mut Vec<u8>) -> io::Result<bool>;
}

impl Root {
    pub fn open(path: &Path) -> Root {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let dir = open_dir(&name).ok();
        let mut root = Root { path: path.to_owned(), live: false, dir };
        root.live = root.is_procfs(c"proc");
        root
    }

    /// Opens a file for reading, or a directory with `O_DIRECTORY` in `flags`.
    pub fn open_at(&self, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
        let dir = self.dir.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        let fd = open_below(dir.as_raw_fd(), path, self.live, flags)?;
        // SAFETY: the call just gave us this descriptor; nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Not this machine, wherever it lies: links are resolved within it.
    pub fn into_folder(self) -> Root {
        Root { live: false, ..self }
    }

    /// Calls `each` with the name of every entry but `.` and `..`, and whether it is a directory (links are not).
    /// Ends early where `each` says `false`.
    pub fn list(&self, path: &CStr, mut each: impl FnMut(&[u8], bool) -> bool) -> io::Result<()> {
        let fd = self.open_at(path, libc::O_DIRECTORY)?;
        // SAFETY: fdopendir takes over the descriptor, unless it fails.
        let stream = unsafe { libc::fdopendir(fd.as_raw_fd()) };
        if stream.is_null() {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(fd); // closedir closes it
        loop {
            // SAFETY: `stream` is open; the entry is valid until the next call.
            let entry = unsafe { libc::readdir64(stream) };
            if entry.is_null() {
                break;
            }
            // SAFETY: d_name ends with a NUL.
            let name = unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) }.to_bytes();
            // SAFETY: as above.
            let is_dir = unsafe { (*entry).d_type } == libc::DT_DIR;
            if name != b"." && name != b".." && !each(name, is_dir) {
                break;
            }
        }
        // SAFETY: opened above, closed once.
        unsafe { libc::closedir(stream) };
        Ok(())
    }

    /// Whether there is something of that name (links are not followed).
    pub fn exists(&self, path: &CStr) -> bool {
        self.open_at(path, libc::O_PATH | libc::O_NOFOLLOW).is_ok()
    }

    /// Number of hard links: a kernfs directory with two has no directories in it.
    pub fn links(&self, path: &CStr) -> io::Result<u64> {
        let fd = self.open_at(path, libc::O_PATH)?;
        Ok(status(fd.as_raw_fd())?.st_nlink as u64)
    }

    /// Type of the filesystem at `path`.
    pub fn filesystem(&self, path: &CStr) -> io::Result<i64> {
        let fd = self.open_at(path, libc::O_PATH)?;
        let mut found = MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: `found` has room for one statfs.
        if unsafe { libc::fstatfs(fd.as_raw_fd(), found.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zero bytes are a statfs, and the call has filled it.
        Ok(unsafe { found.assume_init() }.f_type)
    }

    fn is_procfs(&self, path: &CStr) -> bool {
        self.filesystem(path).is_ok_and(|kind| kind == libc::PROC_SUPER_MAGIC)
    }
}

impl Reads for Root {
    fn read(&self, path: &CStr, cap: usize, into: &mut Vec<u8>) -> io::Result<bool> {
        let fd = self.open_file(path)?;
        fill(fd.as_raw_fd(), cap, into)
    }
}

impl Root {
    /// Opens a regular file. In a folder its kind is looked at first: opening a device node may do something.
    pub fn open_file(&self, path: &CStr) -> io::Result<OwnedFd> {
        if !self.live {
            let there = self.open_at(path, libc::O_PATH)?;
            regular(there.as_raw_fd())?;
        }
        let fd = self.open_at(path, libc::O_NONBLOCK)?;
        regular(fd.as_raw_fd())?;
        Ok(fd)
    }
}

/// Opens a directory by its path.
pub(super) fn open_dir(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `path` ends with a NUL.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// openat2 with the folder as its root; without openat2, links at the path's end are refused. Allocates nothing: the
/// child of a fork calls it, too.
pub(super) fn open_below(dir: RawFd, path: &CStr, live: bool, flags: i32) -> io::Result<RawFd> {
    const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
    const RESOLVE_IN_ROOT: u64 = 0x10;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | flags; // openat2 refuses O_PATH with anything it would ignore
    // SAFETY: `path` ends with a NUL.
    let plain = |flags| unsafe { libc::openat(dir, path.as_ptr(), flags) };
    let mut fd = -1;
    if live {
        fd = plain(flags);
    } else {
        let how = [flags as u64, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS];
        let size = std::mem::size_of_val(&how);
        // SAFETY: open_how is three u64: flags, mode, resolve.
        let got = unsafe { libc::syscall(libc::SYS_openat2, dir, path.as_ptr(), &raw const how, size) };
        if got >= 0 {
            fd = got as RawFd;
        } else if matches!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
            // An older kernel, or a container whose filter does not know the call.
            fd = plain(flags | libc::O_NOFOLLOW);
        }
    }
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

/// An error unless the descriptor is a regular file. EINVAL would look like the file's own answer: ENOTSUP does not.
pub(super) fn regular(fd: RawFd) -> io::Result<()> {
    match status(fd)?.st_mode & libc::S_IFMT {
        libc::S_IFREG => Ok(()),
        libc::S_IFDIR => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        _ => Err(io::Error::from_raw_os_error(libc::ENOSTR)),
    }
}

/// fstat.
pub(super) fn status(fd: RawFd) -> io::Result<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `found` has room for one stat.
    if unsafe { libc::fstat(fd, found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled.
    Ok(unsafe { found.assume_init() })
}

/// Reads a file from its start, whole or up to `cap` bytes. `false`: there was more.
pub(super) fn fill(fd: RawFd, cap: usize, into: &mut Vec<u8>) -> io::Result<bool> {
    const STEP: usize = 16 << 10;
    into.clear();
    let most = cap.saturating_add(1); // one more, to see whether there is more
    let mut have = 0;
    let read = loop {
        if have == into.len() {
            // sysfs gives a page a call: room once made (and zeroed) is used up before more is made.
            into.resize(most.min(have.saturating_add(STEP.max(have))), 0);
        }
        match into.get_mut(have..).filter(|room| !room.is_empty()).map(|room| read_at(fd, room, have)) {
            None => break Ok(false),
            Some(Ok(0)) => break Ok(true),
            Some(Ok(got)) => have += got,
            Some(Err(err)) => break Err(err),
        }
    };
    into.truncate(have.min(cap));
    read
}

/// pread: a descriptor kept open is read from the start each time, and seq_file makes its text anew.
pub(super) fn read_at(fd: RawFd, into: &mut [u8], at: usize) -> io::Result<usize> {
    loop {
        // SAFETY: `into` is writable for its length.
        let got = unsafe { libc::pread(fd, into.as_mut_ptr().cast(), into.len(), at as libc::off_t) };
        if got >= 0 {
            return Ok(got as usize);
        }
        let err = io::Error::last_os_error();
        if err.kind() != io::ErrorKind::Interrupted {
            return Err(err);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(root: &Root, path: &CStr, cap: usize) -> io::Result<(String, bool)> {
        let mut bytes = Vec::new();
        let whole = root.read(path, cap, &mut bytes)?;
        Ok((String::from_utf8(bytes).unwrap(), whole))
    }

    #[test]
    fn a_file_is_read_whole_or_up_to_its_cap() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("small"), "12345").unwrap();
        std::fs::File::create(dir.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
        let root = Root::open(dir.path());
        assert!(!root.live);
        assert_eq!(read(&root, c"small", 5).unwrap(), ("12345".to_owned(), true));
        assert_eq!(read(&root, c"small", 4).unwrap(), ("1234".to_owned(), false));
        let (text, whole) = read(&root, c"huge", 100_000).unwrap();
        assert_eq!((text.len(), whole), (100_000, false));
    }

    #[test]
    fn a_fifo_does_not_block_and_a_directory_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = CString::new(dir.path().join("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let root = Root::open(dir.path());
        assert_eq!(read(&root, c"fifo", 10).unwrap_err().raw_os_error(), Some(libc::ENOSTR));
        assert_eq!(read(&root, c".", 10).unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn links_do_not_lead_out_of_a_folder_or_round_in_circles() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        std::fs::write(dir.path().join("file"), "inside").unwrap();
        symlink(outside.path().join("secret"), dir.path().join("absolute")).unwrap();
        symlink("../../../../../../etc/hostname", dir.path().join("upwards")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        symlink("/file", dir.path().join("rooted")).unwrap();
        let root = Root::open(dir.path());
        assert!(read(&root, c"absolute", 100).is_err());
        assert!(read(&root, c"upwards", 100).is_err());
        assert_eq!(read(&root, c"loop", 100).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(read(&root, c"rooted", 100).unwrap().0, "inside");
    }

    #[test]
    fn a_root_that_is_not_there_has_no_files() {
        let root = Root::open(Path::new("/nonexistent/whyslow"));
        assert_eq!(read(&root, c"proc/stat", 10).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_listing_can_be_ended_early() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut seen = 0;
        let root = Root::open(dir.path());
        root.list(c".", |_, is_dir| {
            assert!(is_dir);
            seen += 1;
            seen < 2
        })
        .unwrap();
        assert_eq!(seen, 2);
    }
}
