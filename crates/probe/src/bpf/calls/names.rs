//! Names of file ids: the kernel half sends parts, which are put together here.

use std::collections::HashMap;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::skel::types::call_name;
use crate::bpf::constants::calls_h as kind;
use crate::bpf::constants::calls_h::NO_NAME;
pub use crate::bpf::constants::calls_h::OTHER_FILES as OTHER;
use crate::bpf::value;
use crate::redact;

/// Calls that are summed without a name.
pub const OTHER_FILES: &str = "[other files]";
const AF_UNIX: u32 = libc::AF_UNIX as u32;
const AF_INET: u32 = libc::AF_INET as u32;
const AF_INET6: u32 = libc::AF_INET6 as u32;
/// A program that makes up paths must not fill our memory.
const MOST_BYTES: usize = 24 << 20;

// SAFETY: generated from the C struct; integers and bytes only.
unsafe impl plain::Plain for call_name {}

/// All names that were reported.
#[derive(Default)]
pub struct Names {
    reported: HashMap<u32, (call_name, Vec<u8>)>,
    bytes: usize,
}

impl Names {
    /// Note a record of the kernel half. False: there is no room left.
    pub fn note(&mut self, record: &[u8]) -> bool {
        if record.len() < size_of::<call_name>() || self.bytes > MOST_BYTES {
            return false;
        }
        let (head, text) = record.split_at(size_of::<call_name>());
        let name: call_name = value(head);
        self.bytes += record.len();
        self.reported.insert(name.id, (name, text.to_vec()));
        true
    }

    /// The file's path or other name; `None`: the call has no name.
    pub fn of(&self, id: u32) -> Option<String> {
        if id == NO_NAME {
            return None;
        }
        let Some((name, text)) = self.reported.get(&id) else { return Some(OTHER_FILES.to_owned()) };
        let called = match name.kind {
            kind::WALK => walked(name, text) + deleted(name, text),
            kind::STRING => self.written(name, text),
            kind::PIPE => "pipe".to_owned(),
            kind::INET => inet(name),
            kind::UNIX => unix(text),
            kind::ANON => anonymous(text),
            kind::ADDRESS => address(text),
            _ => family(name.family),
        };
        Some(redact::path(&called))
    }

    /// The path as the caller wrote it, below the folder that it begins in.
    fn written(&self, name: &call_name, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text);
        let base = self.reported.get(&name.base).filter(|(base, _)| base.kind == kind::WALK);
        let Some((base, parts)) = base.filter(|_| !text.starts_with('/')) else { return text.into_owned() };
        let mut path = walked(base, parts);
        for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(part);
        }
        path
    }
}

/// As /proc shows it (fs/d_path.c).
fn deleted(name: &call_name, text: &[u8]) -> &'static str {
    if name.deleted != 0 && !is_unnamed(name, text.split(|byte| *byte == 0).next().unwrap_or_default()) {
        " (deleted)"
    } else {
        ""
    }
}

/// O_TMPFILE: d_tmpfile() names the file by its number, which would make a row of each.
fn is_unnamed(name: &call_name, part: &[u8]) -> bool {
    part.strip_prefix(b"#").is_some_and(|ino| ino == name.ino.to_string().as_bytes())
}

/// The parts come last one first, each with a zero byte.
fn walked(name: &call_name, text: &[u8]) -> String {
    let parts: Vec<_> = text.split(|byte| *byte == 0).filter(|part| !part.is_empty()).collect();
    let mut path = if name.cut == 0 { String::new() } else { "[...]".to_owned() };
    for (left, part) in parts.iter().enumerate().rev() {
        path.push('/');
        let unnamed = left == 0 && is_unnamed(name, part);
        let part = if unnamed { "[unnamed]".into() } else { String::from_utf8_lossy(part) };
        path.push_str(&part);
    }
    if path.is_empty() { "/".to_owned() } else { path }
}

fn inet(name: &call_name) -> String {
    let a = name.addr;
    let ip = if name.family == AF_INET {
        IpAddr::V4(Ipv4Addr::new(a[0], a[1], a[2], a[3]))
    } else {
        IpAddr::V6(Ipv6Addr::from(a)).to_canonical()
    };
    match (name.port as u16, name.listens) {
        (0, _) => "socket".to_owned(),
        (port, 0) if name.cut == 0 => format!("socket {}", SocketAddr::new(ip, port)),
        (port, 0) => format!("socket on {}", SocketAddr::new(ip, port)),
        (port, _) => format!("socket {} (listening)", SocketAddr::new(ip, port)),
    }
}

fn unix(path: &[u8]) -> String {
    let (mark, path) = match path.split_first() {
        None => return "unix socket".to_owned(),
        Some((0, rest)) => ("@", rest), // an abstract name; it may hold zero bytes
        _ => ("", path),
    };
    let path: Vec<u8> = path.split(|byte| *byte == 0).collect::<Vec<_>>().join(&b'@');
    format!("unix:{mark}{}", String::from_utf8_lossy(&path).trim_end_matches('@'))
}

fn anonymous(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
    // "[eventpoll]" and "memfd:name" are names; what has none is reported by its file system: "pidfs".
    if text.starts_with('[') || text.contains(':') { text } else { format!("[{text}]") }
}

/// A sockaddr as the caller wrote it.
fn address(text: &[u8]) -> String {
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    let port = u16::from_be_bytes([byte(2), byte(3)]);
    let ip = match u32::from(u16::from_ne_bytes([byte(0), byte(1)])) {
        AF_INET => IpAddr::V4(Ipv4Addr::new(byte(4), byte(5), byte(6), byte(7))),
        AF_INET6 => {
            let mut bytes = [0; 16];
            bytes.iter_mut().enumerate().for_each(|(at, to)| *to = byte(8 + at));
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        AF_UNIX => return unix(text.get(2..).unwrap_or_default()),
        other => return family(other),
    };
    format!("socket {}", SocketAddr::new(ip, port))
}

fn family(number: u32) -> String {
    match number.cast_signed() {
        libc::AF_NETLINK => "netlink socket".to_owned(),
        libc::AF_PACKET => "packet socket".to_owned(),
        libc::AF_VSOCK => "vsock socket".to_owned(),
        _ => format!("socket of family {number}"),
    }
}
