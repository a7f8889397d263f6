//! Reading one small file again and again: the kernel determines the cost.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::Worker;
use crate::ledger::Fact;
use crate::sys;

/// Open it, close it, rest, repeat.
pub fn open(mut w: Worker<'_>, file: &Path, rest_us: u64) -> io::Result<()> {
    while w.goes_on() {
        drop(File::open(file)?);
        w.did_one();
        sys::sleep_us(rest_us);
    }
    Ok(())
}

/// Open it, read it, rest, repeat. Each read is recorded with the moment of its end and its duration.
pub fn again(mut w: Worker<'_>, file: &Path, rest_us: u64) -> io::Result<()> {
    let mut byte = [0];
    while w.goes_on() {
        let began = sys::monotonic_ns();
        match File::open(file).and_then(|mut file| file.read(&mut byte)) {
            Ok(_) => {
                let ended = sys::monotonic_ns();
                w.ledger.note(w.slot, ended, ended.saturating_sub(began));
                w.ledger.fact(w.slot, Fact::Count).fetch_add(1, Ordering::Release);
            }
            // The harness removes the file and puts it back with another meaning.
            Err(err) => w.tally.failed(&err),
        }
        sys::sleep_us(rest_us.max(1));
    }
    Ok(())
}

/// Read the whole file from its start, over one descriptor, rest, repeat. Records the CPU time of the reads.
pub fn whole(mut w: Worker<'_>, file: &Path, rest_us: u64) -> io::Result<()> {
    let file = File::open(file)?;
    let mut text = vec![0; 64 << 10];
    while w.goes_on() {
        let (began, mut at) = (sys::cpu_ns(), 0);
        loop {
            match file.read_at(&mut text, at)? as u64 {
                0 => break,
                read => at += read,
            }
        }
        w.tally.took(sys::cpu_ns().saturating_sub(began));
        w.did_one();
        sys::sleep_us(rest_us.max(1));
    }
    Ok(())
}
