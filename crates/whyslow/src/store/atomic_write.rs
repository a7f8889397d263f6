//! Writes a file atomically: it exists as a whole or not at all. The file is written without a name, synced to disk, then named.
//!
//! `O_TMPFILE` + `linkat`: if whyslow is killed meanwhile, the kernel frees the file. On file systems without `O_TMPFILE`
//! (vfat, NFS, most of FUSE) whyslow writes a named `.whyslow-<pid>-<n>.part`, and removes it after a failure; after a kill it stays.
//! whyslow calls fsync(2) for the file before the file gets its name, and for the folder afterwards: after a power cut there is the old
//! file or the new one. On a slow disk this may take long.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::kind_shown;

/// A recording holds command lines and the kernel log: only its owner may read it.
const MODE: u32 = 0o600;
/// Names tried for a temporary file: a killed whyslow that had our pid may have left files with some of these names.
const TRIES: u32 = 100;

type Fill<'f> = &'f mut dyn FnMut(&File) -> io::Result<()>;

/// Lets `fill` write a file, and puts it at `path`, where it replaces an existing file. If a step fails, `path` is as it was.
pub fn put(path: &Path, fill: Fill) -> io::Result<()> {
    replaceable(path)?;
    let _held = FileSizeSignal::hold()?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !put_unnamed(folder, path, fill)? {
        put_named(folder, path, fill)?;
    }
    // Not every file system can sync a folder; the file itself is already on disk.
    let _ = File::open(folder).and_then(|f| f.sync_all());
    Ok(())
}

/// The way out of `error`, as the end of a sentence.
pub fn way_out(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "; free some space, or save to another disk",
        Some(libc::EFBIG) => "; raise the limit of file sizes (ulimit -f), or save to another disk",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => "; save to a folder that you may write to",
        Some(libc::ENOENT) => "; make the folder first",
        _ => "",
    }
}

/// Only a plain file may be replaced. A rename over a device would replace the device (`-o /dev/null`, as root). A link in a folder that
/// other users can write to would let them choose the file that is replaced.
fn replaceable(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => Ok(()),
        Err(e) => Err(e),
        Ok(there) if there.is_file() => Ok(()),
        Ok(there) => {
            let what = kind_shown(there.file_type());
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}; name a plain file")))
        }
    }
}

fn fill_and_sync(file: &File, fill: Fill) -> io::Result<()> {
    fill(file)?;
    file.sync_all()
}

/// Writes by way of an unnamed file. `false`: this file system, or a missing /proc, does not allow it.
fn put_unnamed(folder: &Path, path: &Path, fill: Fill) -> io::Result<bool> {
    let unnamed = OpenOptions::new().write(true).mode(MODE).custom_flags(libc::O_TMPFILE).open(folder);
    let file = match unnamed {
        // EISDIR: kernels before 3.11 do not know the flag.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
            return Ok(false);
        }
        other => other?,
    };
    fill_and_sync(&file, fill)?;
    match link(&file, path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EPERM | libc::EOPNOTSUPP)) => {
            return Ok(false);
        }
        other => return other.map(|()| true),
    }
    // A link does not replace; a rename does, in one step.
    let (_, part) = unused(folder, &mut |part| link(&file, part))?;
    part.rename(path)?;
    Ok(true)
}

fn put_named(folder: &Path, path: &Path, fill: Fill) -> io::Result<()> {
    let (file, part) =
        unused(folder, &mut |part| OpenOptions::new().write(true).create_new(true).mode(MODE).open(part))?;
    fill_and_sync(&file, fill)?;
    part.rename(path)
}

/// A temporary file, removed unless it was renamed.
struct Part(Option<PathBuf>);

impl Part {
    fn rename(mut self, path: &Path) -> io::Result<()> {
        if let Some(part) = &self.0 {
            fs::rename(part, path)?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(part) = &self.0 {
            let _ = fs::remove_file(part);
        }
    }
}

/// Calls `make` with an unused name in `folder`.
fn unused<T>(folder: &Path, make: &mut dyn FnMut(&Path) -> io::Result<T>) -> io::Result<(T, Part)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..TRIES {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let part = folder.join(format!(".whyslow-{}-{n}.part", std::process::id()));
        match make(&part) {
            Ok(made) => return Ok((made, Part(Some(part)))),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

/// Gives an unnamed file a name. By descriptor this needs CAP_DAC_READ_SEARCH (until Linux 6.10, 42bd2af5950456d4);
/// without it, the link goes by way of /proc.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let to = CString::new(path.as_os_str().as_bytes())?;
    let by_proc = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let call = |fd, from: &CString, flags| {
        // SAFETY: both strings end in NUL and outlive the call.
        match unsafe { libc::linkat(fd, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    match call(file.as_raw_fd(), &CString::default(), libc::AT_EMPTY_PATH) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            call(libc::AT_FDCWD, &by_proc, libc::AT_SYMLINK_FOLLOW)
        }
        done => done,
    }
}

/// A write past RLIMIT_FSIZE sends SIGXFSZ, which kills; while it is blocked, the write fails with EFBIG instead.
struct FileSizeSignal {
    before: libc::sigset_t,
}

impl FileSizeSignal {
    fn set() -> libc::sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set, and SIGXFSZ is a signal.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
            set.assume_init()
        }
    }

    fn hold() -> io::Result<Self> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: `before` is written if the call succeeds, and used only then.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &Self::set(), before.as_mut_ptr()) } {
            // SAFETY: the call succeeded, so `before` is written.
            0 => Ok(FileSizeSignal { before: unsafe { before.assume_init() } }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for FileSizeSignal {
    fn drop(&mut self) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the sets are initialised; a null siginfo is allowed. A pending signal is taken before the mask falls.
        unsafe {
            libc::sigtimedwait(&Self::set(), std::ptr::null_mut(), &at_once);
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn without_unnamed_files_a_named_one_is_renamed_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.why");
        put_named(folder.path(), &path, &mut |mut f| f.write_all(b"one")).unwrap();
        put_named(folder.path(), &path, &mut |mut f| f.write_all(b"two")).unwrap();
        let full = put_named(folder.path(), &path, &mut |mut f| {
            f.write_all(b"thr")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        });
        assert_eq!(full.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(folder.path()), ["host.why"]);
    }

    #[test]
    fn a_file_replaces_a_file_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.why");
        for text in ["one", "two"] {
            put(&path, &mut |mut f| f.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        put(&path, &mut |_| Err(io::Error::other("no"))).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(names(folder.path()), ["host.why"]);
    }

    #[test]
    fn a_device_a_link_and_a_folder_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for (path, what) in [
            (Path::new("/dev/null"), "it is a character device; name a plain file"),
            (&link, "it is a symbolic link; name a plain file"),
            (folder.path(), "it is a folder; name a plain file"),
        ] {
            assert_eq!(put(path, &mut |_| Ok(())).unwrap_err().to_string(), what);
        }
    }
}
