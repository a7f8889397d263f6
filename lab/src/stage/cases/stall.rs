//! Packets wait because something on their CPU keeps interrupts off: a flush of statistics over thousands of memory
//! cgroups that were removed but live on, each because a page of one shared file is charged to it.
//!
//! A service maps and unmaps the file, which changes a counter of each of those cgroups; an agent reads memory.stat of
//! the root, which folds the changes under a lock with interrupts off; packets are received on the agent's CPU. The
//! healthy form maps a file of the same size whose pages belong to one cgroup: same load, same zombies, nothing to
//! fold.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

use super::actor::{Act, Actor, Order, Pen, largest, median};
use super::net::{self, End};
use super::room::Room;
use super::{named, steady, sys};
use crate::stage::Stage;
use crate::stage::part::{Facts, Part, Proof, Setting};

const PAGE: u64 = 4096;
/// A zombie takes about 20 KB on two CPUs; twice that, to be safe.
const BYTES_EACH: u64 = 40 << 10;
const LEAVE_FREE: u64 = 256 << 20;
const PING_EVERY_NS: u64 = 10_000_000;
/// The longest round trip must grow by this much.
const LEAST_RATIO: f64 = 4.0;
/// A longest round trip below this is nobody's trouble.
const QUIET_S: f64 = 0.005;
/// A round trip that takes so many usual ones was held up.
const LATE: f64 = 8.0;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Cgroups that live on.
    pub zombies: u64,
    /// How often the service maps the file.
    pub remap_every_ms: u64,
    /// How often the agent reads memory.stat of the root.
    pub read_every_ms: u64,
    /// The service's name.
    pub service: String,
    /// The agent's name.
    pub agent: String,
    /// CPU of the agent and of the packets.
    #[serde(default)]
    pub cpu: Option<usize>,
    /// Same load, no fault: the file that is mapped belongs to one cgroup.
    #[serde(default)]
    pub twin: bool,
}

/// Makes cgroups that outlive their removal, then maps and unmaps a file at each tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remap {
    pub zombies: u64,
    pub every_ms: u64,
    pub dir: PathBuf,
}

/// Reads a file at each tick, and notes how long that took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Poll {
    pub file: PathBuf,
    pub every_ms: u64,
}

/// Has its packets handled by some CPUs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FarEnd {
    pub device: String,
    pub cpu: usize,
}

/// Sends an echo request at each tick, whether or not the last was answered, and notes each round trip.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ping {
    pub to: Ipv4Addr,
    pub every_ns: u64,
}

impl Remap {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        let size = self.zombies * PAGE;
        let (many, one) = (sys::memory_file("a", size)?, sys::memory_file("b", size)?);
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
        fs::write(self.dir.join("home/cgroup.procs"), "0")?;
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
        // Our /sys must show the network namespace that we live in.
        sys::own_sysfs()?;
        pen.ready();
        let mask = Path::new("/sys/class/net").join(&self.device).join("queues/rx-0/rps_cpus");
        while fs::write(&mask, format!("{:x}", 1_u64 << self.cpu.min(63))).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        loop {
            std::thread::park();
        }
    }
}

impl Ping {
    pub fn live(&self, pen: Pen) -> io::Result<()> {
        let socket = sys::icmp_socket()?;
        pen.ready();
        let (mut due, mut sequence, mut into) = (clock::now(), 0_u64, [0_u8; 256]);
        loop {
            let now = clock::now();
            if now >= due {
                sequence += 1;
                // Before the cable is laid there is no way there.
                let _ = sys::send_to(&socket, &echo_request(sequence, now), self.to);
                due = now.max(due + self.every_ns);
            }
            if let Some(length) = sys::receive_until(&socket, &mut into, due, clock::now()) {
                if let Some(sent) = into.get(..length).and_then(echo_reply) {
                    pen.note(sent, clock::now().saturating_sub(sent));
                }
            }
        }
    }
}

/// Type 8, our identifier, a sequence number, and when it was sent.
fn echo_request(sequence: u64, now: u64) -> [u8; 24] {
    let mut packet = [0_u8; 24];
    packet[0] = 8;
    packet[6..8].copy_from_slice(&(sequence as u16).to_be_bytes());
    packet[8..16].copy_from_slice(&now.to_ne_bytes());
    let sum: u32 = packet.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}

/// When the request was sent that this packet (with its IP header) answers.
fn echo_reply(packet: &[u8]) -> Option<u64> {
    let header = usize::from(packet.first()? & 15) * 4;
    let icmp = packet.get(header..)?;
    let sent = icmp.get(8..16)?.try_into().ok()?;
    (*icmp.first()? == 0).then_some(u64::from_ne_bytes(sent))
}

/// The processes of one play.
pub struct Stall {
    spec: Spec,
    cpu: usize,
    file: PathBuf,
    service: Actor,
    agent: Actor,
    pinger: Actor,
    _far: Actor,
    _room: Room,
}

impl Setting for Spec {
    fn set(&self, stage: &Stage, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let needs = self.zombies.saturating_mul(BYTES_EACH).saturating_add(LEAVE_FREE);
        let available = host::available_memory()?;
        if available < needs {
            let [needs, available] = [needs >> 20, available >> 20];
            return Err(format!("{} zombies want {needs} MiB, {available} are there", self.zombies).into());
        }
        let cpu = self.cpu.unwrap_or(1);
        let other = host::cpus().into_iter().find(|one| *one != cpu).ok_or("this wants two CPUs")?;
        let room = Room::make(stage, draw)?;
        let far = far_end(draw, cpu)?;
        let pinger = pinger(&far, other, draw)?;
        let remap = Remap { zombies: self.zombies, every_ms: self.remap_every_ms, dir: room.dir().to_owned() };
        let service = Order::new(&self.service, Act::Remap(remap)).within(vec![room.procs()]).start()?;
        let file = room.root().join("memory.stat");
        let poll = Poll { file: file.clone(), every_ms: self.read_every_ms };
        let agent = Order::new(&self.agent, Act::Poll(poll)).on(cpu).start()?;
        let spec = self.clone();
        Ok(Box::new(Stall { spec, cpu, file, service, agent, pinger, _far: far.0, _room: room }))
    }
}

fn far_end(draw: &mut Draw, cpu: usize) -> Result<(Actor, String), Trouble> {
    let device = draw.word(6);
    let far = Order::new(&draw.word(7), Act::FarEnd(FarEnd { device: device.clone(), cpu })).apart().start()?;
    Ok((far, device))
}

fn pinger(far: &(Actor, String), cpu: usize, draw: &mut Draw) -> Result<Actor, Trouble> {
    let net = draw.between(1, 250) as u8;
    let address = |host| Ipv4Addr::new(10, 91, net, host);
    let ping = Ping { to: address(2), every_ns: PING_EVERY_NS };
    let mut order = Order::new(&draw.word(7), Act::Ping(ping)).on(cpu).apart();
    order.real_time = Some(50);
    let mut pinger = order.start()?;
    let near = End { pid: pinger.pid(), device: draw.word(6), address: address(1) };
    net::cable(&near, &End { pid: far.0.pid(), device: far.1.clone(), address: address(2) })?;
    pinger.until_noted(0, Duration::from_secs(20))?;
    Ok(pinger)
}

impl Stall {
    fn trips(&self, span: Span) -> Vec<f64> {
        self.pinger.notes(span).into_iter().map(|(_, ns)| ns as f64 / 1e9).collect()
    }

    /// Time in which a packet was held up.
    fn held_up_s(&self, window: Span, usual_s: f64) -> f64 {
        let (mut until, mut sum) = (window.from, 0);
        for (sent, ns) in self.pinger.notes(window) {
            if ns as f64 / 1e9 > usual_s * LATE {
                let came = sent.saturating_add(ns);
                sum += came.saturating_sub(sent.max(until));
                until = until.max(came);
            }
        }
        sum as f64 / 1e9
    }
}

impl Part for Stall {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.service.set_mode(u64::from(!self.spec.twin));
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.service.set_mode(0);
        Ok(())
    }

    fn names(&self) -> BTreeMap<String, String> {
        named([
            ("service", self.spec.service.clone()),
            ("agent", self.spec.agent.clone()),
            ("file", self.file.display().to_string()),
            ("pinger", self.pinger.comm().to_owned()),
            ("cpu", self.cpu.to_string()),
        ])
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let with = largest(self.trips(window));
        // Once lifted, a last flush of what the fault has changed is still due, up to two seconds later.
        let before = without.first().copied().ok_or("there is no time without the fault")?;
        let (usual, middle) = (largest(self.trips(before)), median(self.trips(before)));
        let read = |span: Span| largest(self.agent.notes(span).into_iter().map(|(_, ns)| ns as f64 / 1e9));
        let what = format!(
            "longest round trip, s (longest read of memory.stat {:.4}, before {:.4}; middle trip {middle:.5}; {} trips, {} maps)",
            read(window),
            read(before),
            self.trips(window).len(),
            (self.service.rate(window) * window.length().as_secs_f64()).round(),
        );
        let held_up = self.held_up_s(window, middle.max(1e-4));
        if self.spec.twin {
            let proof = steady(what, with, usual.max(QUIET_S), LEAST_RATIO);
            return Ok(Facts { proof, lost_s: None, names: self.names() });
        }
        let proof = Proof::rises(what, with, usual, LEAST_RATIO);
        Ok(Facts { proof, lost_s: Some((held_up * 0.7, held_up * 1.4)), names: self.names() })
    }
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
        assert_eq!(echo_reply(&[0x45; 30]), None);
        assert_eq!(echo_reply(&[]), None);
    }
}
