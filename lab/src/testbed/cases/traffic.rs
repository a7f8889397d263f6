//! Honest traffic of many shapes: two processes talk over a cable between their network namespaces, a CPU takes the packets in time, and
//! nothing is wrong. The pinger proves that no packet waited.

mod acts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::Span;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

pub use acts::{Come, Listen, Shape, Talk};

use super::actor::{Act, Actor, Order};
use super::memory_cgroup::Room;
use super::net::run_in;
use super::stall::{Pinger, QUIET_S, far_end, pinger, trips};
use super::{largest, named};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// iptables of the kernel's old tables.
const IPTABLES: &str = "iptables-legacy";
/// The pinger's own packets are a small part of the load.
const PACKET_EVERY_MS: u64 = 2;
/// Network namespaces, and ports of a bridge.
const NAMESPACES: usize = 30;
const PORTS: usize = 8;
/// Cgroups come and go 30 times a second.
const COME_EVERY_NS: u64 = 33_000_000;
/// Work at each tick of a clock is done in time, except for the ticks that a busy host misses.
const PACED: f64 = 2.0;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    shape: Shape,
    /// CPU of the packets.
    cpu: usize,
    /// An emulated CPU stops at any time, and the pinger is late by that: trips of this length prove nothing there.
    #[serde(default)]
    slowest_ms: Option<u64>,
}

struct Traffic {
    spec: Spec,
    // Ended first: its packets to a port without a receiver are refused.
    talker: Actor,
    listener: Actor,
    pinger: Pinger,
    _others: Vec<Actor>,
    _far: Actor,
    _room: Option<Room>,
}

impl Setting for Spec {
    fn needs_program(&self) -> Option<&'static str> {
        (self.shape == Shape::Flows).then_some(IPTABLES)
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let (shape, cpu) = (self.shape, self.cpu);
        let other = host::cpus().into_iter().find(|one| *one != cpu).ok_or("this wants two CPUs")?;
        let far = far_end(draw, cpu)?;
        let pinger = pinger(&far, other, PACKET_EVERY_MS, draw)?;
        let room = (shape == Shape::Cgroups).then(|| Room::make(testbed, draw)).transpose()?;
        let mut others = Vec::new();
        match shape {
            Shape::Bridge => bridge(far.0.pid(), &far.1, pinger.target.to_string())?,
            Shape::Flows => {
                let rule = ["-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"];
                run_in(far.0.pid(), IPTABLES, &rule)?;
            }
            Shape::Namespaces => {
                for _ in 0..NAMESPACES {
                    let one = Order::new(&draw.word(7), Act::Talk(Talk::alone())).apart().start()?;
                    run_in(one.pid(), "ip", &["link", "set", "lo", "up"])?;
                    others.push(one);
                }
            }
            _ => {}
        }
        if let Some(room) = &room {
            let dir: PathBuf = room.dir().join(draw.word(6));
            others.push(Order::new(&draw.word(7), Act::Come(Come { dir, every_ns: COME_EVERY_NS })).start()?);
        }
        let mut listener = Order::new(&draw.word(7), Act::Listen(Listen { shape })).on(cpu);
        listener.network_of = Some(far.0.pid());
        let listener = listener.start()?;
        let mut talker = Order::new(&draw.word(7), Act::Talk(Talk { to: pinger.target, shape })).on(other);
        talker.network_of = Some(pinger.actor.pid());
        let talker = talker.start()?;
        let spec = self.clone();
        Ok(Box::new(Traffic { spec, talker, listener, pinger, _others: others, _far: far.0, _room: room }))
    }
}

/// Make the far end's device a port of a bridge that has its address, beside other ports.
fn bridge(pid: u32, device: &str, address: String) -> Result<(), Trouble> {
    let address = format!("{address}/24");
    let ip = |words: &[&str]| run_in(pid, "ip", words);
    ip(&["link", "add", "br0", "type", "bridge"])?;
    ip(&["addr", "del", &address, "dev", device])?;
    ip(&["link", "set", device, "master", "br0"])?;
    ip(&["addr", "add", &address, "dev", "br0"])?;
    for port in 0..PORTS {
        let [near, far] = ["p", "q"].map(|end| format!("{end}{port}"));
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])?;
        ip(&["link", "set", &near, "master", "br0", "up"])?;
        ip(&["link", "set", &far, "up"])?;
    }
    Ok(ip(&["link", "set", "br0", "up"])?)
}

impl Part for Traffic {
    fn impose(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn names(&self) -> BTreeMap<String, String> {
        let comm = |actor: &Actor| actor.comm().to_owned();
        let mut names = named([
            ("talker", comm(&self.talker)),
            ("listener", comm(&self.listener)),
            ("pinger", comm(&self.pinger.actor)),
        ]);
        names.extend(named(self.pinger.names()));
        names
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let before = without.first().copied().ok_or("there is no time without whyslow")?;
        let worst = largest(trips(&self.pinger.actor, window));
        let most = self.spec.slowest_ms.map_or(QUIET_S, |ms| ms as f64 / 1e3);
        let what =
            format!("{:?}, pieces a second (the slowest round trip took {worst:.5} s)", self.spec.shape);
        let mut proof = Proof::stays(what, self.talker.rate(window), self.talker.rate(before), PACED);
        // Where packets wait, it is right to say so.
        proof.holds &= worst > 0.0 && worst < most;
        Ok(Facts { proof, lost_s: None, names: self.names() })
    }
}
