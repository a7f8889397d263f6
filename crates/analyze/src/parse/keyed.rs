//! Names with a colon and a number: `/proc/meminfo`, `/proc/PID/io`.
//!
//! ```text
//! MemTotal:       24684084 kB
//! HugePages_Total:       0
//! read_bytes: 4096
//! ```
//!
//! "kB" is KiB here and becomes bytes; numbers without a unit stay as they are.

use std::collections::BTreeMap;

use super::{Bad, number};

/// Values by name; amounts of memory in bytes.
pub type Keyed = BTreeMap<String, u64>;

/// Parse the file.
pub fn parse(text: &str) -> Result<Keyed, Bad> {
    let mut keyed = Keyed::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, rest) = line.split_once(':').ok_or_else(|| Bad::new("<name>: <number>", line))?;
        let mut fields = rest.split_ascii_whitespace();
        let value: u64 = number(fields.next(), "<name>: <number>", line)?;
        let unit = if fields.next() == Some("kB") { 1024 } else { 1 };
        keyed.insert(name.to_owned(), value.saturating_mul(unit));
    }
    Ok(keyed)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "MemTotal:       24684084 kB\nMemFree:        23255048 kB\nMemAvailable:   24156864 kB\n\
        Zswap:                 0 kB\nActive(anon):       1568 kB\nSUnreclaim:        27124 kB\n\
        SecPageTables:         0 kB\nPercpu:              688 kB\nBalloon:               0 kB\n\
        HugePages_Total:       0\nHugepagesize:       2048 kB\n";
    /// Linux 4.18: no Percpu (since 5.0), no Zswap.
    const OLD: &str =
        "MemTotal:        1881864 kB\nMemFree:          123456 kB\nSUnreclaim:        48012 kB\n";
    pub const IO: &str = "rchar: 8697\nwchar: 1721\nsyscr: 16\nread_bytes: 0\ncancelled_write_bytes: 0\n";

    #[test]
    fn kilobytes_become_bytes_and_counts_stay() {
        let here = parse(HERE).unwrap();
        assert_eq!(here["Percpu"], 688 << 10);
        assert_eq!(here["HugePages_Total"], 0);
        assert_eq!(here["Active(anon)"], 1568 << 10);
        assert_eq!(parse(IO).unwrap()["rchar"], 8697);
    }

    #[test]
    fn key_that_the_kernel_does_not_print_is_absent_not_zero() {
        assert_eq!(parse(OLD).unwrap().get("Percpu"), None);
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("MemTotal:       24684084 kB\nMemFr").is_err());
        assert!(parse("MemTotal:").is_err());
    }
}
