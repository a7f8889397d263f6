//! Bad days of resources: cells of other suites that form a suite of their own on request.

use crate::Trouble;

/// Its name.
pub const SUITE: &str = "resources";

/// Prefixes of tests of the proof.
const TESTS: [&str; 17] = [
    // CPUs: many processes, short-lived ones, more weight or a lower nice value, and a quota beside them.
    "days::beside_programs::",
    "days::equal_beside_a_crowd::",
    "days::short_lived_beside_programs::",
    "days::light_beside_a_crowd::",
    "days::nice_beside_a_crowd::",
    "days::quota_beside_a_crowd::",
    // A disk: large reads; writes, fsyncs and a journal.
    "days::small_reads_behind_large::",
    "days::fsync_behind_writes::",
    // Memory: a page cache that is evicted or dropped, limits filled by heap and by tmpfs.
    "days::cache_taken_by_a_neighbour::",
    "days::cache_dropped::",
    "days::cache_beside_a_heap::",
    "days::cache_beside_a_tmpfs::",
    // Tables and limits: kills, space, inodes, descriptors, ports; tracked connections, rules, a shaper.
    "failures::",
    "extra_work::root_a_full_table_of_tracked_connections",
    "extra_work::root_rules_of_a_packet_filter",
    "extra_work::root_packets_that_a_shaper_holds",
    "days::honest::",
];
/// ... and of scenarios for this host.
const SCENARIO: &str = "live-listen-overflow";

/// Whether a test belongs to it.
pub fn has_test(name: &str) -> bool {
    TESTS.iter().any(|of| name.starts_with(of))
}

/// Whether a scenario belongs to it.
pub fn has_scenario(name: &str) -> bool {
    name.starts_with(SCENARIO)
}

/// Checks that each prefix matches a test: otherwise a renamed test would never be made.
pub fn check<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Result<(), Trouble> {
    match TESTS.iter().find(|of| !names.clone().any(|name| name.starts_with(**of))) {
        Some(of) => Err(Trouble::new(format!("find tests of {of}"), "there are none")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_without_a_test_is_refused() {
        let all: Vec<String> = TESTS.iter().map(|of| format!("{of}root_a_day")).collect();
        let names = || all.iter().map(String::as_str);
        assert!(check(names()).is_ok() && names().all(has_test));
        assert!(check(names().skip(1)).is_err());
        assert!(!has_test("days::traced::root_a_day") && has_scenario("live-listen-overflow-twin"));
    }
}
