//! Touching anonymous memory.

use std::io;
use std::ptr;

use super::Worker;
use crate::sys;

const PAGE: u64 = 4096;
/// Pages in a piece of work: one page is too little compared with reading the clock.
const PIECE: u64 = 16;

struct Region {
    at: *mut u8,
    pages: u64,
}

impl Region {
    /// Filled with bytes that compress badly: half of each page is noise.
    fn filled(bytes: u64, w: &mut Worker<'_>) -> io::Result<Self> {
        let region = Region { at: sys::map(None, bytes.max(PAGE) as usize)?, pages: bytes / PAGE };
        sys::no_huge_pages(region.at, bytes as usize);
        (0..region.pages).for_each(|page| region.fill(page, w));
        Ok(region)
    }

    fn fill(&self, page: u64, w: &mut Worker<'_>) {
        for word in 0..PAGE / 16 {
            let noise = w.below(u64::MAX);
            // SAFETY: page < pages and word < 256, so inside the mapping, which is never unmapped; aligned to 8.
            unsafe {
                ptr::write_volatile(self.at.add((page * PAGE + word * 8) as usize).cast::<u64>(), noise)
            };
        }
    }

    fn touch(&self, page: u64) {
        // SAFETY: page < pages, so inside the mapping, which is never unmapped; aligned to 8.
        unsafe {
            let word = self.at.add((page * PAGE) as usize).cast::<u64>();
            ptr::write_volatile(word, ptr::read_volatile(word).wrapping_add(1));
        }
    }
}

pub fn touch(mut w: Worker<'_>, bytes: u64, burst_us: u64, random: bool) -> io::Result<()> {
    let region = Region::filled(bytes, &mut w)?;
    let pieces = (region.pages / PIECE).max(1);
    while w.goes_on() {
        w.warm_if_asked(|| {
            (0..region.pages).for_each(|page| region.touch(page));
            Ok(())
        })?;
        let piece = if random { w.below(pieces) } else { w.tally.count() % pieces };
        (0..PIECE.min(region.pages)).for_each(|page| region.touch(piece * PIECE + page));
        w.compute(burst_us);
        w.tally.did_one();
    }
    Ok(())
}

pub fn hoard(mut w: Worker<'_>, [hot, cold, more]: [u64; 3], burst_us: u64, every_us: u64) -> io::Result<()> {
    let _forgotten = Region::filled(cold, &mut w)?;
    let hot = Region::filled(hot, &mut w)?;
    w.at_each_tick(every_us, |w| {
        w.warm_if_asked(|| Ok(()))?;
        (0..hot.pages).for_each(|page| hot.touch(page));
        w.compute(burst_us);
        Region::filled(more, w).map(drop) // written once, never read again, not freed
    })
}

pub fn churn(mut w: Worker<'_>, bytes: u64, rest_us: u64) -> io::Result<()> {
    let size = bytes.max(PAGE) as usize;
    while w.goes_on() {
        let region = Region { at: sys::map(None, size)?, pages: bytes / PAGE };
        sys::no_huge_pages(region.at, size);
        (0..region.pages).for_each(|page| region.touch(page));
        // SAFETY: mapped above with this size; no other code uses it.
        unsafe { sys::unmap(region.at, size) };
        w.tally.did_one();
        if rest_us > 0 {
            sys::sleep_us(rest_us);
        }
    }
    Ok(())
}
