//! Network namespaces: each is read through a task that lives in it.
//!
//! A namespace has no directory of its own in /proc, only its tasks have: `/proc/PID/net`. A task's directory is kept
//! open: after the task's end it answers ESRCH, and never with the files of a later task of the same number.
//! Not seen: namespaces without a task (bind mounts under /run/netns). Nor is it seen if a namespace ended in the window and a
//! new one got its inode: its counters then seem to go backwards. Holding a namespace open would show that, but keep it alive.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::budget::Budget;
use super::devices::Device;
use super::root::{Root, fill, open_below, regular};

/// One network namespace.
#[derive(Debug)]
struct Namespace {
    inode: u64,
    task: OwnedFd,
}

/// The network namespaces of a live host.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    all: Vec<Namespace>,
    /// Namespaces beyond the cap.
    pub left: usize,
    /// Tasks whose namespace we may not see.
    pub hidden: usize,
    /// Time ran out before all tasks were seen.
    pub unfinished: bool,
}

impl Namespaces {
    /// Checks every process, as long as the budget lasts; keeps `most` namespaces, ours first.
    pub fn find(root: &Root, most: usize, budget: Budget) -> Namespaces {
        let mut found = Namespaces::default();
        let Ok(proc) = root.open_at(c"proc", libc::O_PATH) else { return found };
        found.visit(&proc, c"self", most);
        let mut left = std::collections::BTreeSet::new();
        let mut seen = 0_u32;
        let _ = root.list(c"proc", |name, _| {
            seen = seen.wrapping_add(1);
            if seen.is_multiple_of(128) && budget.spent() {
                found.unfinished = true;
                return false;
            }
            if name.first().is_some_and(u8::is_ascii_digit)
                && let Ok(pid) = CString::new(name)
                && let Some(inode) = found.visit(&proc, &pid, most)
                && left.len() < 10_000
            {
                left.insert(inode);
            }
            true
        });
        found.left = left.len();
        found
    }

    /// Takes the task's namespace, if it is new. Returns its inode if there is no room.
    fn visit(&mut self, proc: &OwnedFd, pid: &CStr, most: usize) -> Option<u64> {
        let mut link = [0_u8; 32]; // "4194304/ns/net"
        let text = [pid.to_bytes(), b"/ns/net\0"].concat();
        link.get_mut(..text.len())?.copy_from_slice(&text);
        let inode = match namespace(proc, CStr::from_bytes_until_nul(&link).ok()?) {
            Ok(inode) => inode,
            Err(err) => {
                self.hidden += usize::from(err.kind() == io::ErrorKind::PermissionDenied);
                return None;
            }
        };
        if self.all.iter().any(|known| known.inode == inode) {
            return None;
        }
        if self.all.len() >= most {
            return Some(inode);
        }
        let fd = open_below(proc.as_raw_fd(), pid, true, libc::O_PATH).ok()?;
        // SAFETY: just opened.
        self.all.push(Namespace { inode, task: unsafe { OwnedFd::from_raw_fd(fd) } });
        None
    }

    /// As devices that patterns can name.
    pub fn devices(&self) -> Vec<Device> {
        self.all.iter().map(|ns| Device::new(ns.inode.to_string().as_bytes(), true)).collect()
    }

    /// Reads `netns/<inode>/<file>`. ESRCH: no task that we know is in that namespace any more.
    pub fn read(&self, path: &CStr, cap: usize, into: &mut Vec<u8>) -> io::Result<bool> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let text = path.to_str().map_err(|_| gone())?;
        let (inode, file) =
            text.strip_prefix("netns/").and_then(|rest| rest.split_once('/')).ok_or_else(gone)?;
        let known = self.all.iter().find(|ns| inode.parse() == Ok(ns.inode)).ok_or_else(gone)?;
        if namespace(&known.task, c"ns/net").ok() != Some(known.inode) {
            return Err(gone()); // it has ended, or moved
        }
        let file = CString::new(file).map_err(|_| gone())?;
        let fd = open_below(known.task.as_raw_fd(), &file, true, libc::O_NONBLOCK)?;
        // SAFETY: just opened.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        regular(fd.as_raw_fd())?;
        fill(fd.as_raw_fd(), cap, into)
    }

    /// Whether a task through which a namespace is read has ended or moved.
    pub fn lost_one(&self) -> bool {
        self.all.iter().any(|ns| namespace(&ns.task, c"ns/net").ok() != Some(ns.inode))
    }
}

/// The inode in a link like `net:[4026531840]`.
fn namespace(dir: &OwnedFd, link: &CStr) -> io::Result<u64> {
    let mut text = [0_u8; 64];
    // SAFETY: `text` is writable for its length.
    let got =
        unsafe { libc::readlinkat(dir.as_raw_fd(), link.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let text = text.get(..got as usize).unwrap_or_default();
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn here(most: usize) -> Namespaces {
        Namespaces::find(&Root::open(Path::new("/")), most, Budget::new(LONG, LONG))
    }

    #[test]
    fn our_own_namespace_comes_first_and_can_be_read() {
        let found = here(256);
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let name = &found.devices()[0].name;
        assert_eq!(own.to_str().unwrap(), format!("net:[{name}]"));
        let mut text = Vec::new();
        let path = CString::new(format!("netns/{name}/net/dev")).unwrap();
        assert!(found.read(&path, 1 << 20, &mut text).unwrap());
        assert!(String::from_utf8_lossy(&text).contains("lo:"));
        assert!(!found.lost_one());
    }

    #[test]
    fn a_namespace_that_is_not_there_is_gone() {
        let mut text = Vec::new();
        let err = here(1).read(c"netns/1/net/dev", 100, &mut text).unwrap_err();
        assert_eq!(err.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn time_that_ran_out_is_reported() {
        let root = Root::open(Path::new("/"));
        let found = Namespaces::find(&root, 256, Budget::new(LONG, Duration::ZERO));
        // The clock is read every 128 entries; every Linux has more than that in /proc, or all were seen.
        assert!(found.unfinished || std::fs::read_dir("/proc").unwrap().count() < 400);
        assert_eq!(found.devices().len().min(1), 1);
    }
}
