//! Disks since boot: `/proc/diskstats`.
//!
//! ```text
//!  254       0 vda 137275 13341 16494434 112355 13144 44137 10626728 25908 0 20532 138885 5354 58 1018704 596 589 25
//! ```
//!
//! major minor name; reads: done, merged, sectors, ms; writes: the same; now in flight; ms busy; ms weighted; discards: the
//! same four (4.18); flushes: done, ms (5.5). Sectors are 512 bytes whatever the disk's own size. The ms of reads and writes
//! are summed over requests, queue and device together; discards and flushes are left out.

use super::{Bad, number};

/// One disk or partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskStat {
    /// Device number "major:minor".
    pub dev: String,
    /// "vda", "nvme0n1p2".
    pub name: String,
    /// Reads done.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time of reads, summed over requests, in ms.
    pub read_ms: u64,
    /// Writes done.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time of writes, summed over requests, in ms.
    pub write_ms: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Time with a request in flight, in ms.
    pub busy_ms: u64,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Vec<DiskStat>, Bad> {
    text.lines().filter(|line| !line.trim().is_empty()).map(disk).collect()
}

fn disk(line: &str) -> Result<DiskStat, Bad> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let at = |n: usize| number::<u64>(fields.get(n).copied(), "14 columns of a disk", line);
    let name = fields.get(2).ok_or_else(|| Bad::new("14 columns of a disk", line))?;
    Ok(DiskStat {
        dev: format!("{}:{}", at(0)?, at(1)?),
        name: (*name).to_owned(),
        reads: at(3)?,
        read_bytes: at(5)?.saturating_mul(512),
        read_ms: at(6)?,
        writes: at(7)?,
        write_bytes: at(9)?.saturating_mul(512),
        write_ms: at(10)?,
        in_flight: at(11)?,
        busy_ms: at(12)?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n 254       0 vda 137275 13341 16494434 112355 \
        13144 44137 10626728 25908 0 20532 138885 5354 58 1018704 596 589 25\n";
    /// Linux 4.9: 14 columns.
    pub const OLD: &str = "   8       0 sda 4150 95 273562 8500 711 1230 25410 3012 1 4400 11510\n";
    /// Linux 4.18: 18 columns.
    const MIDDLE: &str = " 259       0 nvme0n1 10 0 80 1 20 0 160 2 0 3 3 5 0 40 1\n";

    #[test]
    fn reads_disks_of_three_kernels() {
        let here = parse(HERE).unwrap();
        assert_eq!((here[1].dev.as_str(), here[1].name.as_str(), here[1].read_ms), ("254:0", "vda", 112_355));
        assert_eq!(here[1].busy_ms, 20_532);
        assert_eq!(parse(OLD).unwrap()[0].in_flight, 1);
        assert_eq!(parse(MIDDLE).unwrap()[0].write_bytes, 160 * 512);
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse(" 254       0 vda 137275 13341 1649").is_err());
        assert!(parse(" 254 ").is_err());
    }
}
