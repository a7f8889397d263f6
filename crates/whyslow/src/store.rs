//! Recordings on disk: one file, `host.why`, a tar compressed with zstd; unpacked it is a folder, and a folder is a
//! host. The format is described in `docs/recording.md`.
//!
//! Whoever opens a recording trusts nothing in it: sizes, names and contents may have been made to hurt. `open`
//! needs nothing but the file: no /proc, no locale, no home.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use whyslow_model::Recording;

mod archive;
mod atomic_write;
mod folder;
mod lines;
mod loader;
mod names;
mod old_names;
mod order;
mod tables;
mod tar_reader;
mod write;
mod zstd_frames;

/// What stops the reading of a recording.
#[derive(Debug)]
enum Halt {
    /// The bytes end, or make no sense from here on: what came before is good.
    Tear(String),
    /// Not a recording, or one that was made to hurt: nothing of it is used.
    Refuse(String),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Halt::Tear(shown(&error.to_string()))
    }
}

/// Bounds of what is believed. A recording of a host with 5,000 tasks unpacks to about 10 MB.
mod limit {
    /// Unpacked bytes read from one recording.
    pub const TOTAL: u64 = 1 << 30;
    /// Memory for what is kept of it, about. 100,000 tasks and as many cgroups take 250 MB by this count.
    pub const KEPT: u64 = 640 << 20;
    /// One kernel file. The largest that is recorded (/proc/interrupts with 4096 CPUs) has some 10 MB.
    pub const SNAPSHOT: u64 = 64 << 20;
    /// `whyslow.json`; one line of a table (a stack of 127 frames with C++ names has some 50 kB).
    pub const TEXT: u64 = 1 << 20;
    /// Directory entries looked at in a folder.
    pub const ENTRIES: usize = 500_000;
    /// Depth of a folder. /sys/devices is about 20 deep.
    pub const DEPTH: usize = 40;
}

/// Write `rec` to `path`, which then holds all of it; if this fails, `path` is as it was before.
///
/// # Errors
/// Where the target cannot be written: no such directory, disk full, not a plain file.
pub fn save(rec: &Recording, path: &Path) -> Result<()> {
    let written = atomic_write::put(path, &mut |file| write::write(rec, file).map(drop));
    written.map_err(|e| failed("save recording", path, &e))
}

/// Write `text` to `path` in the same way. `verb`: what the user is reported if that fails.
///
/// # Errors
/// As of [`save`].
pub fn put(text: &str, path: &Path, verb: &str) -> Result<()> {
    atomic_write::put(path, &mut |mut file| file.write_all(text.as_bytes()))
        .map_err(|e| failed(verb, path, &e))
}

fn failed(verb: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot {verb} {}: {error}{}", path_shown(path), atomic_write::way_out(error))
}

/// Call `see` with the name and all lines of each table, as they are written.
pub fn each_table(tables: &whyslow_model::table::Tables, see: &mut dyn FnMut(&str, String)) {
    tables::each(tables, &mut |name, _, rows| {
        let mut lines = Vec::new();
        (0..rows.count()).for_each(|at| drop(rows.write(at, &mut lines)));
        see(name, String::from_utf8_lossy(&lines).into_owned());
    });
}

/// Open a recording: a file, a folder with its contents, a folder that holds copies of /proc and /sys, or "-", standard input.
///
/// A file that is cut off or damaged opens up to that place; `Recording::torn` says so.
///
/// # Errors
/// Where there is no recording, not even the beginning of one.
pub fn open(path: &Path) -> Result<Recording> {
    read(path).with_context(|| format!("cannot open recording {}", path_shown(path)))
}

fn read(path: &Path) -> Result<Recording> {
    if path == Path::new("-") {
        let opened = archive::open(io::stdin());
        return opened.map_err(|(Halt::Tear(why) | Halt::Refuse(why))| anyhow!(why));
    }
    // Asked before opening, because opening some devices does something (a watchdog starts, a tape rewinds).
    let kind = fs::metadata(path)?.file_type();
    let opened = if kind.is_dir() {
        folder::open(path)
    } else if kind.is_file() {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        archive::open(OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(denied)?)
    } else {
        Err(Halt::Refuse(format!("it is {}; name a file or a folder", kind_shown(kind))))
    };
    opened.map_err(|(Halt::Tear(why) | Halt::Refuse(why))| anyhow!(why))
}

/// A recording made as root and reported by somebody else is the usual way to get here.
fn denied(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::PermissionDenied => io::Error::new(
            kind,
            format!("{error}; only its owner may read it: chmod it, or run as its owner"),
        ),
        _ => error,
    }
}

/// What sort of thing a path leads to.
fn kind_shown(kind: fs::FileType) -> &'static str {
    match kind {
        k if k.is_fifo() => "a FIFO",
        k if k.is_char_device() => "a character device",
        k if k.is_block_device() => "a block device",
        k if k.is_socket() => "a socket",
        k if k.is_dir() => "a folder",
        k if k.is_symlink() => "a symbolic link",
        _ => "a file",
    }
}

/// A name from a path, a file or the kernel, fit for a terminal: no control characters, no more than a line.
fn shown(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut out = String::new();
    for c in text.chars() {
        if out.len() > LONGEST {
            out.push_str("...");
            break;
        }
        match c {
            ' '..='~' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            c => out.extend(c.escape_default()),
        }
    }
    out
}

fn path_shown(path: &Path) -> String {
    shown(&path.to_string_lossy())
}
