//! Random reads or writes of a file on the guest's disk, past the page cache: what fio does.

use serde::{Deserialize, Serialize};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::{Direct, Work};
use whyslow_faults::{Draw, Victim, host};

use super::{GREEDY, Steady};
use crate::stage::Stage;
use crate::stage::part::{Part, Setting};

/// Disk I/O.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// How many read or write, one request each at a time.
    threads: u64,
    /// "read", "write", "uncached".
    how: How,
    /// Of one request.
    block_kib: u64,
    /// Of the file.
    file_mib: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum How {
    Read,
    Write,
    Uncached,
}

impl Setting for Spec {
    fn set(&self, stage: &Stage, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let file = stage.dir.join(draw.word(8));
        host::make_file(&file, self.file_mib << 20)?;
        // Without a disk of its own it would be a load of the host's file server.
        host::disk_of(&file)?;
        let how = match self.how {
            How::Read => Direct::Read,
            How::Write => Direct::Write,
            How::Uncached => Direct::Uncached,
        };
        let work = Work::Direct { file, block: self.block_kib << 10, how };
        let group = stage.fence.group(&draw.word(6))?;
        let victim = Victim::spawn(stage.fence.spec(&group, &draw.word(7), self.threads, work))?;
        let what = format!("{} x {how:?} of {} KiB; requests a second", self.threads, self.block_kib);
        Ok(Box::new(Steady::start(victim, group, what, GREEDY)))
    }
}
