//! Files that waits for block devices were about: names for the ids and inodes in the rows.
//!
//! A row holds the file for which its task had queued I/O just before it went to sleep, or the file of the call in which it sleeps. All
//! waits of one process at one device for one operation are reported together: a name for each wait would make as many chains as there
//! are files.

use std::collections::BTreeMap;

use whyslow_model::Recording;
use whyslow_model::table::{IoFile, IoOf};
use whyslow_model::timeline::{Span, State};
use whyslow_model::wait::{Detail, IoAbout, Operation};

use super::Stacks;
use crate::hashing::Table;
use crate::parse::mountinfo::{self, Mount};

/// One file gets all of the time if it has this much of it (in per cent): the rest may be about that file, too.
const ALL: u64 = 90;
/// Below this (in per cent) no file is reported: the rest may be about any file.
const KNOWN: u64 = 50;

/// Process, device, operation.
type Waits = (u32, String, Operation);

/// What is known about waits.
#[derive(Debug, Default)]
pub(super) struct IoFiles(Table<Waits, IoAbout>);

impl IoFiles {
    /// For a recording whose stacks are known already.
    pub fn of(recording: &Recording, stacks: &Stacks<'_>) -> Self {
        let rows = recording.tables.io_files.as_deref().unwrap_or_default();
        let names = Names::of(recording, rows);
        if names.by_id.is_empty() {
            return IoFiles::default();
        }
        let mut waits: BTreeMap<Waits, Shares<'_>> = BTreeMap::new();
        let is_of_device = |span: &&Span| matches!(span.state, State::Io | State::Blocked);
        for span in recording.tables.spans.iter().flatten().filter(is_of_device) {
            if let Detail::Device { device, operation, .. } = super::of(span, stacks).detail {
                let ns = span.woken_ns.saturating_sub(span.at_ns);
                waits.entry((span.tgid, device, operation)).or_default().add(names.about(span), ns);
            }
        }
        IoFiles(waits.into_iter().filter_map(|(waits, shares)| Some((waits, shares.told()?))).collect())
    }

    /// What such a wait was about.
    pub fn about(&self, tgid: u32, device: &str, operation: &Operation) -> Option<IoAbout> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(tgid, device.to_owned(), operation.clone())).cloned()
    }
}

/// The time of some waits, by what they were about.
#[derive(Default)]
struct Shares<'n> {
    all: u64,
    of: BTreeMap<&'n IoAbout, u64>,
}

impl<'n> Shares<'n> {
    fn add(&mut self, about: Option<&'n IoAbout>, ns: u64) {
        self.all = self.all.saturating_add(ns);
        if let Some(about) = about {
            let sum = self.of.entry(about).or_default();
            *sum = sum.saturating_add(ns);
        }
    }

    fn told(self) -> Option<IoAbout> {
        let (most, ns) = self.of.iter().max_by_key(|(_, ns)| **ns)?;
        let is_part =
            |ns: u64, percent: u64| u128::from(ns) * 100 >= u128::from(self.all) * u128::from(percent);
        if is_part(*ns, ALL) {
            return Some((*most).clone());
        }
        let known = self.of.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        if !is_part(known, KNOWN) || self.of.len() < 2 {
            return None;
        }
        let count = self.of.len();
        let in_folder = common_folder(self.of.keys()).map(|folder| IoAbout::FilesIn { count, folder });
        in_folder.or_else(|| Some(IoAbout::Several { count, most: Box::new((*most).clone()) }))
    }
}

/// The folder that holds all of them; the root does not count.
fn common_folder<'n>(of: impl Iterator<Item = &'n &'n IoAbout>) -> Option<String> {
    let mut common: Option<&str> = None;
    for about in of {
        let IoAbout::File { path, .. } = about else { return None };
        let (folder, _) = path.rsplit_once('/')?;
        common = Some(match common {
            None => folder,
            Some(known) => both(known, folder),
        });
    }
    common.filter(|folder| folder.starts_with('/') && folder.len() > 1).map(str::to_owned)
}

/// The common part of two folders.
fn both<'p>(one: &'p str, other: &str) -> &'p str {
    let mut end = 0;
    for (part, is) in one.split('/').zip(other.split('/')) {
        if part != is {
            break;
        }
        end += part.len() + 1;
    }
    one.get(..end.saturating_sub(1).min(one.len())).unwrap_or_default()
}

/// Names by id, and by inode.
struct Names {
    by_id: Table<u32, IoAbout>,
    by_inode: Table<(String, u64), IoAbout>,
}

impl Names {
    fn of(recording: &Recording, rows: &[IoFile]) -> Self {
        let mounts = recording.last("proc/self/mountinfo").ok();
        let mounts = mounts.and_then(|file| mountinfo::parse(&String::from_utf8_lossy(&file.bytes)).ok());
        let mounts = mounts.unwrap_or_default();
        let mut names = Names { by_id: Table::default(), by_inode: Table::default() };
        for row in rows.iter().filter(|row| row.id != 0) {
            let Some(about) = about(row, &mounts) else { continue };
            if row.of == IoOf::File {
                names.by_inode.insert((row.file_dev.clone(), row.ino), about.clone());
            }
            names.by_id.insert(row.id, about);
        }
        names
    }

    fn about(&self, span: &Span) -> Option<&IoAbout> {
        let target = span.target.as_ref().filter(|target| target.kind == "file");
        match target.and_then(|target| self.by_inode.get(&(target.dev.clone(), target.ino))) {
            Some(about) => Some(about),
            None => self.by_id.get(&span.io_file),
        }
    }
}

/// A row's file, by its path on the host.
pub(crate) fn about(row: &IoFile, mounts: &[Mount]) -> Option<IoAbout> {
    let mounted = || mounts.iter().filter(|mount| mount.dev == row.file_dev);
    let whole = mounted().find(|mount| mount.root == "/");
    let device = || {
        whole
            .or_else(|| mounted().next())
            .and_then(|mount| Some(mount.source.strip_prefix("/dev/")?.to_owned()))
    };
    match row.of {
        IoOf::Unknown => None,
        // A device that is not mounted: its contents are not known.
        IoOf::Blocks => {
            mounted().next().map(|_| IoAbout::Metadata(device().unwrap_or_else(|| row.device.clone())))
        }
        IoOf::Journal => Some(IoAbout::Journal(device().unwrap_or_else(|| row.device.clone()))),
        IoOf::File if row.path.is_empty() => {
            let of = whole.map_or_else(|| row.device.clone(), |mount| mount.point.clone());
            Some(IoAbout::Inode { ino: row.ino, of })
        }
        IoOf::File => Some(IoAbout::File { path: on_host(row, mounted(), whole), deleted: row.deleted }),
    }
}

/// The path of the file on the host: below a mount of its file system. If that is not mounted here (a container's own), the path is
/// relative to its device.
fn on_host<'m>(row: &IoFile, mounted: impl Iterator<Item = &'m Mount>, whole: Option<&Mount>) -> String {
    if !row.path.starts_with('/') {
        return row.path.clone(); // "...": folders above are not known
    }
    if let Some(mount) = whole {
        return below(&mount.point, &row.path);
    }
    let rest = |mount: &'m Mount| {
        Some((mount, row.path.strip_prefix(&mount.root)?)).filter(|(_, rest)| rest.starts_with('/'))
    };
    match mounted.filter_map(rest).max_by_key(|(mount, _)| mount.root.len()) {
        Some((mount, rest)) => below(&mount.point, rest),
        None => format!("{}:{}", row.device, row.path),
    }
}

fn below(point: &str, path: &str) -> String {
    if point == "/" { path.to_owned() } else { format!("{point}{path}") }
}

#[cfg(test)]
#[path = "io_files_tests.rs"]
mod tests;
