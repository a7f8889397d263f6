//! Writes a recording as bytes: its members, and their order.

use std::borrow::Cow;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use whyslow_model::{FORMAT, FileSnapshot, Meta, Recording};

use super::names;
use super::order;
use super::tables::{self, Place, Rows};
use super::zstd_frames::Packer;

/// `whyslow.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// Facts about the recording.
    #[serde(flatten)]
    pub meta: Meta,
    /// The tables and their numbers of rows: a reader of a cut file then knows what is lost.
    pub tables: Vec<(String, u64)>,
    /// Set if the saved recording was read from a cut-off file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn: Option<String>,
}

/// A line of `snapshots.ndjson`. The lines have the order of `Recording::snapshots`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotLine<'r> {
    /// The name of the kernel file.
    pub name: Cow<'r, str>,
    /// Time of the snapshot, since the window began.
    pub at_ns: u64,
    /// The member that holds its bytes.
    pub member: Cow<'r, str>,
}

struct Archive<W: Write> {
    tar: tar::Builder<Packer<BufWriter<W>>>,
    time: u64,
}

/// Writes `rec` to `out`.
pub fn write<W: Write>(rec: &Recording, out: W) -> io::Result<W> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut archive = Archive { tar: tar::Builder::new(Packer::new(BufWriter::new(out))?), time };
    let order = order::of(&rec.snapshots);
    let members = member_names(rec);

    archive.member("whyslow.json", &head(rec)?)?;
    archive.tar.get_mut().flush()?;
    if !rec.missing.is_empty() {
        archive.rows("missing.ndjson", &rec.missing)?;
    }
    archive.rows("snapshots.ndjson", &snapshot_lines(rec, &members))?;
    archive.snapshots(rec, &members, &order.host)?;
    // The part so far is small, and more important than most of the rest.
    archive.tar.get_mut().flush()?;
    archive.tables(rec, Place::First)?;
    archive.snapshots(rec, &members, &order.cgroups)?;
    archive.tables(rec, Place::Later)?;
    archive.snapshots(rec, &members, &order.others)?;

    let out = archive.tar.into_inner()?.finish()?;
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

fn head(rec: &Recording) -> io::Result<Vec<u8>> {
    let mut counts = Vec::new();
    tables::each(&rec.tables, &mut |name, _, rows| counts.push((name.to_owned(), rows.count() as u64)));
    let meta = Meta { format: FORMAT, ..rec.meta.clone() };
    let mut json = serde_json::to_vec_pretty(&Head { meta, tables: counts, torn: rec.torn.clone() })?;
    json.push(b'\n');
    Ok(json)
}

fn member_names(rec: &Recording) -> Vec<String> {
    let ends = order::ends(rec.snapshots.iter().map(|f| f.name.as_str()));
    names::members(rec.snapshots.iter().enumerate().map(|(i, snapshot)| {
        let latest = ends.get(snapshot.name.as_str()).is_some_and(|(_, last)| *last == i);
        (snapshot.name.as_str(), (!latest).then_some(snapshot.at.as_millis()))
    }))
}

fn snapshot_lines<'r>(rec: &'r Recording, members: &'r [String]) -> Vec<SnapshotLine<'r>> {
    let line = |(snapshot, member): (&'r FileSnapshot, &'r String)| SnapshotLine {
        name: snapshot.name.as_str().into(),
        at_ns: u64::try_from(snapshot.at.as_nanos()).unwrap_or(u64::MAX),
        member: member.as_str().into(),
    };
    rec.snapshots.iter().zip(members).map(line).collect()
}

impl<W: Write> Archive<W> {
    fn member(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.append(name, bytes.len() as u64, bytes)
    }

    fn append(&mut self, name: &str, size: u64, bytes: impl Read) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        header.set_mtime(self.time);
        self.tar.append_data(&mut header, Path::new(name), bytes)
    }

    fn snapshots(&mut self, rec: &Recording, members: &[String], which: &[usize]) -> io::Result<()> {
        for &i in which {
            if let (Some(snapshot), Some(member)) = (rec.snapshots.get(i), members.get(i)) {
                self.member(member, &snapshot.bytes)?;
            }
        }
        Ok(())
    }

    fn tables(&mut self, rec: &Recording, place: Place) -> io::Result<()> {
        let mut done = Ok(());
        tables::each(&rec.tables, &mut |name, at, rows| {
            if at == place && done.is_ok() {
                done = self.rows(&format!("tables/{name}.ndjson"), rows);
            }
        });
        done
    }

    /// A header gives the size before the bytes. The rows are serialized twice instead of kept, because whyslow limits its memory on a
    /// host that it examines, and a table may be large.
    fn rows(&mut self, name: &str, rows: &dyn Rows) -> io::Result<()> {
        let mut size = Counter(0);
        for at in 0..rows.count() {
            rows.write(at, &mut size)?;
        }
        self.append(name, size.0, Lines { rows, next: 0, line: Vec::new(), given: 0 })
    }
}

struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rows as a stream of lines.
struct Lines<'r> {
    rows: &'r dyn Rows,
    next: usize,
    line: Vec<u8>,
    given: usize,
}

impl Read for Lines<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.given >= self.line.len() {
            self.line.clear();
            self.given = 0;
            self.rows.write(self.next, &mut self.line)?;
            self.next += 1;
        }
        let n = self.line.get(self.given..).unwrap_or_default().read(out)?;
        self.given += n;
        Ok(n)
    }
}
