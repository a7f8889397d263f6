//! The tar layer, for reading: member after member of a stream that may end anywhere and contain anything.
//!
//! The `tar` crate writes our files, but its reader does not distinguish a cut-off file from a complete one, and reads long names of
//! any length into memory. This reader accepts plain files only; it refuses the whole file for a link or a device, which whyslow never
//! writes.

use std::io::{self, BufRead, Read};

use super::{Halt, names, shown};

const BLOCK: usize = 512;
/// Longest name that has a member of its own (GNU type `L`, pax type `x`).
const LONG_NAME: u64 = 64 << 10;

/// The members of a tar.
pub struct TarReader<R> {
    from: R,
    /// Bytes until the next header.
    ahead: u64,
    /// Path of the next member, if it did not fit into its header.
    long_name: Option<Vec<u8>>,
}

/// The fields of a header.
struct Header {
    kind: u8,
    size: u64,
    path: Vec<u8>,
}

impl<R: BufRead> TarReader<R> {
    /// The members of `from`.
    pub fn of(from: R) -> Self {
        TarReader { from, ahead: 0, long_name: None }
    }

    /// Path and size of the next plain file; `None`: at the mark that ends a tar.
    pub fn next(&mut self) -> Result<Option<(String, u64)>, Halt> {
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            match header.kind {
                b'0' | 0 | b'7' => {
                    let path = self.long_name.take().unwrap_or(header.path);
                    return Ok(Some((names::checked(&path).map_err(Halt::Refuse)?, header.size)));
                }
                b'5' => drop(self.long_name.take()),
                b'L' => self.long_name = Some(self.text(header.size)?),
                b'x' => self.long_name = pax_path(&self.text(header.size)?).or(self.long_name.take()),
                b'g' | b'K' => {}
                kind => return Err(refused(kind, &self.long_name.take().unwrap_or(header.path))),
            }
        }
    }

    /// The contents of the member just named.
    pub fn body(&mut self, size: u64) -> Body<'_, R> {
        Body { members: self, left: size }
    }

    /// The input after the mark that ends a tar.
    pub fn rest(self) -> R {
        self.from
    }

    fn header(&mut self) -> Result<Option<Header>, Halt> {
        self.skip()?;
        let mut block = [0; BLOCK];
        self.from.read_exact(&mut block)?;
        if block.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let Some(header) = parse(&block) else {
            return Err(Halt::Tear("the header of a member is damaged".to_owned()));
        };
        let padded = header.size.checked_next_multiple_of(BLOCK as u64);
        self.ahead = padded.ok_or_else(|| Halt::Tear("a member has an impossible size".to_owned()))?;
        Ok(Some(header))
    }

    /// Skips the rest of the member and its padding.
    fn skip(&mut self) -> io::Result<()> {
        while self.ahead > 0 {
            let there = self.from.fill_buf()?.len();
            if there == 0 {
                return Err(ends_early());
            }
            let n = usize::try_from(self.ahead).unwrap_or(there).min(there);
            self.from.consume(n);
            self.ahead -= n as u64;
        }
        Ok(())
    }

    fn text(&mut self, size: u64) -> Result<Vec<u8>, Halt> {
        if size > LONG_NAME {
            return Err(Halt::Refuse(format!("a member's name has {size} bytes")));
        }
        let mut text = Vec::new();
        self.body(size).read_to_end(&mut text)?;
        text.truncate(text.trim_ascii_end().len());
        while text.last() == Some(&0) {
            text.pop();
        }
        Ok(text)
    }
}

/// The contents of one member; a member that ends before its size is an error.
pub struct Body<'m, R> {
    members: &'m mut TarReader<R>,
    left: u64,
}

impl<R: BufRead> BufRead for Body<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let there = self.members.from.fill_buf()?;
        if there.is_empty() {
            return Err(ends_early());
        }
        let n = usize::try_from(self.left).unwrap_or(there.len()).min(there.len());
        Ok(&there[..n])
    }

    fn consume(&mut self, n: usize) {
        self.members.from.consume(n);
        self.left = self.left.saturating_sub(n as u64);
        self.members.ahead = self.members.ahead.saturating_sub(n as u64);
    }
}

impl<R: BufRead> Read for Body<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut some = self.fill_buf()?;
        let n = some.read(out)?;
        self.consume(n);
        Ok(n)
    }
}

fn ends_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends early")
}

fn refused(kind: u8, path: &[u8]) -> Halt {
    let what = match kind {
        b'1' => "a hard link",
        b'2' => "a symbolic link",
        b'3' => "a character device",
        b'4' => "a block device",
        b'6' => "a FIFO",
        _ => "no plain file",
    };
    let path = shown(&String::from_utf8_lossy(path));
    Halt::Refuse(format!("member {path} is {what}, which whyslow never writes"))
}

/// POSIX ustar: name 0..100, size 124..136, checksum 148..156, type 156, magic 257..263, prefix 345..500.
fn parse(block: &[u8; BLOCK]) -> Option<Header> {
    let sum: u64 = block
        .iter()
        .enumerate()
        .map(|(i, b)| u64::from(if (148..156).contains(&i) { b' ' } else { *b }))
        .sum();
    if number(&block[148..156])? != sum {
        return None;
    }
    let mut path = until_nul(&block[..100]).to_vec();
    if block[257..263] == *b"ustar\0" && block[345] != 0 {
        path = [until_nul(&block[345..500]), b"/", &path].concat();
    }
    Some(Header { kind: block[156], size: number(&block[124..136])?, path })
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|b| *b == 0).next().unwrap_or_default()
}

/// Octal digits; or, if the top bit is set (GNU), the bytes themselves.
fn number(field: &[u8]) -> Option<u64> {
    if field.first().is_some_and(|b| b & 0x80 != 0) {
        let bytes = field.iter().enumerate().map(|(i, b)| if i == 0 { b & 0x7f } else { *b });
        return bytes.into_iter().try_fold(0u64, |n, b| n.checked_mul(256)?.checked_add(u64::from(b)));
    }
    let digits = str::from_utf8(until_nul(field)).ok()?.trim();
    u64::from_str_radix(digits, 8).ok().filter(|_| !digits.starts_with('+'))
}

/// The path in a pax header: records of "<length> <key>=<value>\n".
fn pax_path(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.split(|b| *b == b'\n');
    let mut values = lines.filter_map(|line| {
        let (_, record) = line.split_at_checked(line.iter().position(|b| *b == b' ')? + 1)?;
        record.strip_prefix(b"path=")
    });
    values.next_back().map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tar(names: &[&str]) -> Vec<u8> {
        let mut out = tar::Builder::new(Vec::new());
        for name in names {
            let mut header = tar::Header::new_gnu();
            header.set_size(5);
            out.append_data(&mut header, name, &b"12345"[..]).unwrap();
        }
        out.into_inner().unwrap()
    }

    fn paths(tar: &[u8]) -> (Vec<String>, Option<Halt>) {
        let mut members = TarReader::of(tar);
        let mut paths = Vec::new();
        loop {
            match members.next() {
                Ok(Some((path, _))) => paths.push(path),
                Ok(None) => return (paths, None),
                Err(halt) => return (paths, Some(halt)),
            }
        }
    }

    #[test]
    fn members_are_named_and_the_end_is_known() {
        let long = format!("proc/{}", "x/".repeat(100) + "y");
        let whole = tar(&["proc/stat", &long]);
        let (found, halt) = paths(&whole);
        assert_eq!(found, ["proc/stat", &long]);
        assert!(halt.is_none());

        let (found, halt) = paths(&whole[..1024]);
        assert_eq!(found, ["proc/stat"]);
        assert!(matches!(halt, Some(Halt::Tear(_))));
    }

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(number(&[0xff; 12]), None);
        assert_eq!(number(b"+7\0"), None);
        assert_eq!(number(b"99\0"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0usize..1024, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut tar = tar(&["proc/stat"]);
            for (old, new) in tar[at..].iter_mut().zip(&bytes) {
                *old = *new;
            }
            let _ = paths(&tar);
            let _ = paths(&bytes);
            let mut header = [0; BLOCK];
            header.iter_mut().zip(&bytes).for_each(|(old, new)| *old = *new);
            let _ = (parse(&header), pax_path(&bytes), number(&bytes));
        }
    }
}
