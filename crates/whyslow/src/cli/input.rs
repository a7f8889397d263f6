//! `--for` and `--input`: a window of this host, or a recording.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use whyslow_model::Recording;

use super::WindowArgs;
use crate::store;

/// What is looked at.
#[derive(Debug, Clone, clap::Args)]
pub struct InputArgs {
    #[command(flatten)]
    window: WindowArgs,
    /// Read this recording (as `whyslow report` does) instead of observing this host
    #[arg(short, long, value_name = "FILE", conflicts_with = "window")]
    input: Option<PathBuf>,
}

impl InputArgs {
    /// The recording that was named, else what `look` sees of this host in the window.
    pub fn recording(&self, look: impl FnOnce(Duration) -> Result<Recording>) -> Result<Recording> {
        match &self.input {
            Some(path) => store::open(path),
            None => look(self.window.window),
        }
    }
}
