//! The host as the harness sees it: memory, CPUs, disks, and whether it is idle.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use crate::cgroup::Group;
use crate::{clock, sys};

/// CPUs that this process may use.
#[must_use]
pub fn cpus() -> Vec<usize> {
    sys::allowed_cpus()
}

/// Whether live tests are possible at all.
#[must_use]
pub fn is_root() -> bool {
    sys::is_root()
}

/// Bytes of memory that are available without swapping.
pub fn available_memory() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    text.lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| kib << 10)
        .ok_or_else(|| io::Error::other("expected MemAvailable in /proc/meminfo"))
}

/// The disk ("254:0") of a file: throttles apply to whole disks, files live on partitions.
pub fn disk_of(path: &Path) -> io::Result<String> {
    let dev = fs::metadata(path)?.dev();
    let number = format!("{}:{}", libc::major(dev), libc::minor(dev));
    let sys = Path::new("/sys/dev/block").join(&number);
    if !sys.exists() {
        return Err(io::Error::other(format!(
            "{} is on no block device of its own ({number})",
            path.display()
        )));
    }
    if !sys.join("partition").exists() {
        return Ok(number);
    }
    let disk = fs::canonicalize(&sys)?.join("../dev");
    Ok(fs::read_to_string(disk)?.trim().to_owned())
}

/// Make a named pipe.
pub fn make_fifo(path: &Path) -> io::Result<()> {
    sys::make_fifo(path)
}

/// Make a file on disk with incompressible content, and evict it from the page cache.
pub fn make_file(path: &Path, size: u64) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let mut draw = crate::Draw::with(size);
    let noise: Vec<u8> = (0..(1 << 20) / 8).flat_map(|_| draw.any().to_ne_bytes()).collect();
    let mut left = size;
    while left > 0 {
        let now = left.min(noise.len() as u64);
        file.write_all(&noise[..now as usize])?;
        left -= now;
    }
    file.sync_all()?;
    // Written pages are charged to the harness's cgroup; the victim must read in its own.
    sys::advise(&file, 0, 0, libc::POSIX_FADV_DONTNEED);
    Ok(())
}

/// Share of all CPUs that other processes may use on an idle host.
const IDLE: f64 = 0.05;
/// Share that a hypervisor may take: the clocks of the victims contain its theft.
const STOLEN: f64 = 0.08;
/// Share of the window in which some task may wait for I/O or memory.
const CALM: f64 = 0.02;

/// Watches whether other processes than the test's use the host.
pub struct Calm {
    began: u64,
    /// CPU time of all processes, and of all but the test's.
    used: Duration,
    busy: Duration,
    stolen: Duration,
    stalled: Duration,
}

impl Calm {
    /// Begin to watch.
    pub fn watch(test: Option<&Group>) -> io::Result<Self> {
        let stolen = ticks(&[STEAL])?;
        let (used, busy) = (busy_but_for(None)?, busy_but_for(test)?);
        Ok(Calm { began: clock::now(), used, busy, stolen, stalled: stalled() })
    }

    /// What disturbed the host since; `None`: nothing did. `ours`: CPU time of whyslow itself.
    pub fn disturbed(&self, test: Option<&Group>, ours: Duration) -> io::Result<Option<String>> {
        let wall = Duration::from_nanos(clock::now() - self.began).as_secs_f64().max(1e-9);
        if let Some(why) = self.crowded(test, ours, IDLE)? {
            return Ok(Some(why));
        }
        let stalled = stalled().saturating_sub(self.stalled).as_secs_f64() / wall;
        if test.is_none() && stalled > CALM {
            return Ok(Some(format!("a task waited for I/O or memory {:.0} % of the time", stalled * 100.0)));
        }
        Ok(None)
    }

    /// Whether processes other than the test's own groups and whyslow used more than this share of the CPUs since, or the hypervisor took
    /// more than the truths allow.
    pub fn crowded(&self, test: Option<&Group>, ours: Duration, most: f64) -> io::Result<Option<String>> {
        let wall = Duration::from_nanos(clock::now() - self.began).as_secs_f64().max(1e-9);
        let others = busy_but_for(test)?.saturating_sub(self.busy).saturating_sub(ours).as_secs_f64();
        let all = wall * cpus().len().max(1) as f64;
        let stolen = ticks(&[STEAL])?.saturating_sub(self.stolen).as_secs_f64() / all;
        if stolen > STOLEN {
            return Ok(Some(format!("the hypervisor took {:.0} % of the CPUs", stolen * 100.0)));
        }
        let share = others / all;
        Ok((share > most).then(|| format!("others used {:.0} % of the CPUs", share * 100.0)))
    }

    /// Unused CPU time since, as a number of CPUs.
    pub fn left_over(&self) -> io::Result<f64> {
        let wall = Duration::from_nanos(clock::now() - self.began).as_secs_f64().max(1e-9);
        let used = busy_but_for(None)?.saturating_sub(self.used).as_secs_f64();
        Ok((cpus().len() as f64 - used / wall).max(0.0))
    }
}

/// CPU time that all tasks used, minus that of the test's own groups.
fn busy_but_for(test: Option<&Group>) -> io::Result<Duration> {
    let own = test.map_or(Ok(Duration::ZERO), Group::cpu_used)?;
    // user, nice, system, (idle, iowait), irq, softirq, steal: stolen time counts as busy.
    Ok(ticks(&[0, 1, 2, 5, 6, STEAL])?.saturating_sub(own))
}

/// Place of the stolen time in the first line of /proc/stat.
const STEAL: usize = 7;

/// CPU time in these places of the line, in steps of 10 ms.
fn ticks(places: &[usize]) -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> =
        text.lines().next().unwrap_or("").split_whitespace().skip(1).map_while(|f| f.parse().ok()).collect();
    Ok(Duration::from_millis(10 * places.iter().filter_map(|at| fields.get(*at)).sum::<u64>()))
}

/// Time in which some task stalled on I/O or memory; zero where the kernel does not report it.
fn stalled() -> Duration {
    let total = |name: &str| {
        let text = fs::read_to_string(format!("/proc/pressure/{name}")).ok()?;
        let line = text.lines().find(|line| line.starts_with("some"))?;
        line.rsplit_once("total=")?.1.trim().parse().ok()
    };
    Duration::from_micros(total("io").unwrap_or(0) + total("memory").unwrap_or(0))
}

/// Version and patch level of the kernel; (0, 0) if the kernel does not report it.
#[must_use]
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|at: char| !at.is_ascii_digit()).filter_map(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_and_its_disk_is_a_whole_one() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = dir.path().join("file");
        make_file(&file, 3 << 19).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), 3 << 19);
        // A container may have no block device of its own; then an error says so.
        match disk_of(&file) {
            Ok(disk) => assert!(!Path::new("/sys/dev/block").join(&disk).join("partition").exists()),
            Err(err) => assert!(err.to_string().contains("no block device"), "{err}"),
        }
    }

    #[test]
    fn timed_a_busy_thread_disturbs_the_calm() {
        let calm = Calm::watch(None).unwrap();
        let span = clock::now() + 600_000_000;
        std::thread::scope(|scope| {
            for _ in cpus() {
                scope.spawn(|| while clock::now() < span {});
            }
        });
        assert!(calm.disturbed(None, Duration::ZERO).unwrap().is_some());
    }
}
