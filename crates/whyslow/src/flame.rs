//! `--flame`: from a recording to an SVG.

use anyhow::{Result, anyhow};
use whyslow_model::Recording;

/// Flame graphs of a recording, as one SVG.
pub fn draw(recording: &Recording) -> Result<String> {
    Err(anyhow!("cannot draw {}", recording.meta.started_at))
}
