//! Builds a recording from its members, in any order, from a file or a folder.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::time::Duration;

use whyslow_model::table::Tables;
use whyslow_model::{FORMAT, FileSnapshot, Meta, Missing, MissingNote, Recording};

use super::lines::Lines;
use super::write::{Head, SnapshotLine};
use super::{Halt, limit, names, old_names, order, shown, tables};

/// Memory counted for each comma within a list in a line of JSON: a comma may separate two short strings. The commas between the
/// fields of a row are part of the row's size.
const PER_COMMA: u64 = 48;
/// Memory counted for each member in addition to its contents.
const PER_MEMBER: u64 = 256;

/// The parts of the recording that were read so far.
#[derive(Default)]
pub struct Loader {
    head: Option<Head>,
    missing: Vec<MissingNote>,
    index: Vec<SnapshotLine<'static>>,
    tables: Tables,
    found: HashMap<String, Vec<u8>>,
    seen: HashSet<String>,
    kept: u64,
}

/// The fields of `whyslow.json` that say whether this whyslow can read the rest.
#[derive(serde::Deserialize)]
struct Version {
    #[serde(default)]
    format: u64,
    #[serde(default)]
    whyslow: String,
}

impl Loader {
    /// Whether `whyslow.json` was among the members.
    pub fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Whether the memory limit allows to read more.
    pub fn has_room(&self) -> bool {
        self.kept <= limit::KEPT
    }

    /// Notes a part that could not be read.
    pub fn note(&mut self, missing: Missing) {
        self.missing.push(missing.into());
    }

    /// Reads one member. An unknown member is skipped: a later whyslow of the same format may have written it.
    pub fn take(&mut self, path: &str, size: u64, body: &mut dyn BufRead) -> Result<(), Halt> {
        if !self.seen.insert(path.to_owned()) {
            let path = shown(path);
            return Err(Halt::Refuse(format!("member {path} is there twice, which whyslow never writes")));
        }
        keep(&mut self.kept, PER_MEMBER.saturating_add(path.len() as u64))?;
        match path {
            "whyslow.json" => self.take_head(size, body),
            "missing.ndjson" => {
                let missing = &mut self.missing;
                take_lines(path, body, &mut self.kept, size_of::<MissingNote>(), &mut |line| {
                    missing.push(serde_json::from_slice(line)?);
                    Ok(())
                })
                .map(|complaint| self.missing.extend(complaint))
            }
            "snapshots.ndjson" | "frames.ndjson" => {
                let index = &mut self.index;
                take_lines(path, body, &mut self.kept, size_of::<SnapshotLine>(), &mut |line| {
                    index.push(serde_json::from_slice(line)?);
                    Ok(())
                })
                .map(|complaint| self.missing.extend(complaint))
            }
            _ if names::is_snapshot(path) => self.take_snapshot(path, size, body),
            _ => self.take_table(path, size, body),
        }
    }

    fn take_head(&mut self, size: u64, body: &mut dyn BufRead) -> Result<(), Halt> {
        if size > limit::TEXT {
            return Err(Halt::Refuse(format!("its whyslow.json has {size} bytes")));
        }
        let mut json = Vec::new();
        body.read_to_end(&mut json)?;
        let senseless = |e: serde_json::Error| {
            Halt::Refuse(format!("its whyslow.json makes no sense: {}", shown(&e.to_string())))
        };
        let version: Version = serde_json::from_slice(&json).map_err(senseless)?;
        if version.format > u64::from(FORMAT) {
            return Err(Halt::Refuse(format!(
                "it has format {}, and whyslow {} reads formats up to {FORMAT}; use whyslow {} or newer",
                version.format,
                env!("CARGO_PKG_VERSION"),
                shown(&version.whyslow),
            )));
        }
        self.head = Some(serde_json::from_slice(&json).map_err(senseless)?);
        Ok(())
    }

    fn take_table(&mut self, path: &str, size: u64, body: &mut dyn BufRead) -> Result<(), Halt> {
        let name = path.strip_prefix("tables/").and_then(|name| name.strip_suffix(".ndjson"));
        let Some((_, slot)) = name.and_then(|name| tables::slot(&mut self.tables, old_names::table(name)))
        else {
            return Ok(());
        };
        let row = slot.row_size();
        // Room for as many rows as were written, in no more memory than their text takes: a false count or size gains an attacker nothing.
        let counts = self.head.iter().flat_map(|head| &head.tables);
        let rows = counts.filter(|(table, _)| Some(&**table) == name).map(|(_, rows)| *rows).max();
        let most = size.min(limit::KEPT.saturating_sub(self.kept)) / row.max(1) as u64;
        slot.begin(usize::try_from(rows.unwrap_or(0).min(most)).unwrap_or(0));
        let complaint = take_lines(path, body, &mut self.kept, row, &mut |line| slot.push(line))?;
        self.missing.extend(complaint);
        Ok(())
    }

    fn take_snapshot(&mut self, path: &str, size: u64, body: &mut dyn BufRead) -> Result<(), Halt> {
        if size > limit::SNAPSHOT {
            let why = format!("it has {size} bytes, more than {} MiB", limit::SNAPSHOT >> 20);
            self.missing.push(Missing::skipped(path, why).into());
            return Ok(());
        }
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes)?;
        bytes.shrink_to_fit();
        keep(&mut self.kept, bytes.len() as u64)?;
        self.found.insert(path.to_owned(), bytes);
        Ok(())
    }

    /// The recording. `torn`: the reason and the place, if the reading stopped before the end.
    pub fn finish(mut self, torn: Option<String>) -> Result<Recording, Halt> {
        let Some(head) = self.head.take().or_else(|| self.bare_head()) else {
            return Err(Halt::Refuse("it holds no whyslow.json, no proc/ and no sys/".to_owned()));
        };
        let reason =
            if torn.is_some() { "the recording ends before it" } else { "it is not in the recording" };
        let lost_files = self.lost_files();
        let mut lost: Vec<MissingNote> = Vec::new();
        lost.extend(lost_files.iter().map(|name| Missing::broken(name, reason).into()));
        let lost_tables = self.lost_tables(&head.tables, reason);
        let torn = torn.map(|why| match (lost_files.len(), lost_tables.len()) {
            (0, 0) => format!("{why}; nothing is lost"),
            (files, 0) => format!("{why}; lost: {files} kernel files"),
            (0, tables) => format!("{why}; lost: {tables} tables or their ends"),
            (files, tables) => format!("{why}; lost: {files} kernel files, {tables} tables or their ends"),
        });
        lost.extend(lost_tables);

        let snapshots = self.snapshots(&lost_files, Duration::from_nanos(head.meta.window_ns));
        self.missing.extend(lost);
        let torn = match (head.torn, torn) {
            (Some(before), Some(now)) => Some(format!("{before}; then {now}")),
            (before, now) => before.or(now),
        };
        let mut recording =
            Recording { meta: head.meta, snapshots, tables: self.tables, missing: self.missing, torn };
        old_names::renew(&mut recording);
        Ok(recording)
    }

    /// Files that lack the first or the last snapshot. A file with one of them only would show no change over the window: a wrong answer
    /// instead of "cannot tell".
    fn lost_files(&self) -> Vec<String> {
        let ends = order::ends(self.index.iter().map(|line| &*line.name));
        let there = |i: usize| self.index.get(i).is_some_and(|line| self.found.contains_key(&*line.member));
        let mut lost: Vec<String> = ends
            .into_iter()
            .filter(|(_, (first, last))| !there(*first) || !there(*last))
            .map(|(name, _)| name.to_owned())
            .collect();
        lost.sort_unstable();
        lost
    }

    fn lost_tables(&mut self, counts: &[(String, u64)], reason: &str) -> Vec<MissingNote> {
        let mut lost = Vec::new();
        for (name, rows) in counts {
            let Some((name, slot)) = tables::slot(&mut self.tables, old_names::table(name)) else { continue };
            let what = format!("table {name}");
            match slot.count() {
                None => lost.push(Missing::broken(what, reason).into()),
                Some(n) if (n as u64) < *rows => {
                    lost.push(Missing::broken(what, format!("it has {n} of {rows} rows")).into());
                }
                Some(_) => {}
            }
        }
        lost
    }

    /// The snapshots of the index in its order, then those that the index does not list, by time.
    fn snapshots(&mut self, lost: &[String], window: Duration) -> Vec<FileSnapshot> {
        let lost: HashSet<&str> = lost.iter().map(String::as_str).collect();
        let mut snapshots = Vec::new();
        for line in std::mem::take(&mut self.index) {
            // The bytes are moved out: if two lines name one member, which whyslow never writes, the first line gets them.
            let bytes = self.found.remove(&*line.member);
            if let Some(bytes) = bytes.filter(|_| !lost.contains(&*line.name)) {
                snapshots.push(FileSnapshot {
                    at: Duration::from_nanos(line.at_ns),
                    name: line.name.into_owned(),
                    bytes,
                });
            }
        }
        let mut others: Vec<(bool, FileSnapshot)> = Vec::new();
        for (member, bytes) in self.found.drain() {
            let (name, earlier) = names::snapshot_of(&member);
            let at = earlier.map_or(window, Duration::from_millis);
            others.push((earlier.is_none(), FileSnapshot { at, name: name.to_owned(), bytes }));
        }
        // In a window of no length all times are equal: the latest copy of a file is still the latest.
        others.sort_by(|(last_a, a), (last_b, b)| (a.at, &a.name, last_a).cmp(&(b.at, &b.name, last_b)));
        snapshots.extend(others.into_iter().map(|(_, snapshot)| snapshot));
        snapshots
    }

    /// A folder without `whyslow.json` is a tree of copies: the facts about the host that the copies hold.
    fn bare_head(&self) -> Option<Head> {
        if self.found.is_empty() {
            return None;
        }
        let text = |name: &str| {
            let bytes = self.found.get(name).map(Vec::as_slice).unwrap_or_default();
            String::from_utf8_lossy(bytes).trim().to_owned()
        };
        let version = text("proc/version");
        let release = version.split_whitespace().nth(2).unwrap_or_default().to_owned();
        let meta = Meta {
            format: FORMAT,
            host: text("proc/sys/kernel/hostname"),
            kernel: Some(text("proc/sys/kernel/osrelease")).filter(|r| !r.is_empty()).unwrap_or(release),
            boot_id: Some(text("proc/sys/kernel/random/boot_id")).filter(|id| !id.is_empty()),
            // USER_HZ is 100 on all architectures but alpha; 4 KiB is right on x86 and for most ARM kernels.
            clock_ticks: 100,
            page_size: 4096,
            ..Meta::default()
        };
        Some(Head { meta, ..Head::default() })
    }
}

/// Counts memory; more than the limit stops the reading.
fn keep(kept: &mut u64, bytes: u64) -> Result<(), Halt> {
    *kept = kept.saturating_add(bytes);
    if *kept > limit::KEPT {
        return Err(Halt::Tear(format!("it needs more than {} MiB of memory", limit::KEPT >> 20)));
    }
    Ok(())
}

/// The number of commas within lists that are not within strings.
fn commas_in_lists(line: &[u8]) -> u64 {
    // Rows of the largest tables have no list. A loop without an early exit lets the compiler compare many bytes at a time.
    let has_list = |part: &[u8]| part.iter().fold(0, |found, byte| found | u8::from(*byte == b'[')) != 0;
    if !line.chunks(256).any(has_list) {
        return 0;
    }
    let (mut commas, mut depth, mut in_string, mut escaped) = (0, 0_u64, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b',' if depth > 0 => commas += 1,
            _ => {}
        }
    }
    commas
}

type Push<'p> = &'p mut dyn FnMut(&[u8]) -> serde_json::Result<()>;

/// Pushes the lines of `path`; returns a note if some lines make no sense.
fn take_lines(
    path: &str,
    body: &mut dyn BufRead,
    kept: &mut u64,
    row: usize,
    push: Push,
) -> Result<Option<MissingNote>, Halt> {
    let mut lines = Lines::of(body);
    while let Some(line) = lines.next()? {
        let commas = commas_in_lists(line);
        keep(kept, (row as u64).saturating_add(line.len() as u64).saturating_add(commas * PER_COMMA))?;
        let pushed = push(line);
        if let Err(error) = pushed {
            lines.is_bad(&error.to_string());
        }
    }
    Ok(lines.complaint().map(|why| Missing::broken(path, why).into()))
}
