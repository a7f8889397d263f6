//! A recording from one file.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use whyslow_model::Recording;

use super::loader::Loader;
use super::tar_reader::TarReader;
use super::zstd_frames::Unpacker;
use super::{Halt, limit};

/// Bytes after the mark that ends a tar: GNU tar pads to 10 KiB.
const PADDING: u64 = 1 << 20;

/// Reads the recording from `file`, or from another stream of bytes.
pub fn open(file: impl Read) -> Result<Recording, Halt> {
    let mut input = BufReader::with_capacity(64 << 10, file);
    let start = input.fill_buf()?;
    if let Some(foreign) = foreign(start) {
        return Err(Halt::Refuse(format!("{foreign}; whyslow record writes a tar compressed with zstd")));
    }
    let at = Rc::new(Cell::new(0));
    let counted = Counted { from: input, at: Rc::clone(&at) };
    let bounded = Bounded { from: Unpacker::new(counted), left: limit::TOTAL };
    let mut within = String::new();
    let mut loader = Loader::default();
    match read(TarReader::of(bounded), &mut loader, &mut within) {
        Ok(()) => loader.finish(None),
        Err(Halt::Tear(why)) if loader.has_head() => {
            let place = if within.is_empty() { "at its end".to_owned() } else { format!("after {within}") };
            loader.finish(Some(format!("{why}, {place}, at byte {}", at.get())))
        }
        Err(Halt::Tear(why)) => Err(Halt::Refuse(format!("{why}, before whyslow.json, so nothing is left"))),
        Err(refused) => Err(refused),
    }
}

fn read<R: BufRead>(mut members: TarReader<R>, loader: &mut Loader, within: &mut String) -> Result<(), Halt> {
    while let Some((path, size)) = members.next()? {
        loader.take(&path, size, &mut members.body(size))?;
        *within = path;
    }
    within.clear();
    io::copy(&mut members.rest().take(PADDING), &mut io::sink())?;
    Ok(())
}

/// What the file is, if its first bytes show that it is no recording.
fn foreign(start: &[u8]) -> Option<&'static str> {
    // A zstd frame, or a frame that a reader skips: RFC 8878, section 3.1.
    let zstd =
        |s: &[u8]| s.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || s.get(1..4) == Some(&[0x2a, 0x4d, 0x18]);
    match start {
        [] => Some("it is empty"),
        s if zstd(s) => None,
        s if [0x28, 0xb5, 0x2f, 0xfd].starts_with(s) => Some("it ends after its first bytes"),
        [0x1f, 0x8b, ..] => Some("it is a gzip file"),
        [0x7f, b'E', b'L', b'F', ..] => Some("it is a program (ELF)"),
        [b'{' | b'[', ..] => Some("it looks like JSON"),
        s if s.get(257..262) == Some(b"ustar") => Some("it is a tar that is not compressed"),
        _ => Some("it is not a recording"),
    }
}

/// Counts the bytes that were read.
struct Counted<R> {
    from: R,
    at: Rc<Cell<u64>>,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(out)?;
        self.at.set(self.at.get().saturating_add(n as u64));
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.at.set(self.at.get().saturating_add(n as u64));
        self.from.consume(n);
    }
}

/// Gives at most `left` bytes, then an error.
struct Bounded<R> {
    from: R,
    left: u64,
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let some = self.from.fill_buf()?;
        if self.left == 0 && !some.is_empty() {
            let why = format!("it unpacks to more than {} MiB", limit::TOTAL >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let n = usize::try_from(self.left).unwrap_or(some.len()).min(some.len());
        Ok(&some[..n])
    }

    fn consume(&mut self, n: usize) {
        self.left = self.left.saturating_sub(n as u64);
        self.from.consume(n);
    }
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut some = self.fill_buf()?;
        let n = some.read(out)?;
        self.consume(n);
        Ok(n)
    }
}
