//! Names and numbers: `/proc/vmstat`, and `memory.events`, `memory.stat`, `cgroup.stat`, `cpu.stat`, `pids.events` of a cgroup.
//!
//! ```text
//! nr_free_pages 1434990
//! oom_kill 0
//! ```

use std::collections::BTreeMap;

use super::{Bad, number};

/// Values by name, as the kernel prints them.
pub type Flat = BTreeMap<String, u64>;

/// Parse the file.
pub fn parse(text: &str) -> Result<Flat, Bad> {
    let mut flat = Flat::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(' ').ok_or_else(|| Bad::new("<name> <number>", line))?;
        // Per-CPU counters are summed without a lock: a sum may be negative for a moment (vmstat prints it wrapped,
        // memory.stat of v1 with a sign). A negative value counts as 0.
        let value: i128 = number(Some(value.trim()), "<name> <number>", line)?;
        let value = u64::try_from(value.max(0)).unwrap_or(u64::MAX);
        flat.insert(name.to_owned(), value);
    }
    Ok(flat)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "nr_free_pages 1434990\nworkingset_refault_file 1567876\npswpin 0\noom_kill 0\n\
        allocstall_normal 0\ndirect_map_level2_splits 5\n";
    /// Linux 4.4: no oom_kill (since 4.13), one allocstall for all zones.
    const OLD: &str = "nr_free_pages 99\nallocstall 12\npgscan_direct_normal 4\n";
    pub const EVENTS: &str = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n";

    #[test]
    fn reads_names_and_numbers() {
        assert_eq!(parse(HERE).unwrap()["workingset_refault_file"], 1_567_876);
        assert_eq!(parse(OLD).unwrap().get("oom_kill"), None);
        assert_eq!(parse(EVENTS).unwrap()["max"], 12);
    }

    #[test]
    fn a_count_below_zero_is_none() {
        assert_eq!(parse("shmem -4096\n").unwrap()["shmem"], 0);
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert_eq!(
            parse("pswpin 0\npswpo").unwrap_err().to_string(),
            "expected <name> <number> in line \"pswpo\""
        );
        assert!(parse("pswpin -\n").is_err(), "a lone sign is no number below zero");
    }
}
