//! Limits of a cgroup.

use std::io;
use std::time::{Duration, Instant};

use super::{Controller, Group, IoLimit, Version};

/// Swapping out some hundred MiB takes seconds on a slow disk.
const SHRINK_WITHIN: Duration = Duration::from_secs(15);

impl Group {
    /// CPU time that the cgroup may use each period; `None`: no quota.
    pub fn set_quota(&self, quota: Option<(Duration, Duration)>) -> io::Result<()> {
        let (quota, period) = quota.map_or((None, 100_000), |(q, p)| (Some(q.as_micros()), p.as_micros()));
        match self.version(Controller::Cpu)? {
            Version::V2 => {
                let quota = quota.map_or_else(|| "max".to_owned(), |q| q.to_string());
                self.write(Controller::Cpu, "cpu.max", &format!("{quota} {period}"))
            }
            Version::V1 => {
                // The kernel checks each pair in between and may refuse it: write no quota first, then the period, then the quota.
                self.write(Controller::Cpu, "cpu.cfs_quota_us", "-1")?;
                self.write(Controller::Cpu, "cpu.cfs_period_us", &period.to_string())?;
                quota.map_or(Ok(()), |q| self.write(Controller::Cpu, "cpu.cfs_quota_us", &q.to_string()))
            }
        }
    }

    /// Set its weight among its siblings to `1 / part` of the default. Never above the default: a heavy group of busy tasks keeps the
    /// host's own tasks off the CPUs.
    pub fn set_lighter(&self, part: u64) -> io::Result<()> {
        match self.version(Controller::Cpu)? {
            Version::V1 => self.write(Controller::Cpu, "cpu.shares", &(1024 / part.max(1)).to_string()),
            Version::V2 => self.write(Controller::Cpu, "cpu.weight", &(100 / part.max(1)).to_string()),
        }
    }

    /// Memory that the cgroup may use; `None`: as much as its parent may.
    pub fn set_memory_limit(&self, limit: Option<u64>) -> io::Result<()> {
        let (name, none) = match self.version(Controller::Memory)? {
            Version::V1 => ("memory.limit_in_bytes", "-1"),
            Version::V2 => ("memory.max", "max"),
        };
        let text = limit.map_or_else(|| none.to_owned(), |l| l.to_string());
        let began = Instant::now();
        loop {
            match self.write(Controller::Memory, name, &text) {
                // v1 gives up after some rounds of reclaim; each has made the group smaller.
                Err(err) if err.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < SHRINK_WITHIN => {}
                done => return done,
            }
        }
    }

    /// Memory above which the kernel makes its tasks sleep (v2); `None`: no such limit.
    pub fn set_memory_high(&self, limit: Option<u64>) -> io::Result<()> {
        match self.version(Controller::Memory)? {
            Version::V1 => Err(io::Error::other("cgroup v1 has no memory.high")),
            Version::V2 => {
                let text = limit.map_or_else(|| "max".to_owned(), |l| l.to_string());
                self.write(Controller::Memory, "memory.high", &text)
            }
        }
    }

    /// How readily the kernel swaps its memory, where a cgroup has that setting (v1).
    pub fn set_swappiness(&self, value: u32) -> io::Result<()> {
        match self.version(Controller::Memory)? {
            Version::V1 => self.write(Controller::Memory, "memory.swappiness", &value.to_string()),
            Version::V2 => Ok(()),
        }
    }

    /// Largest number of tasks.
    pub fn set_pids_limit(&self, limit: u64) -> io::Result<()> {
        self.write(Controller::Pids, "pids.max", &limit.to_string())
    }

    /// Limit reads (or writes) of a device ("254:0"); `None`: no limit.
    pub fn set_io_limit(&self, device: &str, write: bool, limit: Option<IoLimit>) -> io::Result<()> {
        let word = if write { "write" } else { "read" };
        match self.version(Controller::Io)? {
            Version::V1 => {
                let (bps, iops) = match limit {
                    Some(IoLimit::Bytes(n)) => (n, 0),
                    Some(IoLimit::Requests(n)) => (0, n),
                    None => (0, 0),
                };
                let set = |what: &str, n: u64| {
                    let name = format!("blkio.throttle.{word}_{what}_device");
                    self.write(Controller::Io, &name, &format!("{device} {n}"))
                };
                set("bps", bps)?;
                set("iops", iops)
            }
            Version::V2 => {
                let w = &word[..1];
                let (bps, iops) = match limit {
                    Some(IoLimit::Bytes(n)) => (n.to_string(), "max".to_owned()),
                    Some(IoLimit::Requests(n)) => ("max".to_owned(), n.to_string()),
                    None => ("max".to_owned(), "max".to_owned()),
                };
                self.write(Controller::Io, "io.max", &format!("{device} {w}bps={bps} {w}iops={iops}"))
            }
        }
    }

    /// Unused quota that the group may save up for later periods; the kernel refuses more than one quota.
    pub fn set_burst(&self, burst: Duration) -> io::Result<()> {
        let name = match self.version(Controller::Cpu)? {
            Version::V1 => "cpu.cfs_burst_us",
            Version::V2 => "cpu.max.burst",
        };
        self.write(Controller::Cpu, name, &burst.as_micros().to_string())
    }

    /// Whether only the group's own limit throttles its block I/O: on v1 the throttle treats all groups as children of the root, wherever
    /// they are (block/blk-throttle.c, throtl_pd_init: "the broken flat hierarchy").
    pub fn io_is_flat(&self) -> io::Result<bool> {
        Ok(self.version(Controller::Io)? == Version::V1)
    }
}
