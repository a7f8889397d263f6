//! CPUs: `/proc/cpuinfo`, of x86.
//!
//! ```text
//! processor   : 0
//! vendor_id   : AuthenticAMD
//! model name  : AMD EPYC
//! microcode   : 0x1000065
//! cpu MHz             : 2596.120
//! flags               : fpu vme constant_tsc nonstop_tsc
//! ```
//!
//! The kernel estimates "cpu MHz" of an idle CPU since 5.18: it is not read. Other architectures print other names: then only the
//! count is known.

use super::{Bad, number};

/// What `/proc/cpuinfo` says of the first CPU, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// Online CPUs.
    pub cpus: u32,
    /// "GenuineIntel", "AuthenticAMD", "HygonGenuine".
    pub vendor: Option<String>,
    /// "AMD EPYC".
    pub model: Option<String>,
    /// "0x1000065".
    pub microcode: Option<String>,
    /// Feature names.
    pub flags: Vec<String>,
}

impl CpuInfo {
    /// The first CPU has the feature.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }
}

/// Parse the file.
pub fn parse(text: &str) -> Result<CpuInfo, Bad> {
    let mut info = CpuInfo::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name.trim() {
            "processor" => {
                number::<u32>(Some(value), "processor : <number>", line)?;
                info.cpus = info.cpus.saturating_add(1);
            }
            "vendor_id" if info.vendor.is_none() => info.vendor = Some(value.to_owned()),
            "model name" if info.model.is_none() => info.model = Some(value.to_owned()),
            "microcode" if info.microcode.is_none() => info.microcode = Some(value.to_owned()),
            "flags" if info.flags.is_empty() => {
                info.flags = value.split_ascii_whitespace().map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    if info.cpus == 0 { Err(Bad::new("processor : <number>", text)) } else { Ok(info) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel name\t: AMD EPYC\nmicrocode\t: 0x1000065\n\
        cpu MHz\t\t: 2596.120\nflags\t\t: fpu tsc constant_tsc nonstop_tsc hypervisor\nbogomips\t: 5192.24\npower management:\n\n\
        processor\t: 1\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\nflags\t\t: fpu\n\n";
    /// Linux 5.10 on arm64: no vendor, no model.
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\n";
    /// Linux 6.1 in a guest without microcode.
    const GUEST: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel Xeon Processor (Skylake, IBRS)\nflags\t\t: fpu tsc\n";

    #[test]
    fn reads_the_first_and_counts_all() {
        let here = parse(HERE).unwrap();
        assert_eq!(
            (here.cpus, here.vendor.as_deref(), here.model.as_deref()),
            (2, Some("AuthenticAMD"), Some("AMD EPYC"))
        );
        assert!(here.has("constant_tsc") && !here.has("constant"));
        assert_eq!(parse(GUEST).unwrap().microcode, None);
    }

    #[test]
    fn other_architectures_are_counted() {
        assert_eq!(parse(ARM).unwrap(), CpuInfo { cpus: 1, ..CpuInfo::default() });
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("processor\t: ").is_err());
        assert!(parse("proc").is_err());
    }
}
