//! Opens the file that a process runs: also a deleted file, or one that only that process's mount namespace has.
//!
//! Done by the child: a disk may be dead. Only the last attempt takes the process's mmap_lock: for a file that no path leads to.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Types of file systems (`file_system_type.name`) on another host, or served by a process. `virtiofs` is the usual root of a guest.
const REMOTE: [&str; 15] = [
    "nfs", "nfs4", "cifs", "smb3", "fuse", "fuseblk", "ceph", "afs", "coda", "lustre", "gpfs", "beegfs",
    "pvfs2", "autofs", "9p",
];

/// A file as the kernel half reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Its number.
    pub index: u32,
    /// The process that runs it.
    pub tgid: u32,
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Where it is mapped.
    pub area: (u64, u64),
    /// It was deleted: no folder has it any more.
    pub is_deleted: bool,
    /// The type of its file system.
    pub fs: String,
    /// The path that its owner sees.
    pub path: PathBuf,
}

impl Told {
    /// From the kernel half's record (`struct user_file`).
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let four = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let eight = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let length = usize::try_from(four(52)?).ok()?;
        Some(Told {
            index: four(4)?,
            tgid: four(12)?,
            ino: eight(16)?,
            size: eight(24)?,
            area: (eight(32)?, eight(40)?),
            is_deleted: four(48)? == 0,
            fs: text(bytes.get(56..72)?),
            path: path(bytes.get(72..)?.get(..length)?),
        })
    }

    /// Whether opening it may last for ever: another host, or a process, has to answer.
    pub fn is_remote(&self) -> bool {
        REMOTE.contains(&self.fs.as_str())
    }

    /// Its name in texts.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Open it; returns the path, too, because debug files may lie beside it.
    pub fn open(&self) -> Option<(File, PathBuf)> {
        let below = |root: &str| {
            let inner = self.path.strip_prefix("/").unwrap_or(&self.path);
            Path::new(root).join(inner)
        };
        let tgid = self.tgid;
        // First the path as that process sees it: at the same path here a dead disk may be mounted. The number of a process in a pid
        // namespace below ours is not known.
        let own = || [below(&format!("/proc/{tgid}/root")), format!("/proc/{tgid}/exe").into()];
        let [in_root, exe] = (tgid != 0).then(own).map_or([None, None], |paths| paths.map(Some));
        let mut paths = [in_root, Some(self.path.clone()), exe].into_iter().flatten();
        let found = paths.find_map(|path| Some((self.is_it(&path)?, path)));
        found.or_else(|| {
            let (from, to) = self.area;
            let path = PathBuf::from(format!("/proc/{tgid}/map_files/{from:x}-{to:x}"));
            let file = opened(&path)?;
            (file.metadata().ok()?.len() == self.size).then_some((file, path))
        })
    }

    /// Overlay file systems and btrfs have device numbers of their own: inode number and size identify the file.
    fn is_it(&self, path: &Path) -> Option<File> {
        let about = std::fs::metadata(path).ok()?;
        let is_it = |about: &std::fs::Metadata| {
            about.is_file() && about.ino() == self.ino && about.len() == self.size
        };
        if !is_it(&about) {
            return None;
        }
        let file = opened(path)?;
        is_it(&file.metadata().ok()?).then_some(file)
    }
}

/// A file that became a FIFO before it is opened must not block us.
fn opened(path: &Path) -> Option<File> {
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// A path from its parts: the last first, each with a zero after it.
fn path(parts: &[u8]) -> PathBuf {
    let mut text = Vec::new();
    let parts: Vec<&[u8]> = parts.split(|byte| *byte == 0).filter(|part| !part.is_empty()).collect();
    for part in parts.iter().rev() {
        text.push(b'/');
        text.extend(*part);
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(file: &Path, path: &Path) -> Told {
        let about = std::fs::metadata(file).unwrap();
        Told {
            tgid: std::process::id(),
            ino: about.ino(),
            size: about.len(),
            path: path.to_owned(),
            ..Told::default()
        }
    }

    #[test]
    fn a_path_is_told_from_its_end() {
        assert_eq!(path(b"gzip\0bin\0usr\0"), Path::new("/usr/bin/gzip"));
        assert_eq!(path(b""), Path::new(""));
    }

    #[test]
    fn another_file_of_that_path_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        std::fs::write(&one, "a").unwrap();
        std::fs::write(&other, "b").unwrap();
        let below_root = PathBuf::from(format!("/proc/{}/root{}", std::process::id(), one.display()));
        assert_eq!(told(&one, &one).open().unwrap().1, below_root);
        let gone = Told { tgid: 0, ..told(&one, &one) };
        assert_eq!(gone.open().unwrap().1, one, "by its path, after the process has ended");
        assert!(told(&one, &other).open().is_none(), "number");
        assert!(Told { size: 2, ..told(&one, &one) }.open().is_none(), "size");
    }

    #[test]
    fn a_program_that_is_not_where_it_was_is_found_by_its_process() {
        let exe = std::env::current_exe().unwrap();
        let (_, path) = told(&exe, Path::new("/no/such/file")).open().unwrap();
        assert_eq!(path, PathBuf::from(format!("/proc/{}/exe", std::process::id())));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
            let _ = Told::of(&bytes);
        }
    }
}
