//! Which process queued block I/O about which file: from the rows of `block_files.bpf.h` to a table.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use whyslow_model::table::{IoFile, IoOf};

use super::skel::types::{blkio_flight, block_file, file_io, file_io_key};
use super::taken::Taken;
use super::{device_name, number, op_word};
use crate::bpf::constants::block_files_h;
use crate::bpf::{text, value};
use crate::redact;

/// Rows that are kept: the most expensive ones. The others are summed by device and direction.
const MOST_ROWS: usize = 1000;

// SAFETY: generated from the C struct; integers and bytes, without padding.
unsafe impl plain::Plain for block_file {}
// SAFETY: as above.
unsafe impl plain::Plain for file_io {}
// SAFETY: as above.
unsafe impl plain::Plain for file_io_key {}

/// Rows of the kernel half that were not taken yet.
pub(super) struct Seen {
    /// (key, row).
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Files that have an id.
    pub files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Requests at the device.
    pub flights: Vec<(Vec<u8>, Vec<u8>)>,
    /// When this was read.
    pub now: u64,
}

/// Device, direction, process, file.
pub(super) type Key = (u32, u32, u32, u32);

pub(super) fn parts(key: &file_io_key) -> Key {
    (key.dev, key.op, key.tgid, key.file)
}

/// One row of the kernel half.
pub(super) fn row(row: &file_io) -> IoFile {
    IoFile {
        comm: text(&row.comm),
        requests: row.requests,
        bytes: row.bytes,
        device_ns: row.device_ns,
        device_worst_ns: row.device_worst_ns,
        queue_ns: row.queue_ns,
        ahead: row.ahead,
        ..IoFile::default()
    }
}

/// One row per (process, device, direction, file), the most expensive first.
pub(super) fn rows(seen: &Seen, taken: &Taken, root: &Path) -> Vec<IoFile> {
    let mut files: HashMap<u32, &IoFile> = taken.files.iter().map(|(id, file)| (*id, file)).collect();
    let told = seen.files.iter().map(|(_, file)| value::<block_file>(file));
    let told: Vec<(u32, IoFile)> =
        told.filter(|file| file.id != 0).map(|file| (file.id, about(IoFile::default(), &file))).collect();
    files.extend(told.iter().map(|(id, file)| (*id, file)));
    let mut rows = taken.rows.clone();
    for (key, noted) in &seen.rows {
        add(rows.entry(parts(&value(key))).or_default(), &row(&value(noted)));
    }
    for (_, flight) in &seen.flights {
        let flight: blkio_flight = value(flight);
        let open = seen.now.saturating_sub(flight.issued);
        let row = rows.entry((flight.key.dev, flight.key.op, flight.tgid, flight.file)).or_default();
        row.comm = text(&flight.comm);
        row.device_ns = row.device_ns.saturating_add(open);
        row.queue_ns = row.queue_ns.saturating_add(flight.queue_ns);
        row.device_worst_ns = row.device_worst_ns.max(open);
    }
    let rows = rows.into_iter().map(|((dev, op, tgid, id), row)| {
        let dev = number(dev);
        let device = device_name(root, &dev);
        let row = IoFile { id, tgid, op: op_word(op).to_owned(), dev, device, ..row };
        match files.get(&id).map(|file| IoFile::clone(file)) {
            Some(IoFile { of, path, file_dev, ino, deleted, .. }) => {
                IoFile { of, path, file_dev, ino, deleted, ..row }
            }
            None => IoFile { id: 0, ..row },
        }
    });
    fewer(rows.collect())
}

pub(super) fn about(row: IoFile, file: &block_file) -> IoFile {
    let of = match file.kind {
        block_files_h::OF_FILE => IoOf::File,
        block_files_h::OF_BLOCKS => IoOf::Blocks,
        block_files_h::OF_JOURNAL => IoOf::Journal,
        _ => IoOf::Unknown,
    };
    let path = redact::path(&path(file));
    IoFile { of, path, file_dev: number(file.dev), ino: file.ino, deleted: file.deleted != 0, ..row }
}

/// Its parts, last one first, each ends with a 0.
fn path(file: &block_file) -> String {
    let text: Vec<u8> = file.text.iter().take(file.size as usize).map(|c| *c as u8).collect();
    let mut parts: Vec<&[u8]> = text.split(|byte| *byte == 0).filter(|part| !part.is_empty()).collect();
    // A part that was cut has no end.
    let is_whole = text.last().is_none_or(|byte| *byte == 0);
    if !is_whole {
        parts.pop();
    }
    if parts.is_empty() {
        return String::new();
    }
    let mut path = if file.cut != 0 || !is_whole { "...".to_owned() } else { String::new() };
    for part in parts.iter().rev() {
        path.push('/');
        path.push_str(&String::from_utf8_lossy(part));
    }
    path
}

/// The most expensive rows stay. The rest is one row per (device, direction, process), and where these are too many, too, one per (device,
/// direction).
fn fewer(mut rows: Vec<IoFile>) -> Vec<IoFile> {
    let rest = cheapest(&mut rows);
    let mut by_process = summed(rest, |row| row.tgid);
    let rest = cheapest(&mut by_process);
    rows.extend(by_process);
    rows.extend(summed(rest, |_| 0));
    rows
}

fn cheapest(rows: &mut Vec<IoFile>) -> Vec<IoFile> {
    rows.sort_by(|a, b| {
        let ns = |row: &IoFile| row.device_ns.saturating_add(row.queue_ns);
        let by = |row: &IoFile| (std::cmp::Reverse((ns(row), row.bytes)), row.tgid, row.id);
        by(a).cmp(&by(b)).then_with(|| (&a.dev, &a.op).cmp(&(&b.dev, &b.op)))
    });
    rows.split_off(rows.len().min(MOST_ROWS))
}

fn summed(rows: Vec<IoFile>, process: fn(&IoFile) -> u32) -> Vec<IoFile> {
    let mut sums: BTreeMap<(String, String, u32), IoFile> = BTreeMap::new();
    for row in rows {
        let tgid = process(&row);
        let sum = sums.entry((row.dev.clone(), row.op.clone(), tgid)).or_insert_with(|| IoFile {
            tgid,
            dev: row.dev.clone(),
            device: row.device.clone(),
            op: row.op.clone(),
            ..IoFile::default()
        });
        sum.folded = sum.folded.saturating_add(row.folded).saturating_add(1);
        let comm = if tgid == 0 { String::new() } else { row.comm.clone() };
        add(sum, &IoFile { comm, ..row });
    }
    sums.into_values().collect()
}

/// Add the counts of another row.
pub(super) fn add(sum: &mut IoFile, row: &IoFile) {
    if sum.comm.is_empty() {
        sum.comm.clone_from(&row.comm);
    }
    sum.requests = sum.requests.saturating_add(row.requests);
    sum.bytes = sum.bytes.saturating_add(row.bytes);
    sum.device_ns = sum.device_ns.saturating_add(row.device_ns);
    sum.device_worst_ns = sum.device_worst_ns.max(row.device_worst_ns);
    sum.queue_ns = sum.queue_ns.saturating_add(row.queue_ns);
    sum.ahead = sum.ahead.saturating_add(row.ahead);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &[u8], cut: u32) -> block_file {
        let mut file = block_file { size: text.len() as u32, cut, ..block_file::default() };
        for (to, byte) in file.text.iter_mut().zip(text) {
            *to = *byte as std::ffi::c_char;
        }
        file
    }

    #[test]
    fn a_path_is_put_together_from_its_last_part() {
        assert_eq!(path(&file(b"x\0data\0srv\0", 0)), "/srv/data/x");
        assert_eq!(path(&file(b"x\0data\0", 1)), ".../data/x");
        assert_eq!(path(&file(b"x\0data\0sr", 1)), ".../data/x", "half a name is none");
        assert_eq!(path(&file(b"", 0)), "", "no dentry");
        assert_eq!(path(&block_file { size: u32::MAX, ..block_file::default() }), "");
        assert_eq!(path(&file(b"a\xffb\0", 0)), "/a\u{fffd}b");
    }

    #[test]
    fn cheap_rows_are_summed() {
        let row = |n: u64| IoFile {
            device_ns: n,
            device_worst_ns: n,
            bytes: 1,
            requests: 1,
            id: n as u32,
            dev: "8:0".into(),
            ..IoFile::default()
        };
        let rows = fewer((0..1500).map(row).collect());
        assert_eq!((rows.len(), rows[0].device_ns, rows[999].device_ns), (1001, 1499, 500));
        let rest = &rows[1000];
        assert_eq!((rest.folded, rest.requests, rest.id, rest.device_worst_ns), (500, 500, 0, 499));
        assert_eq!(rest.device_ns, (0..500).sum::<u64>());
    }
}
