//! Two network namespaces, each with one end of a veth pair, like two containers on one host. They end when their last socket is closed.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::thread;

use crate::sys;

const ABOVE: Ipv4Addr = Ipv4Addr::new(10, 231, 7, 1);
const BELOW: Ipv4Addr = Ipv4Addr::new(10, 231, 7, 2);

/// Run code in a network namespace, on a thread that ends with it.
fn within<T: Send>(of: &File, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let inside = || {
        sys::enter_network(of)?;
        act()
    };
    thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|_| Err(io::Error::other("it panicked")))
}

fn made() -> io::Result<File> {
    let make = || {
        sys::new_network()?;
        File::open("/proc/thread-self/ns/net")
    };
    thread::scope(|scope| scope.spawn(make).join()).unwrap_or_else(|_| Err(io::Error::other("it panicked")))
}

fn ip(line: &str) -> io::Result<()> {
    let done = Command::new("ip").args(line.split_whitespace()).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {line}: {}", String::from_utf8_lossy(&done.stderr).trim())))
}

fn up(device: &str, address: Ipv4Addr) -> io::Result<()> {
    ip(&format!("address add {address}/30 dev {device}"))?;
    ip(&format!("link set {device} up"))
}

/// The two namespaces.
struct Pair {
    above: File,
    below: File,
}

impl Pair {
    fn new() -> io::Result<Self> {
        let (above, below) = (made()?, made()?);
        let other = format!("/proc/{}/fd/{}", std::process::id(), below.as_raw_fd());
        within(&above, || {
            ip(&format!("link add whyslow-a type veth peer name whyslow-b netns {other}"))?;
            up("whyslow-a", ABOVE)
        })?;
        within(&below, || up("whyslow-b", BELOW))?;
        Ok(Pair { above, below })
    }
}

/// Whether this host supports such a pair. Tried once: a kernel may lack the device.
pub fn is_possible() -> bool {
    static TRIED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *TRIED.get_or_init(|| Pair::new().is_ok())
}

/// A TCP connection between them; the end below accepted it.
pub fn tcp() -> io::Result<[OwnedFd; 2]> {
    let pair = Pair::new()?;
    let listener = within(&pair.below, || TcpListener::bind((BELOW, 0)))?;
    let address = listener.local_addr()?;
    let above = within(&pair.above, || TcpStream::connect(address))?;
    let (below, _) = listener.accept()?;
    below.set_nodelay(true)?;
    Ok([above.into(), below.into()])
}

/// Two UDP sockets, connected with each other.
pub fn udp() -> io::Result<[OwnedFd; 2]> {
    let pair = Pair::new()?;
    let above = within(&pair.above, || UdpSocket::bind((ABOVE, 0)))?;
    let below = within(&pair.below, || UdpSocket::bind((BELOW, 0)))?;
    above.connect(below.local_addr()?)?;
    below.connect(above.local_addr()?)?;
    Ok([above.into(), below.into()])
}
