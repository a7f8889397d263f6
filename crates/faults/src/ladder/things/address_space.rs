//! `mmap_lock`, held by the foot in one long system call over a range of addresses.
//!
//! Mapping the page of zeroes over gigabytes of addresses costs CPU time and page tables, 2 MiB a GiB, and no more memory.

use std::io;

use super::Thing;
use crate::ladder::Plan;
use crate::sys::kernel::Zeroes;

const PAGE: usize = 4096;
/// Measured on kernel 6.18: populating 4 KiB of zeroes takes 0.6 us, changing its protection 0.07 us. How long it really
/// took is noted by the thread that does it.
const BYTES_POPULATED_PER_US: u64 = 6_500;
const BYTES_PROTECTED_PER_US: u64 = 52_000;
const AT_MOST: u64 = 4 << 30;

/// The range, and one page more.
pub struct AddressSpace {
    range: Zeroes,
    beside: Zeroes,
    read: bool,
    healthy: bool,
}

impl AddressSpace {
    pub fn new(plan: &Plan, read: bool) -> io::Result<Self> {
        let longest = plan.rounds.iter().max().copied().unwrap_or(0);
        let size = if plan.healthy { PAGE as u64 } else { size_for(longest, read) };
        let space = AddressSpace {
            range: Zeroes::new(size as usize + PAGE)?,
            beside: Zeroes::new(PAGE)?,
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

fn size_for(us: u64, read: bool) -> u64 {
    let per_us = if read { BYTES_PROTECTED_PER_US } else { BYTES_POPULATED_PER_US };
    us.saturating_mul(per_us).clamp(PAGE as u64, AT_MOST).next_multiple_of(PAGE as u64)
}

impl Thing for AddressSpace {
    fn want(&self) -> io::Result<()> {
        if self.read && !self.healthy {
            // In the range whose protection changes: its lock of its own is taken for writing, so a page fault must
            // take that of the whole address space.
            self.range.touch(0);
            Ok(())
        } else {
            self.beside.map_again(0)
        }
    }

    fn hold_for(&self, us: u64) -> io::Result<()> {
        let size = size_for(us, self.read) as usize;
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
