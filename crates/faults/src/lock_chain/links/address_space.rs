//! `mmap_lock`, held by the leaf in one long system call over a range of addresses.
//!
//! Mapping the zero page over gigabytes of addresses costs CPU time and page tables, 2 MiB a GiB, but no other memory.

use std::io;

use super::Object;
use crate::clock;
use crate::lock_chain::Plan;
use crate::sys::kernel::Zeroes;

const PAGE: usize = 4096;
/// Size of a first try, which measures the speed of this host: 4 KiB of zeroes took 0.6 us and 0.25 us on one machine on two days, and more
/// in a guest. The thread that acts records how long its act took.
const TRIED: u64 = 64 << 20;
const AT_MOST: u64 = 8 << 30;

/// The range, and one page more.
pub struct AddressSpace {
    range: Zeroes,
    beside: Zeroes,
    /// Bytes that the system call covers in a microsecond.
    per_us: u64,
    read: bool,
    healthy: bool,
}

impl AddressSpace {
    pub fn new(plan: &Plan, read: bool) -> io::Result<Self> {
        let longest = plan.rounds.iter().max().copied().unwrap_or(0);
        let per_us = if plan.healthy { 1 } else { per_us(read)? };
        let size = if plan.healthy { PAGE as u64 } else { size_for(longest, per_us) };
        let space = AddressSpace {
            range: Zeroes::new(size as usize + PAGE)?,
            beside: Zeroes::new(PAGE)?,
            per_us,
            read,
            healthy: plan.healthy,
        };
        if read && !plan.healthy {
            space.range.populate(size as usize)?;
            space.range.drop_pages(0, PAGE)?;
        }
        Ok(space)
    }
}

/// The faster of two tries: the first one also pays for missing page tables, as each act does, and may be interrupted.
fn per_us(read: bool) -> io::Result<u64> {
    let mut least = u64::MAX;
    for _ in 0..2 {
        let trial = Zeroes::new(TRIED as usize)?;
        if read {
            trial.populate(TRIED as usize)?;
        }
        let began = clock::now();
        if read {
            trial.protect(TRIED as usize, true)?
        } else {
            trial.populate(TRIED as usize)?
        }
        least = least.min(clock::now().saturating_sub(began));
    }
    Ok((TRIED * 1_000).checked_div(least).unwrap_or(TRIED).max(1))
}

fn size_for(us: u64, per_us: u64) -> u64 {
    us.saturating_mul(per_us).clamp(PAGE as u64, AT_MOST).next_multiple_of(PAGE as u64)
}

impl Object for AddressSpace {
    fn want(&self) -> io::Result<()> {
        if self.read && !self.healthy {
            // In the range whose protection changes: mprotect takes the lock of that VMA for writing, so a page fault there must take the
            // lock of the whole address space.
            self.range.touch(0);
            Ok(())
        } else {
            self.beside.map_again(0)
        }
    }

    fn hold_for(&self, us: u64) -> io::Result<()> {
        let size = size_for(us, self.per_us) as usize;
        if self.read { self.range.protect(size, true) } else { self.range.populate(size) }
    }

    fn rest(&self) -> io::Result<()> {
        if self.read {
            self.range.protect(usize::MAX, false)?;
            self.range.drop_pages(0, PAGE)
        } else {
            self.range.drop_pages(0, usize::MAX)
        }
    }

    fn briefly(&self, act: &dyn Fn()) -> io::Result<()> {
        act();
        self.range.populate(PAGE)
    }
}
