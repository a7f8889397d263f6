//! The action of the leaf of a lock chain while all other threads wait for it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use super::links::Object;
use super::{self as lock_chain, Plan};
use crate::work::{Buffer, turn};
use crate::{host, sys};

/// The file that the leaf may read, in the lock chain's directory.
pub const FILE: &str = "leaf";
pub const FILE_SIZE: u64 = 16 << 20;
const BLOCK: u64 = 4096;
/// CPU time between two checks of the clock, in us.
const BURST_US: u64 = 100;

/// Ready to act.
pub struct Leaf {
    what: lock_chain::Leaf,
    turns_per_us: f64,
    disk: Option<(File, Buffer, u64)>,
}

/// For the thread at `position`; only the leaf needs anything.
pub fn ready(plan: &Plan, position: usize, turns_per_us: f64) -> io::Result<Leaf> {
    let disk = if plan.leaf == lock_chain::Leaf::Disk && position + 1 == plan.len() && !plan.healthy {
        let path = plan.dir.join(FILE);
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        Some((file, Buffer::new(BLOCK)?, 0))
    } else {
        None
    };
    Ok(Leaf { what: plan.leaf, turns_per_us, disk })
}

/// Make the file that the leaf reads.
pub fn make_file(plan: &Plan) -> io::Result<()> {
    host::make_file(&plan.dir.join(FILE), FILE_SIZE)
}

/// Use so much CPU time, as measured on an idle CPU.
pub fn compute(turns_per_us: f64, us: u64) {
    turn((us as f64 * turns_per_us) as u64);
}

/// Whether the process has stopped: on a busy host that takes a while.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
}

/// Stop until a child process continues us.
fn stop_until(end: u64) -> io::Result<()> {
    let stopped = std::process::id() as i32;
    if sys::fork()? {
        sys::die_with_parent()?;
        sys::set_name("goes-on");
        sys::sleep_until(end);
        while !is_stopped(stopped) {
            sys::sleep_us(500);
        }
        sys::stop(stopped, false);
        sys::leave(0);
    }
    // SAFETY: the signal goes to this process.
    unsafe { libc::raise(libc::SIGSTOP) };
    sys::kernel::wait_for_child();
    Ok(())
}

impl Leaf {
    /// Act for about `us`.
    pub fn act(&mut self, above: &dyn Object, us: u64) -> io::Result<()> {
        let end = sys::monotonic_ns() + us * 1000;
        match self.what {
            lock_chain::Leaf::Sleep => sys::sleep_until(end),
            lock_chain::Leaf::Burn | lock_chain::Leaf::Quota => {
                while sys::monotonic_ns() < end {
                    compute(self.turns_per_us, BURST_US);
                }
            }
            lock_chain::Leaf::Stopped => stop_until(end)?,
            lock_chain::Leaf::Disk => self.read_until(end)?,
            // A single grace period may end before the threads above begin to wait.
            lock_chain::Leaf::GracePeriod => {
                while sys::monotonic_ns() < end {
                    sys::kernel::grace_period()?;
                }
            }
            lock_chain::Leaf::Link => above.hold_for(us)?,
        }
        Ok(())
    }

    fn read_until(&mut self, end: u64) -> io::Result<()> {
        let Some((file, buffer, at)) = self.disk.as_mut() else {
            return Err(io::Error::other("the leaf has no disk"));
        };
        while sys::monotonic_ns() < end {
            file.read_exact_at(buffer.bytes(), *at % FILE_SIZE)?;
            *at += BLOCK;
        }
        Ok(())
    }
}
