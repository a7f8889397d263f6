//! Reading and writing files, through the page cache and past it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::Worker;
use crate::spec::Direct;
use crate::sys;

/// A buffer that O_DIRECT accepts: mappings are page aligned.
pub struct Buffer(*mut u8, usize);

impl Buffer {
    pub fn new(size: u64) -> io::Result<Self> {
        Ok(Buffer(sys::map(None, size as usize)?, size as usize))
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours alone, has this size and lives as long as the buffer.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; `bytes` borrows end before the drop.
        unsafe { sys::unmap(self.0, self.1) };
    }
}

/// Position of the next block.
fn next(w: &mut Worker<'_>, blocks: u64, random: bool) -> u64 {
    let sequential = w.tally.count() + w.slot as u64 * blocks / w.spec.threads.max(1) as u64;
    if random { w.below(blocks) } else { sequential % blocks.max(1) }
}

fn read_all(file: &File) -> io::Result<()> {
    let (mut at, mut buffer) = (0, vec![0; 1 << 20]);
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(()),
            n => at += n as u64,
        }
    }
}

pub fn reread(mut w: Worker<'_>, path: &Path, block: u64, random: bool, burst_us: u64) -> io::Result<()> {
    let file = File::open(path)?;
    let blocks = file.metadata()?.len() / block;
    let mut buffer = vec![0; block as usize];
    if random {
        sys::advise(&file, 0, 0, libc::POSIX_FADV_RANDOM);
    }
    while w.goes_on() {
        w.warm_if_asked(|| read_all(&File::open(path)?))?;
        let at = next(&mut w, blocks, random);
        file.read_exact_at(&mut buffer, at * block)?;
        w.compute(burst_us);
        w.tally.did_one();
    }
    Ok(())
}

pub fn stream(mut w: Worker<'_>, path: &Path, block: u64, every_us: u64) -> io::Result<()> {
    let file = File::open(path)?;
    let blocks = file.metadata()?.len() / block;
    let mut buffer = vec![0; block as usize];
    w.at_each_tick(every_us, |w| {
        w.warm_if_asked(|| Ok(()))?;
        let at = w.tally.count() % blocks.max(1);
        if at == 0 {
            // A second pass must be as cold as the first: the stream must not find its own pages in the cache.
            sys::advise(&file, 0, 0, libc::POSIX_FADV_DONTNEED);
        }
        file.read_exact_at(&mut buffer, at * block)
    })
}

fn open_direct(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(write).custom_flags(libc::O_DIRECT).open(path)
}

pub fn direct(mut w: Worker<'_>, path: &Path, block: u64, how: Direct) -> io::Result<()> {
    let file = match how {
        Direct::Uncached => File::open(path)?,
        Direct::Read | Direct::Write => open_direct(path, how == Direct::Write)?,
    };
    let blocks = file.metadata()?.len() / block;
    let mut buffer = Buffer::new(block)?;
    sys::advise(&file, 0, 0, libc::POSIX_FADV_RANDOM); // no readahead: each read pays for itself
    while w.goes_on() {
        let at = next(&mut w, blocks, true) * block;
        match how {
            Direct::Write => file.write_all_at(buffer.bytes(), at)?,
            Direct::Read => file.read_exact_at(buffer.bytes(), at)?,
            Direct::Uncached => {
                file.read_exact_at(buffer.bytes(), at)?;
                sys::advise(&file, at, block, libc::POSIX_FADV_DONTNEED);
            }
        }
        w.tally.did_one();
    }
    Ok(())
}

/// A file with random reads past the page cache.
pub struct Random {
    file: File,
    blocks: u64,
    buffer: Buffer,
}

impl Random {
    pub fn of(path: &Path, block: u64) -> io::Result<Self> {
        let file = open_direct(path, false)?;
        let blocks = file.metadata()?.len() / block.max(1);
        Ok(Random { file, blocks, buffer: Buffer::new(block)? })
    }

    pub fn read(&mut self, w: &mut Worker<'_>) -> io::Result<()> {
        let at = w.below(self.blocks) * self.buffer.1 as u64;
        self.file.read_exact_at(self.buffer.bytes(), at)
    }
}

/// Records how long each fsync took.
pub fn sync(mut w: Worker<'_>, path: &Path, [block, each, most]: [u64; 3], rest_us: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let (blocks, bytes) = ((most / block.max(1)).max(1), vec![7; block as usize]);
    let mut next = 0;
    while w.goes_on() {
        for _ in 0..each {
            file.write_all_at(&bytes, next % blocks * block)?;
            next += 1;
        }
        let began = sys::monotonic_ns();
        file.sync_all()?;
        w.tally.took(sys::monotonic_ns().saturating_sub(began));
        w.tally.did_one();
        sys::sleep_us(rest_us);
    }
    Ok(())
}

pub fn direct_paced(mut w: Worker<'_>, path: &Path, block: u64, count: u64, every_us: u64) -> io::Result<()> {
    let file = open_direct(path, false)?;
    let blocks = file.metadata()?.len() / block;
    let mut buffer = Buffer::new(block)?;
    w.at_each_tick(every_us, |w| {
        for _ in 0..count {
            let at = next(w, blocks, true) * block;
            file.read_exact_at(buffer.bytes(), at)?;
        }
        Ok(())
    })
}
