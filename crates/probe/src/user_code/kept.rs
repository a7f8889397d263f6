//! The files whose code runs, as the child keeps them: opened when they are met, and closed when they are not used any more, so that
//! a long window keeps no file system busy and no deleted file on its disk.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use blazesym::symbolize::Symbolizer;

use super::open::Told;
use super::symbols_of::CodeFile;

/// A file that was not used for so long is closed.
const IDLE: Duration = Duration::from_secs(10);

/// A file, and what was read of it.
pub struct Open {
    /// Its code.
    pub code: CodeFile,
    /// Only for this file: it is known by its descriptor's number, which another file gets after the close.
    pub symbolizer: Symbolizer,
}

impl Open {
    fn of(code: CodeFile) -> Self {
        let symbolizer = Symbolizer::builder().enable_code_info(false).enable_auto_reload(false).build();
        Open { code, symbolizer }
    }
}

struct Known {
    told: Option<Told>,
    open: Option<Open>,
    used: Instant,
    /// When its content was last changed, as seen at the first opening: a file that is rewritten in place has other code.
    changed: Option<(i64, i64)>,
}

/// All files that were met.
#[derive(Default)]
pub struct Files {
    known: HashMap<u32, Known>,
    /// Files on other hosts, or for which a process has to answer: they are opened last, because opening may never end.
    remote: VecDeque<Told>,
    closed: Option<Instant>,
}

impl Files {
    /// Add a file that is open already.
    pub fn keep(&mut self, file: u32, code: CodeFile) {
        let known =
            Known { told: None, changed: code.changed(), open: Some(Open::of(code)), used: Instant::now() };
        self.known.insert(file, known);
    }

    /// Add a file that was met.
    pub fn meet(&mut self, told: Told) {
        if told.is_remote() {
            self.remote.push_back(told);
            return;
        }
        self.open(told);
    }

    fn open(&mut self, told: Told) {
        let code = CodeFile::open(&told);
        let changed = code.changed();
        let open = Some(Open::of(code));
        self.known.insert(told.index, Known { changed, open, used: Instant::now(), told: Some(told) });
    }

    /// The file was met, but may not be opened yet.
    pub fn is_put_off(&self, file: u32) -> bool {
        self.remote.iter().any(|told| told.index == file)
    }

    /// Open the next file that was put off: its number.
    pub fn open_next(&mut self) -> Option<u32> {
        let told = self.remote.pop_front()?;
        let file = told.index;
        self.open(told);
        Some(file)
    }

    /// The file, opened again if needed.
    pub fn get(&mut self, file: u32) -> Option<&Open> {
        let known = self.known.get_mut(&file)?;
        known.used = Instant::now();
        if let (None, Some(told)) = (&known.open, &known.told) {
            let code = CodeFile::open(told);
            let is_it = known.changed.is_none_or(|first| code.changed() == Some(first));
            known.open = Some(Open::of(if is_it { code } else { CodeFile::not_found(told) }));
        }
        known.open.as_ref()
    }

    /// Close the files that are not used any more.
    pub fn close_idle(&mut self, now: Instant) {
        if self.closed.is_some_and(|at| now.duration_since(at) < IDLE / 10) {
            return;
        }
        self.closed = Some(now);
        for known in self.known.values_mut().filter(|known| known.told.is_some()) {
            if now.saturating_duration_since(known.used) >= IDLE {
                known.open = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn told(index: u32, path: &std::path::Path, fs: &str) -> Told {
        let about = std::fs::metadata(path).unwrap();
        let (ino, size) = (about.ino(), about.len());
        let tgid = std::process::id();
        Told { index, tgid, ino, size, path: path.to_owned(), fs: fs.to_owned(), ..Told::default() }
    }

    fn is_open(path: &std::path::Path) -> bool {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let opened = links.filter_map(|one| std::fs::read_link(one.path()).ok()).any(|to| to == path);
        opened || std::fs::read_to_string("/proc/self/maps").unwrap().contains(path.to_str().unwrap())
    }

    #[test]
    fn a_file_that_nobody_asks_for_is_closed_and_opened_again_when_somebody_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::copy("/proc/self/exe", &path).unwrap();
        let mut files = Files::default();
        files.meet(told(7, &path, "ext4"));
        assert!(files.get(7).is_some() && is_open(&path));
        files.close_idle(Instant::now());
        assert!(is_open(&path), "it was just used");
        files.closed = None;
        files.close_idle(Instant::now() + IDLE);
        assert!(!is_open(&path), "nothing keeps it busy");
        let rows = files.get(7).and_then(|open| open.code.rows(0));
        assert!(rows.is_some() || is_open(&path), "opened again");
        // A file that is overwritten in place has the same inode number, and may have the same size.
        files.closed = None;
        files.close_idle(Instant::now() + IDLE);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert!(files.get(7).is_some_and(|open| !open.code.is_open()), "another file");
    }

    #[test]
    fn file_on_nfs_is_put_off_until_open_next() {
        let mut files = Files::default();
        let exe = std::env::current_exe().unwrap();
        files.meet(told(3, &exe, "nfs4"));
        assert!(files.get(3).is_none() && files.is_put_off(3));
        assert_eq!((files.open_next(), files.open_next()), (Some(3), None));
        assert!(files.get(3).is_some() && !files.is_put_off(3));
    }
}
