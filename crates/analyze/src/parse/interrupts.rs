//! Interrupts by CPU since boot: `/proc/interrupts`.
//!
//! ```text
//!            CPU0       CPU1
//!  36:          0     106985 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
//! LOC:      76574      88838   Local timer interrupts
//! ERR:          0
//! ```
//!
//! The header names the online CPUs; ERR and MIS have one number for the whole host. The text behind the numbers differs from
//! kernel to kernel and is kept as one text.

use super::{Bad, number};

/// One line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// "36", "LOC".
    pub id: String,
    /// One count for each CPU of the header; fewer for host-wide lines.
    pub counts: Vec<u64>,
    /// Chip, kind and handlers; or what the line means.
    pub what: String,
}

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// Numbers of the CPUs that the columns stand for.
    pub cpus: Vec<u32>,
    pub lines: Vec<Interrupt>,
}

/// Parse the file. Also right for `/proc/softirqs`.
pub fn parse(text: &str) -> Result<Interrupts, Bad> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let cpu = |name: &str| number(name.strip_prefix("CPU"), "CPU<number> in each column", header);
    let cpus: Vec<u32> = header.split_ascii_whitespace().map(cpu).collect::<Result<_, _>>()?;
    if cpus.is_empty() {
        return Err(Bad::new("CPU<number> in each column", header));
    }
    let mut found = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (id, rest) = line.split_once(':').ok_or_else(|| Bad::new("<name>: <counts>", line))?;
        let (counts, what) = counts(rest, cpus.len());
        if counts.is_empty() {
            return Err(Bad::new("<name>: <counts>", line));
        }
        found.push(Interrupt { id: id.trim().to_owned(), counts, what: what.trim().to_owned() });
    }
    Ok(Interrupts { cpus, lines: found })
}

/// Up to `most` leading numbers, and the rest.
fn counts(mut rest: &str, most: usize) -> (Vec<u64>, &str) {
    let mut counts = Vec::new();
    while counts.len() < most {
        let trimmed = rest.trim_start();
        let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (digits, after) = trimmed.split_at(end);
        let Ok(count) = digits.parse() else { break };
        counts.push(count);
        rest = after;
    }
    (counts, rest)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "           CPU0       CPU1       \n 24:          1          0  IO-APIC   5-edge      ACPI:Ged\n \
        36:          0     106985 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
        LOC:      76574      88838   Local timer interrupts\nERR:          0\n";
    /// Linux 5.10, CPUs 0 and 2 online, an interrupt with two handlers.
    const WITH_A_HOLE: &str = "            CPU0       CPU2       \n  16:         12          3   IO-APIC   16-fasteoi   ehci_hcd:usb1, i801_smbus\n \
        MIS:          0\n";
    pub const SOFTIRQS: &str = "                    CPU0       CPU1       \n          HI:          0          0\n      \
        NET_RX:       3256       4288\n";
    /// Linux 3.10: rows the same, an ARM board's columns without a controller.
    const OLD: &str =
        "           CPU0\n 20:        100      GIC  twd\nIPI0:          0  Timer broadcast interrupts\n";

    #[test]
    fn reads_columns_and_what_they_are() {
        let here = parse(HERE).unwrap();
        assert_eq!(here.cpus, [0, 1]);
        assert_eq!(here.lines[1].counts, [0, 106_985]);
        assert_eq!(here.lines[1].what, "PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0");
        assert_eq!((here.lines[3].id.as_str(), here.lines[3].counts.len()), ("ERR", 1));
    }

    #[test]
    fn the_header_says_which_cpus() {
        assert_eq!(parse(WITH_A_HOLE).unwrap().cpus, [0, 2]);
        assert_eq!(parse(OLD).unwrap().lines[0].what, "GIC  twd");
        assert_eq!(
            parse(SOFTIRQS).unwrap().lines[1],
            Interrupt { id: "NET_RX".into(), counts: vec![3256, 4288], what: String::new() }
        );
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("           CPU0       CPU1\n 24").is_err());
        assert!(parse("").is_err());
    }
}
