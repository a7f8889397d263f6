//! A list of CPUs or nodes: `/sys/devices/system/cpu/online`, `cpuset.cpus`, `Cpus_allowed_list`.
//!
//! ```text
//! 0-3,8,16-23
//! ```
//!
//! Kept as ranges: "0-4294967295" is no reason to allocate.

/// Ranges, both ends included, as printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuList(Vec<(u32, u32)>);

impl CpuList {
    /// As printed; `None`: it is no such list. An empty one is empty: a cpuset may be.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let range = |part: &str| -> Option<(u32, u32)> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = (first.parse().ok()?, last.parse().ok()?);
            (range.0 <= range.1).then_some(range)
        };
        let parts = text.trim().split(',').filter(|_| !text.trim().is_empty());
        parts.map(range).collect::<Option<_>>().map(CpuList)
    }

    /// All of them that are below `end`, in order.
    pub fn below(&self, end: u32) -> impl Iterator<Item = u32> {
        let ranges = self.ranges().into_iter();
        ranges.flat_map(move |(first, last)| first..last.saturating_add(1).min(end))
    }

    /// How many, if no two ranges overlap (the kernel prints none that do).
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .map(|(first, last)| u64::from(last.saturating_sub(*first)) + 1)
            .fold(0, u64::saturating_add)
    }

    /// Those that overlap or touch as one, in order: whatever the text, each CPU is in one of them at most.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let mut ranges: Vec<(u32, u32)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match ranges.last_mut().filter(|before| first <= before.1.saturating_add(1)) {
                Some(before) => before.1 = before.1.max(last),
                None => ranges.push((first, last)),
            }
        }
        ranges
    }

    /// It is one of them.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_finds() {
        let list = CpuList::parse("0-3,8,16-23\n").unwrap();
        assert_eq!(list.count(), 13);
        assert!(list.contains(8) && list.contains(23) && !list.contains(4));
        assert_eq!(CpuList::parse("\n").unwrap().count(), 0);
        assert_eq!(CpuList::parse("0-4294967295,0-4294967295").unwrap().count(), 1 << 33);
    }

    #[test]
    fn ranges_are_reported_once_and_in_order() {
        let ranges = |text| CpuList::parse(text).unwrap().ranges();
        assert_eq!(ranges("8-9,0-3,2,3-5,10"), [(0, 5), (8, 10)]);
        assert_eq!(ranges("7,0-4294967295,5"), [(0, u32::MAX)]);
        assert_eq!(ranges(""), []);
    }

    #[test]
    fn single_cpus_have_an_end() {
        let all = |text, end| CpuList::parse(text).unwrap().below(end).collect::<Vec<_>>();
        assert_eq!(all("8,0-2\n", 64), [0, 1, 2, 8]);
        assert_eq!(all("0-4294967295", 3), [0, 1, 2]);
    }

    #[test]
    fn malformed_cpu_list_is_rejected() {
        for torn in ["0-", "0-3,", "a", "3-1", "0-3:2/4", "(null)"] {
            assert_eq!(CpuList::parse(torn), None, "{torn}");
        }
    }
}
