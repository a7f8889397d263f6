//! `--flame`: from a recording to an SVG.

use anyhow::{Result, bail};
use whyslow_model::Recording;

/// Flame graphs of a recording, as one SVG.
pub fn draw(recording: &Recording) -> Result<String> {
    bail!(
        "cannot draw a flame graph of {} ns: folding and drawing are not in this build",
        recording.meta.window_ns
    )
}
