//! `--baseline`: compared with when all was well.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use whyslow_model::Recording;

use crate::store;

/// A recording to compare with.
#[derive(Debug, Clone, clap::Args)]
pub struct BaselineArgs {
    /// Compare the speed of CPUs with this recording of this host or of a twin
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
}

impl BaselineArgs {
    /// Before the window: what cannot be opened is not found out after it.
    pub fn open(&self) -> Result<Option<Recording>> {
        let open = |file: &PathBuf| store::open(file).context("cannot use the baseline");
        self.baseline.as_ref().map(open).transpose()
    }
}
