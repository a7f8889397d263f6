//! What each cell came to, a row each, in the file that `WHYSLOW_PROVEN` names: the lab sums them up (`lab proven`).

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::wrong::Sort;

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All was asserted, and held.
    Passed,
    /// Something was wrong.
    Failed,
    /// Others used the host, or it did not come about: nothing was proven.
    NotIdle,
    /// What it needs is not here.
    NotRun,
    /// This run has not drawn it.
    NotDrawn,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// "live", "lock_chains", "spin", "lab", or a test binary.
    pub suite: String,
    /// Which cell.
    pub cell: String,
    /// How it ended.
    pub ended: Ended,
    /// What was wrong with the answer; nothing where the test itself broke down.
    #[serde(default)]
    pub wrong: Option<Sort>,
    /// How often it was made again before, because it did not come about.
    #[serde(default)]
    pub redrawn: u64,
    /// How often it had failed before, with the same seed.
    #[serde(default)]
    pub retried: u64,
    /// Why it was not proven.
    #[serde(default)]
    pub why: String,
}

/// The environment that names the file.
pub const FILE: &str = "WHYSLOW_PROVEN";

/// Of the cell that is being made: cells are made one at a time.
static REDRAWN: AtomicU64 = AtomicU64::new(0);

/// It is made once more.
pub(crate) fn count_redrawn() {
    REDRAWN.fetch_add(1, Ordering::Relaxed);
}

/// A cell of the live tests has ended.
pub(crate) fn note(suite: &str, cell: &dyn Display, ended: Ended, wrong: Option<Sort>, why: &str) {
    let redrawn = REDRAWN.swap(0, Ordering::Relaxed);
    Row { redrawn, wrong, ..Row::of(suite, &cell.to_string(), ended).because(why) }.write();
}

impl Row {
    /// What a cell came to.
    #[must_use]
    pub fn of(suite: &str, cell: &str, ended: Ended) -> Row {
        let (suite, cell) = (suite.to_owned(), cell.to_owned());
        Row { suite, cell, ended, wrong: None, redrawn: 0, retried: 0, why: String::new() }
    }

    /// With the first line of why it was not proven.
    #[must_use]
    pub fn because(self, why: &str) -> Row {
        Row { why: why.lines().next().unwrap_or("").to_owned(), ..self }
    }

    /// All rows of a file, which need not exist.
    pub fn all(path: &Path) -> io::Result<Vec<Row>> {
        let text = match fs::read_to_string(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
    }

    /// Append it, if anybody asked for rows. One write: two programs do not mix their lines.
    pub fn write(&self) {
        let Some(path) = std::env::var_os(FILE).filter(|path| !path.is_empty()) else { return };
        let Ok(mut line) = serde_json::to_string(self) else { return };
        line.push('\n');
        let file = OpenOptions::new().create(true).append(true).open(&path);
        if let Err(err) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            let _ = writeln!(std::io::stderr(), "cannot note what was proven in {}: {err}", path.display());
        }
    }
}
