//! The idle states of a guest with a table of lab/acpi.

use std::fs;
use std::path::Path;

use whyslow_faults::rounds::Trouble;

/// Names of a CPU's states from this one on, the deepest last.
pub fn from(cpu: u32, first: u32) -> Result<Vec<String>, Trouble> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let name = |state| fs::read_to_string(Path::new(&folder).join(format!("state{state}/name")));
    let names: Vec<String> = (first..).map_while(|state| Some(name(state).ok()?.trim().to_owned())).collect();
    if names.is_empty() {
        return Err(format!("{folder} has no state {first}: this wants a table of lab/acpi").into());
    }
    Ok(names)
}
