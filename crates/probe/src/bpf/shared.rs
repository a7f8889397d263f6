//! Maps by pid that several objects use (`shared.bpf.h`). The sched object makes them; the others reuse them.

use std::os::fd::BorrowedFd;

use libbpf_rs::OpenObject;

use super::map_sizes;

/// Homes of tasks, by pid modulo this, where tables are whole.
pub use super::constants::shared_h::SLOTS;
/// Spare places for tasks that find their home taken, at least: 2 MB. Of 8,000 tasks with pids drawn at random 500 are such.
const LEAST_SPARES: u32 = 4096;
/// ... and at most: enough for 120,000 tasks.
const MOST_SPARES: u32 = 65_536;

/// Homes of tasks where tables are halved so often (`map_sizes.rs`).
#[must_use]
pub fn homes() -> u32 {
    SLOTS >> map_sizes::halvings()
}

/// Threads of this host now.
#[must_use]
pub fn threads() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().nth(3).and_then(|of| of.split('/').nth(1)?.parse().ok()).unwrap_or(0)
}

/// As many spare places as there are threads now: not even on a host with 100,000 threads does a task go without, unless memory is limited.
#[must_use]
pub fn spares(threads: u32, halvings: u32) -> u32 {
    threads.clamp(LEAST_SPARES >> halvings, MOST_SPARES >> halvings)
}

/// The sched object's maps, for others to reuse.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'fd> {
    /// Where each task's time went.
    pub slots: BorrowedFd<'fd>,
    /// The kernel lock that each task waits for.
    pub lock_waits: BorrowedFd<'fd>,
    /// The tasks that the trace follows.
    pub followed: BorrowedFd<'fd>,
    /// ... and followed tasks whose place there is another's.
    pub followed_more: BorrowedFd<'fd>,
    /// The block device of the last I/O that each task queued.
    pub last_device: BorrowedFd<'fd>,
    /// The places of tasks whose home is another's.
    pub displaced: BorrowedFd<'fd>,
    /// Places in all maps by pid.
    pub places: u32,
}

impl Shared<'_> {
    /// Make an object that is not loaded yet use these maps instead of its own.
    pub fn lend(&self, object: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            match map.name().to_str() {
                Some("slots") => map.reuse_fd(self.slots)?,
                Some("lock_waits") => map.reuse_fd(self.lock_waits)?,
                Some("followed") => map.reuse_fd(self.followed)?,
                Some("followed_more") => map.reuse_fd(self.followed_more)?,
                Some("last_device") => map.reuse_fd(self.last_device)?,
                Some("displaced") => map.reuse_fd(self.displaced)?,
                _ => {}
            }
        }
        Ok(())
    }
}
