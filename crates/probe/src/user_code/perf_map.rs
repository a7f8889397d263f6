//! Code that is made at run time, by the maps that JIT compilers write: /tmp/perf-PID.map (perf's tools/perf/Documentation/jit-interface.txt).

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::time::{Duration, SystemTime};

/// Java writes some 10 MB.
const MOST_BYTES: u64 = 64 << 20;

/// Functions, by address.
#[derive(Debug, Default)]
pub struct PerfMap(Vec<(u64, u64, String)>);

impl PerfMap {
    /// The map of process `tgid`, which was met at `since`: an older map was written by another process with the same number.
    pub fn of(tgid: u32, since: SystemTime) -> Option<Self> {
        let in_its_root = format!("/proc/{tgid}/root/tmp/perf-{}.map", number_within(tgid).unwrap_or(tgid));
        let here = format!("/tmp/perf-{tgid}.map");
        // The user of a process that has ended is not known: only root's map is believed then.
        let owner = std::fs::metadata(format!("/proc/{tgid}")).map_or(0, |about| about.uid());
        let since = began(tgid).unwrap_or(since);
        [in_its_root, here].iter().find_map(|path| read(path, owner, since)).map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let mut hex = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (begin, size) = (hex()?, hex()?);
            let name = words.next()?.trim();
            (!name.is_empty()).then(|| (begin, size, name.to_owned()))
        };
        let mut rows: Vec<_> = text.lines().filter_map(row).collect();
        rows.sort_by_key(|(begin, ..)| *begin); // stable: among functions at one address the last is the newest
        PerfMap(rows)
    }

    /// The function at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let behind = self.0.partition_point(|(begin, ..)| *begin <= address);
        let (begin, size, name) = self.0.get(behind.checked_sub(1)?)?;
        (address - begin < *size).then_some(name)
    }
}

/// Its number in its own namespace: the last of NSpid in /proc/PID/status.
fn number_within(tgid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{tgid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// When a living process began: the time of its folder.
fn began(tgid: u32) -> Option<SystemTime> {
    let stat = std::fs::read_to_string(format!("/proc/{tgid}/stat")).ok()?;
    let ticks: u64 = stat.get(stat.rfind(')')?..)?.split(' ').nth(20)?.parse().ok()?;
    let up = std::fs::read_to_string("/proc/uptime").ok()?;
    let up: f64 = up.split(' ').next()?.parse().ok()?;
    // USER_HZ is 100 on x86-64 and arm64; a second of grace, since both are rounded.
    let age = Duration::try_from_secs_f64((up - ticks as f64 / 100.0 + 1.0).max(0.0)).ok()?;
    SystemTime::now().checked_sub(age)
}

/// No link is followed: every user can write to /tmp.
fn read(path: &str, owner: u32, since: SystemTime) -> Option<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file: File = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file()
        || about.nlink() == 0
        || ![0, owner].contains(&about.uid())
        || about.modified().ok()? < since
    {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_by_address_and_the_newest_of_one_place() {
        let map = PerfMap::parse("7f00 10 LMain;::old\nnonsense\n7f00 20 LMain;::new(I)V int\n0x8000 8 b\n");
        assert_eq!(map.name(0x7f00), Some("LMain;::new(I)V int"));
        assert_eq!((map.name(0x7f1f).is_some(), map.name(0x7f20), map.name(0x7eff)), (true, None, None));
        assert_eq!(map.name(0x8007), Some("b"));
    }

    #[test]
    fn a_map_of_before_the_process_is_another_process_s() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf-1.map");
        std::fs::write(&path, "10 10 a\n").unwrap();
        let path = path.to_str().unwrap();
        let own = std::fs::metadata(path).unwrap().uid();
        let hour = Duration::from_secs(3600);
        assert!(read(path, own, SystemTime::now() - hour).is_some());
        assert!(read(path, own, SystemTime::now() + hour).is_none());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(path, &link).unwrap();
        assert!(read(link.to_str().unwrap(), own, SystemTime::now() - hour).is_none(), "a link");
    }

    #[test]
    fn this_process_began_a_short_while_ago() {
        let age = SystemTime::now().duration_since(began(std::process::id()).unwrap()).unwrap();
        assert!(age < Duration::from_secs(36_000), "{age:?}");
        assert_eq!(number_within(std::process::id()), Some(std::process::id()));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*|([0-9a-f]{0,20} [0-9a-f]{0,20} .{0,9}\n){0,9}", at: u64) {
            let _ = PerfMap::parse(&text).name(at);
        }
    }
}
