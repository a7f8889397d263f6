//! The verbs, one file each: arguments, one function, an outcome.

pub mod completions;
pub mod doctor;
pub mod exam;
pub mod explain;
pub mod man;
pub mod record;
pub mod report;
pub mod rules;

use std::path::Path;

use anyhow::{Result, bail};
use whyslow_report::safe::plain;

/// A file that cannot be made is said before the window, not after it.
fn can_be_written(file: &Path) -> Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if file.is_dir() {
        bail!("cannot save recording {}: it is a folder; name a file", plain(&file.to_string_lossy()));
    }
    if !folder.is_dir() {
        let folder = plain(&folder.to_string_lossy());
        bail!("cannot save recording {}: there is no folder {folder}", plain(&file.to_string_lossy()));
    }
    Ok(())
}
