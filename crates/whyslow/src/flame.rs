//! `--flame`: from a recording to an SVG.

use anyhow::Result;
use whyslow_model::Recording;

/// Flame graphs of a recording, as one SVG.
pub fn draw(recording: &Recording) -> Result<String> {
    let picture = whyslow_analyze::stacks::flame::picture(recording);
    Ok(whyslow_report::flame(&picture.title, &picture.subtitle, &picture.lines)?)
}
