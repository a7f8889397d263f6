//! `--baseline`: a comparison with a recording of the host while it was healthy.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use whyslow_model::Recording;

use crate::store;

/// A recording to compare with.
#[derive(Debug, Clone, clap::Args)]
pub struct BaselineArgs {
    /// Compare the speed of the CPUs with this recording, of this host while it was healthy or of an identical host
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
}

impl BaselineArgs {
    /// Opens the baseline. Called before the window, so that a missing file is reported before the wait.
    pub fn open(&self) -> Result<Option<Recording>> {
        let open = |file: &PathBuf| store::open(file).context("cannot use the baseline");
        self.baseline.as_ref().map(open).transpose()
    }
}
