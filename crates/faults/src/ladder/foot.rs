//! What the thread at the foot of a ladder does while all wait for it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use super::things::Thing;
use super::{self as ladder, Plan};
use crate::work::{Buffer, turn};
use crate::{host, sys};

/// The file that the foot may read, in the ladder's directory.
pub const FILE: &str = "foot";
/// Its size.
pub const FILE_SIZE: u64 = 16 << 20;
const BLOCK: u64 = 4096;
/// Between two looks at the clock, in us of CPU.
const BURST_US: u64 = 100;

/// Ready to act.
pub struct Foot {
    what: ladder::Foot,
    turns_per_us: f64,
    disk: Option<(File, Buffer, u64)>,
}

/// Of the thread at `position`; only the foot needs anything.
pub fn ready(plan: &Plan, position: usize, turns_per_us: f64) -> io::Result<Foot> {
    let disk = if plan.foot == ladder::Foot::Disk && position + 1 == plan.len() && !plan.healthy {
        let path = plan.dir.join(FILE);
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        Some((file, Buffer::new(BLOCK)?, 0))
    } else {
        None
    };
    Ok(Foot { what: plan.foot, turns_per_us, disk })
}

/// Make what it reads.
pub fn make_file(plan: &Plan) -> io::Result<()> {
    host::make_file(&plan.dir.join(FILE), FILE_SIZE)
}

/// So much CPU time, on an idle CPU.
pub fn compute(turns_per_us: f64, us: u64) {
    turn((us as f64 * turns_per_us) as u64);
}

impl Foot {
    /// Do it for about `us`.
    pub fn act(&mut self, above: &dyn Thing, us: u64) -> io::Result<()> {
        let end = sys::monotonic_ns() + us * 1000;
        match self.what {
            ladder::Foot::Sleep => sys::sleep_until(end),
            ladder::Foot::Burn | ladder::Foot::Quota => {
                while sys::monotonic_ns() < end {
                    compute(self.turns_per_us, BURST_US);
                }
            }
            ladder::Foot::Disk => self.read_until(end)?,
            // One alone may be over before the threads above have come to wait.
            ladder::Foot::GracePeriod => {
                while sys::monotonic_ns() < end {
                    sys::kernel::grace_period()?;
                }
            }
            ladder::Foot::Rung => above.hold_for(us)?,
        }
        Ok(())
    }

    fn read_until(&mut self, end: u64) -> io::Result<()> {
        let Some((file, buffer, at)) = self.disk.as_mut() else {
            return Err(io::Error::other("the foot has no disk"));
        };
        while sys::monotonic_ns() < end {
            file.read_exact_at(buffer.bytes(), *at % FILE_SIZE)?;
            *at += BLOCK;
        }
        Ok(())
    }
}
