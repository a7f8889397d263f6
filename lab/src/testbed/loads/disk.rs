//! Random reads of a file on the guest's disk, past the page cache, a number at each tick: like fio with a rate.

use serde::{Deserialize, Serialize};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Victim, host};

use super::{PACED, Steady};
use crate::testbed::TestBed;
use crate::testbed::part::{Part, Setting};

/// Disk I/O.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Number of readers, one request each at a time ...
    threads: u64,
    /// ... so many requests at each tick ...
    count: u64,
    /// ... at this interval.
    every_us: u64,
    /// Size of one request.
    block_kib: u64,
    /// Size of the file.
    file_mib: u64,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let file = testbed.dir.join(draw.word(8));
        host::make_file(&file, self.file_mib << 20)?;
        // Without a disk of its own the guest would load the host's file server.
        host::disk_of(&file)?;
        let work = Work::DirectPaced {
            file,
            block: self.block_kib << 10,
            count: self.count,
            every_us: self.every_us,
        };
        let group = testbed.fence.group(&draw.word(6))?;
        let victim = Victim::spawn(testbed.fence.spec(&group, &draw.word(7), self.threads, work))?;
        let what = format!(
            "{} x {} reads of {} KiB every {} us; done in time a second",
            self.threads, self.count, self.block_kib, self.every_us
        );
        Ok(Box::new(Steady::start(victim, group, what, PACED)))
    }
}
