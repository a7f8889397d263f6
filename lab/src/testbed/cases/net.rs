//! Two network namespaces with a cable between them. The cable disappears with the processes in them.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::sys;

/// One end of the cable.
#[derive(Debug, Clone)]
pub struct End {
    /// A process in its network namespace.
    pub pid: u32,
    pub device: String,
    /// Its address, in a network of 256 addresses.
    pub address: Ipv4Addr,
}

/// Make a veth pair between the namespaces of two processes.
pub fn cable(from: &End, to: &End) -> io::Result<()> {
    let add = ["link", "add", &from.device, "type", "veth", "peer", "name", &to.device, "netns"];
    run_in(from.pid, "ip", &[&add[..], &[&to.pid.to_string()]].concat())?;
    // The far end first: a packet that is sent as soon as there is a route then arrives.
    for end in [to, from] {
        let address = format!("{}/24", end.address);
        run_in(end.pid, "ip", &["addr", "add", &address, "dev", &end.device])?;
        run_in(end.pid, "ip", &["link", "set", "lo", "up"])?;
        run_in(end.pid, "ip", &["link", "set", &end.device, "up"])?;
    }
    Ok(())
}

/// Let this end send each packet as it is: a veth polls only for such senders (drivers/net/veth.c, veth_skb_is_eligible_for_gro).
pub fn send_unsplit(end: &End) -> io::Result<()> {
    let network = File::open(format!("/proc/{}/ns/net", end.pid))?;
    let device = end.device.clone();
    let there = std::thread::spawn(move || {
        sys::enter_network(&network)?;
        sys::set_offload(&device, sys::SPLIT, false)
    });
    there.join().map_err(|_| io::Error::other("a thread panicked"))?
}

/// A tool of the system: those of networks are in sbin, which is not in every user's PATH.
pub fn program(tool: &str) -> Option<PathBuf> {
    let path = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|dir| Path::new(dir).join(tool));
    path.into_iter().find(|path| path.exists())
}

/// Run a tool in the network namespace of a process.
pub fn run_in(pid: u32, tool: &str, words: &[&str]) -> io::Result<()> {
    let network = File::open(format!("/proc/{pid}/ns/net"))?;
    let program = program(tool).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("cannot find {tool} (.ci/setup proof)"))
    })?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    sys::start_in_network(&mut command, network);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{tool} {}: {}", words.join(" "), said.trim())))
}
