//! A small file system in memory that belongs to one test.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use whyslow_faults::Fence;

/// Its mount point, in a folder of the fence.
pub struct Small(pub PathBuf);

impl Small {
    pub fn new(fence: &Fence, options: &str) -> io::Result<Self> {
        let at = fence.dir().join("small");
        std::fs::create_dir(&at)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "whyslow-test"]).arg(&at);
        match mount.status()?.success() {
            true => Ok(Small(at)),
            false => Err(io::Error::other("a small file system cannot be mounted")),
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
