//! Loaded modules: `/proc/modules`.
//!
//! ```text
//! acpi_cpufreq 32768 0 - Live 0xffffffffc0a4d000
//! zfs 5000000 3 zunicode,zavl, Live 0x0000000000000000 (POE)
//! ```
//!
//! name, bytes, users ("-" if the kernel cannot unload), modules that use it, state, address, taints. The address is not kept.

use super::{Bad, number};

/// One module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Module {
    /// "acpi_cpufreq": never with a "-".
    pub name: String,
    /// Bytes of memory.
    pub bytes: u64,
    /// "Live", "Loading", "Unloading".
    pub state: String,
    /// "OE": out of tree, unsigned; "P": proprietary.
    pub taints: String,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Vec<Module>, Bad> {
    text.lines().filter(|line| !line.trim().is_empty()).map(module).collect()
}

fn module(line: &str) -> Result<Module, Bad> {
    const WANTED: &str = "<name> <bytes> <users> <by> <state>";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let &[name, bytes, _, _, state, ref rest @ ..] = &fields[..] else { return Err(Bad::new(WANTED, line)) };
    let taints = rest.iter().find_map(|f| f.strip_prefix('(')).map(|f| f.trim_end_matches(')'));
    Ok(Module {
        name: name.to_owned(),
        bytes: number(Some(bytes), WANTED, line)?,
        state: state.to_owned(),
        taints: taints.unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Linux 6.1.
    pub const DEBIAN: &str =
        "acpi_cpufreq 32768 0 - Live 0xffffffffc0a4d000\nxfs 1830912 1 - Live 0x0000000000000000\n";
    /// Linux 5.15 with modules from out of the tree.
    const TAINTED: &str =
        "zfs 5000000 3 zunicode,zavl, Live 0x0000000000000000 (POE)\nnvidia 1 - - Loading 0x0 (PO+)\n";

    #[test]
    fn reads_names_and_taints() {
        assert_eq!(parse(DEBIAN).unwrap()[0].name, "acpi_cpufreq");
        let tainted = parse(TAINTED).unwrap();
        assert_eq!((tainted[0].taints.as_str(), tainted[1].state.as_str()), ("POE", "Loading"));
    }

    #[test]
    fn a_kernel_without_modules_has_none() {
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("acpi_cpufreq 32768 0").is_err());
    }
}
