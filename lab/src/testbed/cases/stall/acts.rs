//! The acts of this case.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock;

use super::super::actor::Pen;
use super::super::memory_cgroup::HOME;
use super::super::sys;

const PAGE: u64 = 4096;

/// Makes cgroups that outlive their removal, then maps and unmaps a file at each tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remap {
    pub zombies: u64,
    pub every_ms: u64,
    pub dir: PathBuf,
}

/// Reads a file at each tick, and records how long that took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Poll {
    pub file: PathBuf,
    pub every_ms: u64,
}

/// Makes a CPU handle its packets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FarEnd {
    pub device: String,
    pub cpu: usize,
    /// By a thread that polls the device (threaded NAPI); else by the receive softirq (RPS).
    pub polled: bool,
}

/// Sends an echo request at each tick, whether or not the last one was answered, and records each round trip.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ping {
    pub to: Ipv4Addr,
    pub every_ns: u64,
}

impl Remap {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        let size = self.zombies * PAGE;
        let file = |name| sys::memory_file(name, size).map(fs::File::from);
        let (many, one) = (file("a")?, file("b")?);
        (0..self.zombies).try_for_each(|page| one.write_all_at(b"1", page * PAGE))?;
        for page in 0..self.zombies {
            self.make_zombie(&many, page)?;
        }
        pen.ready();
        pen.at_each_tick(self.every_ms * 1_000_000, |pen| {
            let file = if pen.mode() == 0 { &one } else { &many };
            sys::map_and_unmap(file, size as usize)?;
            pen.did_one();
            Ok(())
        })
    }

    /// The page is charged to the cgroup whose member touches it first, and keeps it.
    fn make_zombie(&self, file: &fs::File, page: u64) -> io::Result<()> {
        let dir = self.dir.join(page.to_string());
        fs::create_dir(&dir)?;
        fs::write(dir.join("cgroup.procs"), "0")?;
        file.write_all_at(b"1", page * PAGE)?;
        fs::write(self.dir.join(HOME).join("cgroup.procs"), "0")?;
        fs::remove_dir(&dir)
    }
}

impl Poll {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        pen.at_each_tick(self.every_ms * 1_000_000, |pen| {
            let began = clock::now();
            fs::read(&self.file)?;
            pen.note(began, clock::now().saturating_sub(began));
            pen.did_one();
            Ok(())
        })
    }
}

impl FarEnd {
    pub fn live(&self, pen: &Pen) -> io::Result<()> {
        // Our /sys must show the network namespace of this process.
        sys::own_sysfs()?;
        pen.ready();
        while self.give_to_cpu().is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        loop {
            std::thread::park();
        }
    }

    /// An error until the device is there and up.
    fn give_to_cpu(&self) -> io::Result<()> {
        let device = Path::new("/sys/class/net").join(&self.device);
        if !self.polled {
            let mask = format!("{:x}", 1_u64 << self.cpu.min(63));
            return fs::write(device.join("queues/rx-0/rps_cpus"), mask);
        }
        // A veth has a NAPI only where it may merge packets (drivers/net/veth.c, veth_set_features, since v5.13).
        sys::set_offload(&self.device, sys::MERGE, true)?;
        fs::write(device.join("threaded"), "1")?;
        let thread = polling_thread(&self.device).ok_or(io::ErrorKind::NotFound)?;
        sys::pin_other(thread, self.cpu)
    }
}

/// net/core/dev.c, napi_kthread_create: "napi/DEVICE-ID".
fn polling_thread(device: &str) -> Option<u32> {
    let prefix = format!("napi/{device}-");
    let is_it = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(&prefix))
    };
    let all = fs::read_dir("/proc").ok()?.flatten();
    all.filter_map(|one| one.file_name().to_str()?.parse().ok()).find(is_it)
}

impl Ping {
    pub fn live(&self, pen: Pen) -> io::Result<()> {
        let socket = sys::icmp_socket()?;
        sys::packet_age(&socket);
        pen.ready();
        let (mut due, mut sequence, mut into) = (clock::now(), 0_u64, [0_u8; 256]);
        loop {
            let now = clock::now();
            if now >= due {
                sequence += 1;
                // Before the cable exists there is no route.
                let _ = sys::send_to(&socket, &echo_request(sequence, now), self.to);
                due = now.max(due + self.every_ns);
            }
            let length = sys::receive_until(&socket, &mut into, due, clock::now());
            if let Some(sent) = length.and_then(|length| echo_reply(into.get(..length)?)) {
                // The answer's own reader may be late: that is no wait of the packet.
                let age = sys::packet_age(&socket).unwrap_or(0);
                pen.note(sent, clock::now().saturating_sub(age).saturating_sub(sent));
            }
        }
    }
}

/// Others that ask from this network namespace have identifiers of their own: this socket gets their answers, too.
const IDENTIFIER: u16 = 0x6c61;

/// Type 8, our identifier, a sequence number, and the time of sending.
fn echo_request(sequence: u64, now: u64) -> [u8; 24] {
    let mut packet = [0_u8; 24];
    packet[0] = 8;
    packet[4..6].copy_from_slice(&IDENTIFIER.to_be_bytes());
    packet[6..8].copy_from_slice(&(sequence as u16).to_be_bytes());
    packet[8..16].copy_from_slice(&now.to_ne_bytes());
    let sum: u32 = packet.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}

/// Sending time of the request that this packet (with its IP header) answers.
fn echo_reply(packet: &[u8]) -> Option<u64> {
    let header = usize::from(packet.first()? & 15) * 4;
    let icmp = packet.get(header..)?;
    let sent = icmp.get(8..16)?.try_into().ok()?;
    let is_ours = *icmp.first()? == 0 && icmp.get(4..6)? == IDENTIFIER.to_be_bytes();
    is_ours.then_some(u64::from_ne_bytes(sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sums_to_zero_and_its_answer_tells_when_it_was_sent() {
        let mut packet = echo_request(7, 0x0102_0304_0506_0708);
        let sum: u32 =
            packet.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!((folded & 0xffff) + (folded >> 16), 0xffff);
        packet[0] = 0;
        let mut with_header = vec![0x45; 20];
        with_header.extend(packet);
        assert_eq!(echo_reply(&with_header), Some(0x0102_0304_0506_0708));
        with_header[25] ^= 1;
        assert_eq!(echo_reply(&with_header), None, "the answer to another prober");
        assert_eq!(echo_reply(&[0x45; 30]), None);
        assert_eq!(echo_reply(&[]), None);
    }
}
