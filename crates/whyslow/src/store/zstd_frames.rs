//! The zstd layer: many frames of bounded size, each with its checksum. The reader of a damaged file uses the frames before the damage
//! and nothing after it.

use std::io::{self, BufRead, Read, Write};

use zstd::stream::{read, write};

use super::shown;

/// Unpacked bytes in one zstd frame. A smaller frame loses less to a flipped bit and packs worse (docs/recording.md).
const FRAME: usize = 512 << 10;
/// Unpacked bytes after which the packer flushes: a cut file loses no more than this before the cut.
const FLUSH: usize = 32 << 10;
/// Compression level. For counters and rows of JSON, level 3 gives no smaller file, and level 9 a file that is a sixth smaller for twice
/// the CPU time.
const LEVEL: i32 = 1;
/// log2 of the largest zstd window that the reader accepts: 8 MiB, which `zstd -19` makes.
const WINDOW_LOG: u32 = 23;
/// Unpacked bytes of one frame that the reader holds back until it has verified the checksum. Our own frames are smaller.
const HELD: usize = 4 << 20;

/// Compresses the bytes that are written to it.
pub struct Packer<W: Write> {
    frame: Option<write::Encoder<'static, W>>,
    in_frame: usize,
    unflushed: usize,
}

impl<W: Write> Packer<W> {
    /// Compresses into `out`.
    pub fn new(out: W) -> io::Result<Self> {
        Ok(Packer { frame: Some(encoder(out)?), in_frame: 0, unflushed: 0 })
    }

    /// Ends the last frame.
    pub fn finish(self) -> io::Result<W> {
        self.frame.ok_or_else(broken)?.finish()
    }

    fn next_frame(&mut self) -> io::Result<()> {
        let out = self.frame.take().ok_or_else(broken)?.finish()?;
        self.frame = Some(encoder(out)?);
        self.in_frame = 0;
        self.unflushed = 0;
        Ok(())
    }
}

fn encoder<W: Write>(out: W) -> io::Result<write::Encoder<'static, W>> {
    let mut encoder = write::Encoder::new(out, LEVEL)?;
    encoder.include_checksum(true)?;
    Ok(encoder)
}

/// An earlier write failed between two frames.
fn broken() -> io::Error {
    io::Error::other("an earlier write failed")
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = &bytes[..bytes.len().min(FLUSH)];
        let n = self.frame.as_mut().ok_or_else(broken)?.write(some)?;
        self.in_frame += n;
        self.unflushed += n;
        if self.in_frame >= FRAME {
            self.next_frame()?;
        } else if self.unflushed >= FLUSH {
            self.flush()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unflushed = 0;
        self.frame.as_mut().ok_or_else(broken)?.flush()
    }
}

/// Decompresses, and hands out only bytes that are right: whole frames with a right checksum, and the part of a cut-off frame before the
/// cut.
pub struct Unpacker<R: BufRead> {
    state: State<R>,
    held: Vec<u8>,
    given: usize,
}

enum State<R: BufRead> {
    Between(R),
    Within(read::Decoder<'static, R>),
    Over(Option<io::Error>),
}

impl<R: BufRead> Unpacker<R> {
    /// Decompresses `from`.
    pub fn new(from: R) -> Self {
        Unpacker { state: State::Between(from), held: Vec::new(), given: 0 }
    }

    /// Decompresses up to the end of a frame, or up to the bound of what is held back. If nothing is held afterwards, the input has ended.
    fn refill(&mut self) -> io::Result<()> {
        self.held.clear();
        self.given = 0;
        while self.held.is_empty() {
            match std::mem::replace(&mut self.state, State::Over(None)) {
                State::Between(mut from) => {
                    if from.fill_buf()?.is_empty() {
                        return Ok(());
                    }
                    let mut decoder = read::Decoder::with_buffer(from)?.single_frame();
                    decoder.window_log_max(WINDOW_LOG)?;
                    self.state = State::Within(decoder);
                }
                State::Within(mut decoder) => match hold(&mut decoder, &mut self.held) {
                    Ok(true) => self.state = State::Between(decoder.finish()),
                    Ok(false) => self.state = State::Within(decoder),
                    Err(error) => {
                        if !is_cut(&error) {
                            self.held.clear();
                        }
                        self.state = State::Over(Some(reason(&error)));
                    }
                },
                State::Over(error) => return error.map_or(Ok(()), Err),
            }
        }
        Ok(())
    }
}

/// Decompresses until the frame ends (`true`) or enough bytes are held.
fn hold(decoder: &mut impl Read, held: &mut Vec<u8>) -> io::Result<bool> {
    let mut some = [0; 16 << 10];
    while held.len() < HELD {
        match decoder.read(&mut some)? {
            0 => return Ok(true),
            n => held.extend_from_slice(&some[..n]),
        }
    }
    Ok(false)
}

/// The input ended, or a read from the disk failed; the bytes before that are right. Any other error comes from zstd: the frame is
/// damaged, from an unknown place on.
fn is_cut(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error().is_some()
}

fn reason(error: &io::Error) -> io::Error {
    let text = match error {
        e if e.kind() == io::ErrorKind::UnexpectedEof => "the file ends early".to_owned(),
        e if is_cut(e) => e.to_string(),
        e => format!("the file is damaged ({})", shown(&e.to_string())),
    };
    io::Error::new(error.kind(), text)
}

impl<R: BufRead> Read for Unpacker<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut some = self.fill_buf()?;
        let n = some.read(out)?;
        self.consume(n);
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Unpacker<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.given >= self.held.len() {
            self.refill()?;
        }
        Ok(self.held.get(self.given..).unwrap_or_default())
    }

    fn consume(&mut self, n: usize) {
        self.given = self.given.saturating_add(n).min(self.held.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        (0u32..300_000).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut packer = Packer::new(Vec::new()).unwrap();
        packer.write_all(text).unwrap();
        packer.finish().unwrap()
    }

    fn unpacked(packed: &[u8]) -> (Vec<u8>, Option<String>) {
        let mut out = Vec::new();
        let end = Unpacker::new(packed).read_to_end(&mut out);
        (out, end.err().map(|e| e.to_string()))
    }

    #[test]
    fn packed_bytes_unpack_unchanged() {
        for text in [&b""[..], b"x", &text()] {
            assert_eq!(unpacked(&packed(text)), (text.to_vec(), None));
        }
    }

    #[test]
    fn a_cut_costs_no_more_than_one_flush() {
        let text = text();
        let packed = packed(&text);
        for cut in (1..packed.len()).step_by(9_973) {
            let (out, why) = unpacked(&packed[..cut]);
            // The text does not compress: a packed byte is about an unpacked one.
            assert!(text.starts_with(&out) && out.len() + FLUSH + 4096 > cut, "{} of {cut}", out.len());
            assert!(why.is_none_or(|why| why == "the file ends early"));
        }
    }

    #[test]
    fn a_flipped_bit_invents_nothing() {
        let text = text();
        let packed = packed(&text);
        for at in (0..packed.len()).step_by(49_999) {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x10;
            let (out, why) = unpacked(&damaged);
            assert!(text.starts_with(&out) && out.len() + FRAME + 4096 > at, "at {at}");
            assert!(why.is_some_and(|why| why.starts_with("the file is damaged (")), "at {at}");
        }
    }

    #[test]
    fn a_large_window_is_refused() {
        let mut encoder = write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&text()).unwrap();
        let (out, why) = unpacked(&encoder.finish().unwrap());
        assert!(out.is_empty() && why.unwrap().contains("memory"));
    }
}
