//! The fault module in this guest: loaded under drawn names, once for all parts of a play.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use whyslow_faults::Draw;
use whyslow_faults::rounds::Trouble;

use crate::guest::module::{Module, Names};
use crate::guest_modules;
use crate::stage::Stage;

/// The driver of cpufreq that the lab's ACPI tables are for.
const DRIVER: &str = "acpi-cpufreq";
const LETTERS: usize = 6;

/// Load it, or take the one that is loaded.
pub fn loaded(stage: &Stage, draw: &mut Draw) -> Result<Module, Trouble> {
    static LOADED: OnceLock<Names> = OnceLock::new();
    if let Some(names) = LOADED.get() {
        return Ok(Module::new(Path::new("/proc"), names));
    }
    let names = Names { folder: draw.word(LETTERS), control: draw.word(LETTERS) };
    let file = file(stage)?;
    guest_modules::insert(&file, &names.parameters()).map_err(|err| format!("{}: {err}", file.display()))?;
    Ok(Module::new(Path::new("/proc"), LOADED.get_or_init(|| names)))
}

/// Have a cpufreq policy for each CPU. For the tables with an emulated MSR the module must have it on before.
pub fn policies() -> Result<(), Trouble> {
    guest_modules::load(DRIVER)?;
    match Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists() {
        true => Ok(()),
        false => Err(format!("{DRIVER} found no power states: this wants a table of lab/acpi").into()),
    }
}

fn file(stage: &Stage) -> Result<PathBuf, Trouble> {
    let place = stage.modules.as_ref().ok_or("the fault module was not built for this kernel")?;
    if place.is_file() {
        return Ok(place.clone());
    }
    let entries = fs::read_dir(place).map_err(|err| format!("{}: {err}", place.display()))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let file = files.find(|path| path.extension().is_some_and(|ending| ending == "ko"));
    file.ok_or_else(|| format!("{} holds no module", place.display()).into())
}
