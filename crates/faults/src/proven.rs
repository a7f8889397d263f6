//! The result of each cell, one row each, in the file that `WHYSLOW_PROVEN` names; `lab proven` counts them.

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
    /// All assertions were made, and held.
    Passed,
    /// An assertion failed.
    Failed,
    /// Other processes used the host, or the scenario did not come about: nothing was proven.
    NotIdle,
    /// This host lacks something that the cell needs.
    NotRun,
    /// This run did not draw the cell.
    NotDrawn,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// "live", "lock_chains", "spin", "lab", or a test binary.
    pub suite: String,
    /// Name of the cell.
    pub cell: String,
    /// How it ended.
    pub ended: Ended,
    /// What was wrong with the answer; `None` where the test itself broke down.
    #[serde(default)]
    pub wrong: Option<Sort>,
    /// How often the cell was made again because the scenario did not come about.
    #[serde(default)]
    pub redrawn: u64,
    /// How often it had failed before, with the same seed.
    #[serde(default)]
    pub retried: u64,
    /// Why it was not proven.
    #[serde(default)]
    pub why: String,
}

/// The environment variable that names the file.
pub const FILE: &str = "WHYSLOW_PROVEN";

/// Count for the current cell: cells run one at a time.
static REDRAWN: AtomicU64 = AtomicU64::new(0);

/// Count one more try of the cell.
pub(crate) fn count_redrawn() {
    REDRAWN.fetch_add(1, Ordering::Relaxed);
}

/// A cell of the live tests has ended.
pub(crate) fn note(suite: &str, cell: &dyn Display, ended: Ended, wrong: Option<Sort>, why: &str) {
    let redrawn = REDRAWN.swap(0, Ordering::Relaxed);
    Row { redrawn, wrong, ..Row::of(suite, &cell.to_string(), ended).because(why) }.write();
}

impl Row {
    /// The row of a cell.
    #[must_use]
    pub fn of(suite: &str, cell: &str, ended: Ended) -> Row {
        let (suite, cell) = (suite.to_owned(), cell.to_owned());
        Row { suite, cell, ended, wrong: None, redrawn: 0, retried: 0, why: String::new() }
    }

    /// The same row with the first line of the reason.
    #[must_use]
    pub fn because(self, why: &str) -> Row {
        Row { why: why.lines().next().unwrap_or("").to_owned(), ..self }
    }

    /// All rows of a file, which may be missing.
    pub fn all(path: &Path) -> io::Result<Vec<Row>> {
        let text = match fs::read_to_string(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
    }

    /// Append the row if `WHYSLOW_PROVEN` is set. One write: the lines of two programs do not mix.
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
