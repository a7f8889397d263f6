//! Maps by pid that several objects use (`shared.bpf.h`). The sched object makes them; the others reuse them.

use std::os::fd::BorrowedFd;

use libbpf_rs::OpenObject;

/// The sched object's maps, for others to reuse.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'fd> {
    /// Where each task's time went.
    pub slots: BorrowedFd<'fd>,
    /// The kernel lock that each task waits for.
    pub lock_waits: BorrowedFd<'fd>,
    /// Whom the trace follows.
    pub followed: BorrowedFd<'fd>,
    /// The block device of the last I/O that each task queued.
    pub last_device: BorrowedFd<'fd>,
}

impl Shared<'_> {
    /// Have an object that is not loaded yet use these maps instead of its own.
    pub fn lend(&self, object: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            match map.name().to_str() {
                Some("slots") => map.reuse_fd(self.slots)?,
                Some("lock_waits") => map.reuse_fd(self.lock_waits)?,
                Some("followed") => map.reuse_fd(self.followed)?,
                Some("last_device") => map.reuse_fd(self.last_device)?,
                _ => {}
            }
        }
        Ok(())
    }
}
