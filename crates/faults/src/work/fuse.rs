//! A FUSE file system with one file: include/uapi/linux/fuse.h. It is mounted in a mount namespace of the server, and disappears with it;
//! other processes reach it through `/proc/PID/root`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use super::Worker;
use crate::ledger::Word;
use crate::sys;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const BATCH_FORGET: u32 = 42;

/// Size of the file, in bytes.
const SIZE: u64 = 64;
const ROOT: u64 = 1;
const ONLY: u64 = 2;
/// Every read reaches the server: the kernel caches no page of the file (FOPEN_DIRECT_IO).
const DIRECT: u32 = 1;
/// Buffer size that the kernel requires (FUSE_MIN_READ_BUFFER), plus a header.
const REQUEST: usize = 64 << 10;

/// Serve it. `Word::Mode` 1: answer a read after a sleep.
pub fn serve<'l>(ready: impl FnOnce() -> Worker<'l>, dir: &Path, sleep_us: u64) -> io::Result<()> {
    let mut device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    sys::mount_fuse(dir, device.as_raw_fd())?;
    let mut w = ready();
    let mut request = vec![0; REQUEST];
    while w.goes_on() {
        let length = device.read(&mut request)?;
        let Some(head) = Head::of(&request[..length]) else { continue };
        if head.opcode == READ && w.word(Word::Mode) == 1 {
            sys::sleep_us(sleep_us);
        }
        answer(&mut device, &head)?;
        if head.opcode == READ {
            w.did_one();
        }
    }
    Ok(())
}

/// The head of each request; for a read, also the fields that follow.
struct Head {
    opcode: u32,
    unique: u64,
    node: u64,
    offset: u64,
    size: u32,
}

impl Head {
    fn of(request: &[u8]) -> Option<Self> {
        let four = |at: usize| Some(u32::from_ne_bytes(request.get(at..at + 4)?.try_into().ok()?));
        let eight = |at: usize| Some(u64::from_ne_bytes(request.get(at..at + 8)?.try_into().ok()?));
        let (offset, size) = (eight(48).unwrap_or(0), four(56).unwrap_or(0));
        Some(Head { opcode: four(4)?, unique: eight(8)?, node: eight(16)?, offset, size })
    }
}

fn answer(device: &mut File, head: &Head) -> io::Result<()> {
    let body = match head.opcode {
        FORGET | BATCH_FORGET => return Ok(()),
        INIT => words32(&[7, 31, 0, 0, 0, 4096, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        LOOKUP => [words64(&[ONLY, 0, 60, 60]), words32(&[0, 0]), attributes(ONLY)].concat(),
        GETATTR => [words64(&[60]), words32(&[0, 0]), attributes(head.node)].concat(),
        OPEN => [words64(&[0]), words32(&[DIRECT, 0])].concat(),
        // At most the requested bytes: the kernel treats more as an error.
        READ => vec![b'x'; SIZE.saturating_sub(head.offset).min(head.size.into()) as usize],
        RELEASE | FLUSH => Vec::new(),
        _ => return reply(device, head, -libc::ENOSYS, &[]),
    };
    reply(device, head, 0, &body)
}

fn reply(device: &mut File, head: &Head, error: i32, body: &[u8]) -> io::Result<()> {
    let length = (16 + body.len()) as u32;
    let whole = [words32(&[length, error as u32]), words64(&[head.unique]), body.to_vec()].concat();
    match device.write(&whole) {
        // The task that sent the request has been killed.
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map(drop),
    }
}

/// Attributes of the root, or of the file.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, links) = if node == ROOT { (libc::S_IFDIR | 0o755, 2) } else { (libc::S_IFREG | 0o644, 1) };
    [words64(&[node, SIZE, 1, 0, 0, 0]), words32(&[0, 0, 0, mode, links, 0, 0, 0, 4096, 0])].concat()
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words64(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
