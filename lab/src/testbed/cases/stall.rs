//! Packets wait because a task on their CPU keeps interrupts off: it flushes statistics of thousands of memory cgroups that were removed
//! but still exist, each because a page of one shared file is charged to it.
//!
//! A service maps and unmaps the file, which changes a counter of each of those cgroups; an agent reads statistics of the root, which
//! folds the changes under a lock with interrupts off; the kernel receives packets on the agent's CPU. The healthy form maps a file of the
//! same size whose pages belong to one cgroup: the same load, the same dying cgroups, nothing to fold.

mod acts;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::Span;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

pub use acts::{FarEnd, Ping, Poll, Remap};

use super::actor::{Act, Actor, Order};
use super::memory_cgroup::Room;
use super::net::{self, End};
use super::{largest, median, named, steady};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// A zombie takes about 20 KB on two CPUs; twice that, to be safe.
const BYTES_EACH: u64 = 40 << 10;
const LEAVE_FREE: u64 = 256 << 20;
/// A slow round trip must take so many times as long.
pub(super) const LEAST_RATIO: f64 = 4.0;
/// A slow round trip below this causes no problem.
pub(super) const QUIET_S: f64 = 0.005;
/// A round trip that takes so many usual ones was delayed.
const LATE: f64 = 8.0;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Cgroups that still exist after their removal.
    pub zombies: u64,
    /// Interval at which the service maps the file.
    pub remap_every_ms: u64,
    /// File of the root's statistics that the agent reads.
    pub file: String,
    /// Interval at which the agent reads it.
    pub read_every_ms: u64,
    /// Interval at which packets come: a stall is seen from its first packet on.
    pub packet_every_ms: u64,
    /// The service's name.
    pub service: String,
    /// The agent's name.
    pub agent: String,
    /// CPU of the agent and of the packets.
    #[serde(default)]
    pub cpu: Option<usize>,
    /// The same load without the fault: the mapped file belongs to one cgroup.
    #[serde(default)]
    pub twin: bool,
}

/// The processes of one run.
pub struct Stall {
    spec: Spec,
    cpu: usize,
    file: PathBuf,
    service: Actor,
    agent: Actor,
    pinger: Pinger,
    _far: Actor,
    _room: Room,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let needs = self.zombies.saturating_mul(BYTES_EACH).saturating_add(LEAVE_FREE);
        let available = host::available_memory()?;
        if available < needs {
            let [needs, available] = [needs >> 20, available >> 20];
            return Err(format!("{} zombies want {needs} MiB, {available} are there", self.zombies).into());
        }
        let cpu = self.cpu.unwrap_or(1);
        let other = host::cpus().into_iter().find(|one| *one != cpu).ok_or("this wants two CPUs")?;
        let room = Room::make(testbed, draw)?;
        let far = far_end(draw, cpu)?;
        let pinger = pinger(&far, other, self.packet_every_ms, draw)?;
        let remap =
            Remap { zombies: self.zombies, every_ms: self.remap_every_ms, dir: room.dir().to_owned() };
        let service = Order::new(&self.service, Act::Remap(remap)).within(vec![room.procs()]).start()?;
        let file = room.root().join(&self.file);
        let poll = Poll { file: file.clone(), every_ms: self.read_every_ms };
        let agent = Order::new(&self.agent, Act::Poll(poll)).on(cpu).start()?;
        let spec = self.clone();
        Ok(Box::new(Stall { spec, cpu, file, service, agent, pinger, _far: far.0, _room: room }))
    }
}

/// A process whose device gives its packets to this CPU, and the name of the device.
pub(super) fn far_end(draw: &mut Draw, cpu: usize) -> Result<(Actor, String), Trouble> {
    let device = draw.word(6);
    let act = Act::FarEnd(FarEnd { device: device.clone(), cpu, polled: false });
    Ok((Order::new(&draw.word(7), act).apart().start()?, device))
}

/// A process that measures round trips to the far end, and the address of that.
pub(super) struct Pinger {
    pub actor: Actor,
    /// Not the CPU of the packets: a prober that stands still itself sends nothing meanwhile.
    pub cpu: usize,
    pub target: Ipv4Addr,
}

impl Pinger {
    /// What a prober in its network namespace must know.
    pub fn names(&self) -> [(&'static str, String); 3] {
        let netns = format!("/proc/{}/ns/net", self.actor.pid());
        [("netns", netns), ("prober_cpu", self.cpu.to_string()), ("target", self.target.to_string())]
    }
}

/// One on this CPU.
pub(super) fn pinger(
    far: &(Actor, String),
    cpu: usize,
    every_ms: u64,
    draw: &mut Draw,
) -> Result<Pinger, Trouble> {
    let net = draw.between(1, 250) as u8;
    let address = |host| Ipv4Addr::new(10, 91, net, host);
    let ping = Ping { to: address(2), every_ns: every_ms.saturating_mul(1_000_000) };
    let mut order = Order::new(&draw.word(7), Act::Ping(ping)).on(cpu).apart();
    order.real_time = Some(50);
    let mut pinger = order.start()?;
    let near = End { pid: pinger.pid(), device: draw.word(6), address: address(1) };
    net::cable(&near, &End { pid: far.0.pid(), device: far.1.clone(), address: address(2) })?;
    net::send_unsplit(&near)?;
    pinger.until_noted(0, Duration::from_secs(20))?;
    Ok(Pinger { actor: pinger, cpu, target: address(2) })
}

impl Stall {
    fn slow(&self, span: Span) -> f64 {
        slow(&self.pinger.actor, span, self.spec.read_every_ms)
    }
}

/// Round trips that began in a span, in seconds.
pub(super) fn trips(pinger: &Actor, span: Span) -> Vec<f64> {
    pinger.notes(span).into_iter().map(|(_, ns)| ns as f64 / 1e9).collect()
}

/// The longest round trip in each of these intervals, and the median of these: a stall comes with each of them, a hiccup of a busy host
/// only once.
pub(super) fn slow(pinger: &Actor, span: Span, every_ms: u64) -> f64 {
    let slices = span.slices(Duration::from_millis(every_ms.max(1)));
    median(slices.into_iter().map(|slice| largest(trips(pinger, slice))))
}

/// Time in which a packet was delayed whose answer came within the window: whyslow sees no other.
pub(super) fn held_up_s(pinger: &Actor, window: Span, usual_s: f64) -> f64 {
    let (mut until, mut sum) = (window.from, 0);
    for (sent, ns) in pinger.notes(window) {
        let came = sent.saturating_add(ns);
        if ns as f64 / 1e9 > usual_s * LATE && came <= window.to {
            sum += came.saturating_sub(sent.max(until));
            until = until.max(came);
        }
    }
    sum as f64 / 1e9
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
        let mut names = named([
            ("service", self.spec.service.clone()),
            ("agent", self.spec.agent.clone()),
            ("file", self.file.display().to_string()),
            ("pinger", self.pinger.actor.comm().to_owned()),
            ("cpu", self.cpu.to_string()),
        ]);
        names.extend(named(self.pinger.names()));
        names
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let with = self.slow(window);
        // After the fault is off, one last flush of its changes is still due, up to two seconds later.
        let before = without.first().copied().ok_or("there is no time without the fault")?;
        let (usual, middle) = (self.slow(before), median(trips(&self.pinger.actor, before)));
        let read = |span: Span| largest(self.agent.notes(span).into_iter().map(|(_, ns)| ns as f64 / 1e9));
        let what = format!(
            "slow round trip (longest between two reads), s (longest {:.4}, before {:.4}; longest read of its file {:.4}, before {:.4}; middle trip {middle:.5}; {} trips, {} maps)",
            largest(trips(&self.pinger.actor, window)),
            largest(trips(&self.pinger.actor, before)),
            read(window),
            read(before),
            trips(&self.pinger.actor, window).len(),
            (self.service.rate(window) * window.length().as_secs_f64()).round(),
        );
        let held_up = held_up_s(&self.pinger.actor, window, middle.max(1e-4));
        if self.spec.twin {
            let proof = steady(what, with, usual.max(QUIET_S), LEAST_RATIO);
            return Ok(Facts { proof, lost_s: None, names: self.names() });
        }
        let proof = Proof::rises(what, with, usual, LEAST_RATIO);
        Ok(Facts { proof, lost_s: Some((held_up, held_up)), names: self.names() })
    }
}
