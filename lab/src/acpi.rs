//! Compiles the tables that give a guest power states, lab/acpi/*.dsl.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{Trouble, cache, child, place};

/// A table of a hundred lines.
const COMPILE: Duration = Duration::from_secs(30);

/// The compiled table of a source; a bare name means a file in lab/acpi. A compiled table is reused.
pub fn table(path: &Path) -> Result<PathBuf, Trouble> {
    if path.extension().is_none_or(|ending| ending != "dsl") {
        return Ok(path.to_path_buf());
    }
    let what = format!("compile {}", path.display());
    let source = place::project()?.join("lab/acpi").join(path);
    let version =
        cache::name_of(std::slice::from_ref(&source), &[]).map_err(|error| Trouble::new(&what, error))?;
    let made = cache::directory(&place::cache("acpi")?, &version, |dir| {
        let mut iasl = Command::new("iasl");
        iasl.arg("-p").arg(dir.join("table")).arg(&source);
        child::output(&what, &mut iasl, COMPILE)
            .map(drop)
            .map_err(|trouble| trouble.or("make proof-setup installs iasl"))
    })?;
    Ok(made.join("table.aml"))
}
