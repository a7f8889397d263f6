//! Recordings on disk: one file, `host.why`, a tar compressed with zstd. An unpacked recording is a folder, and can be examined as one.
//! `docs/recording.md` describes the format.
//!
//! The reader trusts nothing in a recording: sizes, names and contents may be malicious. `open` needs nothing but the file: no /proc, no
//! locale, no home.

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

/// The reason why the reading of a recording stops.
#[derive(Debug)]
enum Halt {
    /// The bytes end, or are damaged from here on: the part before is good.
    Tear(String),
    /// The file is not a recording, or is malicious: nothing of it is used.
    Refuse(String),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Halt::Tear(shown(&error.to_string()))
    }
}

/// Bounds for a recording. A recording of a host with 5,000 tasks unpacks to about 10 MB.
mod limit {
    /// Unpacked bytes read from one recording.
    pub const TOTAL: u64 = 1 << 30;
    /// Memory for the parts that are kept, estimated. 100,000 tasks and as many cgroups take 250 MB by this estimate.
    pub const KEPT: u64 = 640 << 20;
    /// Size of one kernel file. The largest recorded file (/proc/interrupts with 4096 CPUs) has some 10 MB.
    pub const SNAPSHOT: u64 = 64 << 20;
    /// Size of `whyslow.json`, and of one line of a table (a stack of 127 frames with C++ names has some 50 kB).
    pub const TEXT: u64 = 1 << 20;
    /// Directory entries that are read of a folder.
    pub const ENTRIES: usize = 500_000;
    /// Depth of a folder. /sys/devices is about 20 deep.
    pub const DEPTH: usize = 40;
}

/// Writes `rec` to `path`, which then holds the whole recording; if this fails, `path` is as it was before.
///
/// # Errors
/// Where the target cannot be written: no such directory, disk full, not a plain file.
pub fn save(rec: &Recording, path: &Path) -> Result<()> {
    let written = atomic_write::put(path, &mut |file| write::write(rec, file).map(drop));
    written.map_err(|e| failed("save recording", path, &e))
}

/// Writes `text` to `path` in the same way. `verb`: the verb of the error message, "cannot VERB PATH".
///
/// # Errors
/// As [`save`].
pub fn put(text: &str, path: &Path, verb: &str) -> Result<()> {
    atomic_write::put(path, &mut |mut file| file.write_all(text.as_bytes()))
        .map_err(|e| failed(verb, path, &e))
}

fn failed(verb: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot {verb} {}: {error}{}", path_shown(path), atomic_write::way_out(error))
}

/// Calls `see` with the name and all lines of each table, as they are written.
pub fn each_table(tables: &whyslow_model::table::Tables, see: &mut dyn FnMut(&str, String)) {
    tables::each(tables, &mut |name, _, rows| {
        let mut lines = Vec::new();
        (0..rows.count()).for_each(|at| drop(rows.write(at, &mut lines)));
        see(name, String::from_utf8_lossy(&lines).into_owned());
    });
}

/// Opens a recording: a file, a folder with an unpacked recording, a folder with copies of /proc and /sys, or "-", standard input.
///
/// A file that is cut off or damaged is read up to that place; `Recording::torn` says so.
///
/// # Errors
/// There is no recording, not even the beginning of one.
pub fn open(path: &Path) -> Result<Recording> {
    read(path).with_context(|| format!("cannot open recording {}", path_shown(path)))
}

fn read(path: &Path) -> Result<Recording> {
    if path == Path::new("-") {
        let opened = archive::open(io::stdin());
        return opened.map_err(|(Halt::Tear(why) | Halt::Refuse(why))| anyhow!(why));
    }
    // The type is read before the open, because an open has an effect on some devices (a watchdog starts, a tape rewinds).
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

/// The usual case: root made the recording, and another user reports on it.
fn denied(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::PermissionDenied => io::Error::new(
            kind,
            format!("{error}; only its owner may read it: chmod it, or run as its owner"),
        ),
        _ => error,
    }
}

/// The type of the file at a path, in words.
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

/// A name from a path, a file or the kernel, made safe for a terminal: no control characters, at most one line.
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
