//! `--flame`: draws a recording as an SVG.

use anyhow::Result;
use whyslow_model::Recording;

/// The flame graph of a recording, as one SVG.
pub fn draw(recording: &Recording) -> Result<String> {
    let picture = whyslow_analyze::stacks::flame::picture(recording);
    Ok(whyslow_report::flame(&picture.title, &picture.subtitle, &picture.lines)?)
}
