//! A list of CPUs or nodes: `/sys/devices/system/cpu/online`, `cpuset.cpus`, `Cpus_allowed_list`.
//!
//! ```text
//! 0-3,8,16-23
//! ```
//!
//! Kept as ranges: "0-4294967295" is no reason to allocate.

use super::{Bad, number};

/// Ranges, both ends included, as printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuList(Vec<(u32, u32)>);

impl CpuList {
    /// How many, if no two ranges overlap (the kernel prints none that do).
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .map(|(first, last)| u64::from(last.saturating_sub(*first)) + 1)
            .fold(0, u64::saturating_add)
    }

    /// It is one of them.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&cpu))
    }
}

/// Parse the list. An empty one is empty: a cpuset may be.
pub fn parse(text: &str) -> Result<CpuList, Bad> {
    const WANTED: &str = "CPU numbers and ranges, as 0-3,8";
    let mut ranges = Vec::new();
    for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range: (u32, u32) = (number(Some(first), WANTED, text)?, number(Some(last), WANTED, text)?);
        if range.0 > range.1 {
            return Err(Bad::new(WANTED, text));
        }
        ranges.push(range);
    }
    Ok(CpuList(ranges))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const MANY: &str = "0-3,8,16-23\n";

    #[test]
    fn counts_and_finds() {
        let list = parse(MANY).unwrap();
        assert_eq!(list.count(), 13);
        assert!(list.contains(8) && list.contains(23) && !list.contains(4));
        assert_eq!(parse("\n").unwrap().count(), 0);
        assert_eq!(parse("0-4294967295,0-4294967295").unwrap().count(), 1 << 33);
    }

    #[test]
    fn a_torn_list_is_bad() {
        for torn in ["0-", "0-3,", "a", "3-1", "0-3:2/4"] {
            assert!(parse(torn).is_err(), "{torn}");
        }
    }
}
