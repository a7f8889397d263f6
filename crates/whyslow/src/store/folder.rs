//! A recording from a folder: an unpacked recording, or a tree of copies of /proc and /sys.
//!
//! The reader follows no symbolic links, opens no devices or FIFOs, and enters no mounts: `whyslow report /` must not read a live /proc,
//! because some reads there slow the host.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use whyslow_model::{Missing, Recording, counted};

use super::loader::Loader;
use super::{Halt, limit, names, shown};

/// The entries that are read; no other entry is. The first ones say how to read the rest.
const CONTENTS: [&str; 11] = [
    "whyslow.json",
    "missing.ndjson",
    "snapshots.ndjson",
    "frames.ndjson",
    "tables",
    "proc",
    "sys",
    "netns",
    "dev",
    "other",
    "earlier",
];
/// From linux/magic.h.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;
const SYSFS_MAGIC: u64 = 0x6265_6572;

struct Walk {
    root: File,
    path: PathBuf,
    device: u64,
    entries: usize,
    left: u64,
    links: u64,
    special: u64,
    loader: Loader,
}

/// Reads the recording in the folder `path`.
pub fn open(path: &Path) -> Result<Recording, Halt> {
    let root = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)?;
    if is_kernel_fs(&root)? {
        return Err(Halt::Refuse(
            "it is a live file system of the kernel; `whyslow exam` examines this host".to_owned(),
        ));
    }
    let device = root.metadata()?.dev();
    let path = path.to_owned();
    let (left, loader) = (limit::TOTAL, Loader::default());
    let mut walk = Walk { root, path, device, entries: 0, left, links: 0, special: 0, loader };
    let mut torn = None;
    for name in CONTENTS {
        match walk.enter(Path::new(name), 0) {
            Err(Halt::Tear(why)) => {
                torn = Some(format!("{why}, in {name}"));
                break;
            }
            other => other?,
        }
    }
    walk.note_what_was_passed_over();
    match (walk.loader.finish(torn.clone()), torn) {
        (Err(Halt::Refuse(_)), Some(why)) => Err(Halt::Refuse(why)),
        (finished, _) => finished,
    }
}

impl Walk {
    fn enter(&mut self, below: &Path, depth: usize) -> Result<(), Halt> {
        self.entries += 1;
        if self.entries > limit::ENTRIES {
            return Err(Halt::Tear(format!("it has more than {} entries", limit::ENTRIES)));
        }
        let full = self.path.join(below);
        let there = match fs::symlink_metadata(&full) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return self.unreadable(below, &e),
            Ok(there) => there,
        };
        match there.file_type() {
            kind if kind.is_symlink() => self.links += 1,
            _ if there.dev() != self.device => self.special += 1,
            kind if kind.is_dir() => return self.list(below, &full, depth),
            kind if kind.is_file() => return self.read(below),
            _ => self.special += 1,
        }
        Ok(())
    }

    fn list(&mut self, below: &Path, full: &Path, depth: usize) -> Result<(), Halt> {
        if depth >= limit::DEPTH {
            return Err(Halt::Tear(format!("it is more than {} folders deep", limit::DEPTH)));
        }
        let mut names = Vec::new();
        let listing = match fs::read_dir(full) {
            Err(e) => return self.unreadable(below, &e),
            Ok(listing) => listing,
        };
        for entry in listing.take(limit::ENTRIES) {
            names.push(entry?.file_name());
        }
        names.sort_unstable();
        names.iter().try_for_each(|name| self.enter(&below.join(name), depth + 1))
    }

    fn read(&mut self, below: &Path) -> Result<(), Halt> {
        let Some(name) = below.to_str() else {
            self.special += 1;
            return Ok(());
        };
        let file = match open_below(&self.root, &self.path, below) {
            Err(e) => return self.unreadable(below, &e),
            Ok(file) => file,
        };
        let there = file.metadata()?;
        if !there.is_file() {
            self.special += 1;
            return Ok(());
        }
        // The loader does not read a kernel file that is too large: its size does not count.
        let counts = if names::is_snapshot(name) && there.len() > limit::SNAPSHOT { 0 } else { there.len() };
        let Some(left) = self.left.checked_sub(counts) else {
            return Err(Halt::Tear(format!("it holds more than {} MiB", limit::TOTAL >> 20)));
        };
        self.left = left;
        let mut body = BufReader::with_capacity(16 << 10, file.take(there.len()));
        match self.loader.take(name, there.len(), &mut body) {
            Err(Halt::Tear(why)) if self.loader.has_room() => {
                self.loader.note(Missing::broken(name, why));
                Ok(())
            }
            other => other,
        }
    }

    fn unreadable(&mut self, below: &Path, error: &io::Error) -> Result<(), Halt> {
        self.loader.note(Missing::broken(below.to_string_lossy(), error));
        Ok(())
    }

    fn note_what_was_passed_over(&mut self) {
        let (links, special) = (self.links, self.special);
        let folder = shown(&self.path.to_string_lossy());
        if links > 0 {
            let what = format!("{} in {folder}", counted(links, "symbolic link"));
            self.loader.note(Missing::skipped(what, "links are not followed"));
        }
        if special > 0 {
            let what = format!(
                "{} in {folder}",
                if special == 1 { "1 entry".to_owned() } else { format!("{special} entries") }
            );
            self.loader.note(Missing::skipped(what, "no plain files, mounts, or names that are not UTF-8"));
        }
    }
}

fn is_kernel_fs(folder: &File) -> io::Result<bool> {
    let mut about = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and `about` has room for what the kernel writes.
    if unsafe { libc::fstatfs(folder.as_raw_fd(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded.
    let kind = unsafe { about.assume_init() }.f_type as u64;
    Ok(kind == PROC_SUPER_MAGIC || kind == SYSFS_MAGIC)
}

/// Opens a file below `root`, through no link and into no mount, even if another process changes the folder meanwhile.
fn open_below(root: &File, path: &Path, below: &Path) -> io::Result<File> {
    let name = std::ffi::CString::new(below.as_os_str().as_bytes())?;
    // SAFETY: open_how is plain numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_XDEV;
    let size = size_of::<libc::open_how>();
    // SAFETY: the name ends in NUL, `how` is as large as said, both outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_openat2, root.as_raw_fd(), name.as_ptr(), &how, size) };
    if let Ok(fd @ 0..) = i32::try_from(fd) {
        // SAFETY: the kernel just gave us this descriptor.
        return Ok(unsafe { File::from_raw_fd(fd) });
    }
    let error = io::Error::last_os_error();
    // Kernels before Linux 5.6 (fddb5d430ad9fa91) and some containers have no openat2. The fallback refuses a link as the last part only.
    if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
        return Err(error);
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path.join(below))
}
