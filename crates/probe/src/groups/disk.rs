//! Small files below a root, with limits: never a device, never outside the root, never more than a buffer holds.

use std::cell::Cell;
use std::ffi::CString;
use std::path::Path;

use crate::files::root::{Reads as _, Root};

/// The most files and folders that are opened, for all names of a host: 500 containers and 1,000 units take a fourth of it.
const MOST_FILES: u32 = 20_000;
/// The most bytes that are read.
const MOST_BYTES: usize = 64 << 20;
/// The most names of one folder.
const MOST_NAMES: usize = 20_000;

/// What may still be read of the files of a host.
pub struct Disk {
    root: Root,
    files: Cell<u32>,
    bytes: Cell<usize>,
    ran_out: Cell<bool>,
}

impl Disk {
    /// The files below this folder. It is a root of its own also where it is "/": a link that leads up ends there.
    pub fn below(root: &Path) -> Self {
        let root = Root::open(root).into_folder();
        Disk { root, files: Cell::new(MOST_FILES), bytes: Cell::new(MOST_BYTES), ran_out: Cell::new(false) }
    }

    /// There was more to read than the limits allow.
    pub fn ran_out(&self) -> bool {
        self.ran_out.get()
    }

    fn take(&self) -> Option<()> {
        let left = self.files.get().checked_sub(1);
        self.ran_out.set(self.ran_out.get() || left.is_none());
        left.map(|left| self.files.set(left))
    }

    /// A regular file, if it exists, whole, and has at most `most` bytes. Bytes that are not UTF-8 are replaced.
    pub fn read(&self, path: &str, most: usize) -> Option<String> {
        self.take()?;
        let path = CString::new(path.trim_start_matches('/')).ok()?;
        let mut bytes = Vec::new();
        let most = most.min(self.bytes.get());
        let whole = self.root.read(&path, most, &mut bytes).ok()?;
        self.bytes.set(self.bytes.get().saturating_sub(bytes.len()));
        self.ran_out.set(self.ran_out.get() || !whole);
        whole.then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names in a folder; names that are not UTF-8 are left out.
    pub fn list(&self, path: &str) -> Vec<String> {
        let (Some(()), Ok(path)) = (self.take(), CString::new(path.trim_start_matches('/'))) else {
            return Vec::new();
        };
        let mut names = Vec::new();
        let listed = self.root.list(&path, |name, _| {
            names.extend(std::str::from_utf8(name).ok().map(str::to_owned));
            names.len() < MOST_NAMES
        });
        self.ran_out.set(self.ran_out.get() || names.len() >= MOST_NAMES);
        listed.map(|()| names).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_too_large_not_regular_or_outside_the_root_is_not_read() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), dir.path().join("link")).unwrap();
        std::fs::write(dir.path().join("large"), "12345").unwrap();
        let fifo = CString::new(dir.path().join("fifo").to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let disk = Disk::below(dir.path());
        for name in ["link", "fifo", "nothing", "."] {
            assert_eq!(disk.read(name, 100), None, "{name}");
        }
        assert!(!disk.ran_out());
        assert_eq!((disk.read("/large", 5).as_deref(), disk.read("/large", 4)), (Some("12345"), None));
        assert!(disk.ran_out());
        let mut names = disk.list(".");
        names.sort();
        assert_eq!(names, ["fifo", "large", "link"]);
    }
}
