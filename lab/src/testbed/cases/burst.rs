//! Many small datagrams that nothing reads, and a CPU whose receive softirq handles them.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

use super::actor::{Act, Actor, Order, Pen};
use super::named;
use super::stall::{Pinger, QUIET_S, far_end, pinger, trips};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// "discard": nothing listens there.
const PORT: u16 = 9;
/// As small as packets are.
const BYTES: usize = 18;
/// Datagrams of a flood between two looks at the mode: a fraction of a millisecond.
const AT_ONCE: u64 = 64;
/// A flood sends so many times as many as its healthy form.
const LEAST: f64 = 4.0;

/// Sends so many datagrams at each tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Burst {
    pub to: Ipv4Addr,
    pub count: u64,
    /// 0: without a pause while the mode is not 0, and each millisecond otherwise.
    pub every_ns: u64,
}

impl Burst {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let send = |pen: &mut Pen| {
            // Before the cable exists there is no route; full queues drop.
            (0..self.count).for_each(|_| drop(socket.send_to(&[0x5a; BYTES], (self.to, PORT))));
            pen.did_one();
        };
        pen.ready();
        if self.every_ns > 0 {
            return pen.at_each_tick(self.every_ns, |pen| {
                send(pen);
                Ok(())
            });
        }
        loop {
            send(&mut pen);
            if pen.mode() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A process that sends beside the pinger.
pub(super) fn sender(burst: Burst, pinger: &Pinger, draw: &mut Draw) -> Result<Actor, Trouble> {
    let mut order = Order::new(&draw.word(7), Act::Burst(burst)).on(pinger.cpu);
    order.network_of = Some(pinger.actor.pid());
    Ok(order.start()?)
}

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// CPU of the packets.
    cpu: usize,
    /// The healthy form: some datagrams each millisecond.
    #[serde(default)]
    twin: bool,
}

struct Flood {
    spec: Spec,
    pinger: Pinger,
    sender: Actor,
    _far: Actor,
}

impl Setting for Spec {
    fn set(&self, _: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let other = host::cpus().into_iter().find(|one| *one != self.cpu).ok_or("this wants two CPUs")?;
        let far = far_end(draw, self.cpu)?;
        let pinger = pinger(&far, other, 1, draw)?;
        let sender = sender(Burst { to: pinger.target, count: AT_ONCE, every_ns: 0 }, &pinger, draw)?;
        Ok(Box::new(Flood { spec: self.clone(), pinger, sender, _far: far.0 }))
    }
}

impl Part for Flood {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.sender.set_mode(u64::from(!self.spec.twin));
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.sender.set_mode(0);
        Ok(self.pinger.actor.until_noted(clock::now(), Duration::from_secs(20))?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        let mut names =
            named([("cpu", self.spec.cpu.to_string()), ("sender", self.sender.comm().to_owned())]);
        names.extend(named(self.pinger.names()));
        names
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let before = without.first().copied().ok_or("there is no time without the fault")?;
        let rate = |span| self.sender.rate(span) * AT_ONCE as f64;
        let worst = super::largest(trips(&self.pinger.actor, window));
        let what = format!("datagrams a second (the slowest round trip took {worst:.5} s)");
        let mut proof = if self.spec.twin {
            Proof::stays(what, rate(window), rate(before), LEAST)
        } else {
            Proof::rises(what, rate(window), rate(before), LEAST)
        };
        // Where packets wait, it is right to name the softirq: this part is about a CPU that keeps up.
        proof.holds &= worst < QUIET_S;
        Ok(Facts { proof, lost_s: None, names: self.names() })
    }
}
