//! Disks over the window, as the kernel counted them.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Missing;

use super::Evidence;
use crate::parse::diskstats::{self, DiskStat};

/// A spinning disk seeks in about 10 ms; ten seeks in a row are a queue, or trouble.
const SLOW_SPINNING: Duration = Duration::from_millis(100);
/// Flash and virtual disks answer below 1 ms; ten times the worst of that is trouble.
const SLOW: Duration = Duration::from_millis(10);

impl Evidence<'_> {
    /// A request that takes longer than this is slow on a disk of that kind. If the kernel does not report the kind, the disk counts as not
    /// spinning, as most disks today.
    #[must_use]
    pub fn slow_request(&self, device: &str) -> Duration {
        let frame = self.last(&format!("sys/block/{device}/queue/rotational"));
        let spins = frame.is_ok_and(|frame| frame.bytes.first() == Some(&b'1'));
        if spins { SLOW_SPINNING } else { SLOW }
    }

    /// What each disk and partition did in the window; `in_flight` is at its end. A device that was not there at first is
    /// left out: once its size changes from zero the kernel shows it for the first time, with its counts since its creation
    /// (block/genhd.c, diskstats_show).
    pub fn disks(&self) -> Result<Vec<DiskStat>, Missing> {
        let (first, last) = self.ends("proc/diskstats", diskstats::parse)?;
        let first: BTreeMap<String, DiskStat> = first.into_iter().map(|d| (d.dev.clone(), d)).collect();
        Ok(last.into_iter().filter_map(|end| Some(rise(first.get(&end.dev)?, end))).collect())
    }
}

fn rise(start: &DiskStat, end: DiskStat) -> DiskStat {
    DiskStat {
        reads: end.reads.saturating_sub(start.reads),
        read_bytes: end.read_bytes.saturating_sub(start.read_bytes),
        read_ms: end.read_ms.saturating_sub(start.read_ms),
        writes: end.writes.saturating_sub(start.writes),
        write_bytes: end.write_bytes.saturating_sub(start.write_bytes),
        write_ms: end.write_ms.saturating_sub(start.write_ms),
        busy_ms: end.busy_ms.saturating_sub(start.busy_ms),
        ..end
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;

    #[test]
    fn disks_are_of_the_window() {
        let line = |reads: u32, busy: u32| format!(" 254 0 vda {reads} 0 80 5 0 0 0 0 1 {busy} 10\n");
        let host =
            Fixture::second().start("proc/diskstats", &line(10, 100)).end("proc/diskstats", &line(25, 400));
        let disks = host.ev().disks().unwrap();
        assert_eq!(
            (disks[0].reads, disks[0].busy_ms, disks[0].in_flight, disks[0].read_bytes),
            (15, 300, 1, 0)
        );
    }

    #[test]
    fn a_disk_that_was_not_there_at_first_has_no_rate() {
        let host = Fixture::second().start("proc/diskstats", " 254 0 vda 1 0 80 5 0 0 0 0 1 2 10\n").end(
            "proc/diskstats",
            " 254 0 vda 4 0 80 5 0 0 0 0 1 2 10\n 7 0 loop0 9000 0 8 5 0 0 0 0 0 2 5\n",
        );
        let disks = host.ev().disks().unwrap();
        assert_eq!(disks.iter().map(|d| (d.name.as_str(), d.reads)).collect::<Vec<_>>(), [("vda", 3)]);
    }
}
