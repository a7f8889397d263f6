//! A CPU that runs at a quarter of its speed under a server of packets: queues fill, which is the first visible sign.
//!
//! Two forms. In a single boot a governor keeps the CPU at its lowest P-state, in which it really delivers less. In a pair of boots the CPU
//! of one boot is exactly four times slower: nothing is turned on or off. In both forms time is counted in instructions (`-icount
//! shift=N`): on the host's clock an emulated CPU loses a third of its time to unknown work. A loop of known length measures the time of an
//! instruction.

mod traffic;

use std::arch::asm;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::clock::{self, Span};
use whyslow_faults::expected::RATIO;
use whyslow_faults::rounds::Trouble;

pub use traffic::{Sink, Source};

use super::actor::{Act, Actor, Order, Pen};
use super::net::{self, End};
use super::{median, named, policies, steady};
use crate::guest::module::{Fault, When};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// A pair of boots differs by a factor of four.
const LEAST_RATIO: f64 = 2.5;
/// The burn takes a share of half or more.
const LEAST_RATIO_BURNT: f64 = 1.9;
/// Short compared with the time slices of other tasks on the CPU: some of these loops are not interrupted.
const INSTRUCTIONS: u64 = 20_000;
/// Long compared with `PACE`, shorter than the gauge's time slice.
const INSTRUCTIONS_PACED: u64 = 1_000_000;
/// Interval at which the module takes the CPU away.
const PACE: Duration = Duration::from_micros(500);
/// The gauge leaves most of a CPU to other tasks.
const REST_US: u64 = 60_000;
/// Only real-time tasks have a higher priority: the gauge measures the CPU, not its share of the CPU.
const FIRST: i32 = -20;
/// Makes the time limit of a softirq the only limit that it can reach.
const BUDGET: &str = "4096";

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Name of the server.
    pub sink: String,
    /// Name of the client.
    pub source: String,
    /// Turns of computing for each byte.
    pub turns_per_byte: u64,
    /// Datagrams besides the connections.
    pub datagrams_per_s: u64,
    /// Packets leave in bursts.
    pub burst_every_ms: u64,
    /// How the CPU gets slow.
    pub by: By,
    /// Same load at full speed.
    #[serde(default)]
    pub twin: bool,
}

/// How the CPU gets slow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A governor keeps the server's CPU at its lowest P-state, which delivers this much less.
    Governor {
        /// Percent of the CPU that is not delivered.
        percent: u32,
        /// The CPU.
        cpu: usize,
    },
    /// The boot makes it slow; the time of an instruction at full speed.
    Boot {
        /// Nanoseconds.
        usual_ns: f64,
    },
}

/// Computes the same piece again and again, with rests, and records how long it took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Loop {
    pub instructions: u64,
    pub rest_us: u64,
}

impl Loop {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        loop {
            let began = clock::now();
            run(self.instructions);
            if self.rest_us > 0 {
                pen.note(began, clock::now().saturating_sub(began));
                std::thread::sleep(Duration::from_micros(self.rest_us));
            }
            pen.did_one();
        }
    }
}

/// Products between two tests of the count.
const UNROLLED: u64 = 64;

/// So many instructions, each of which waits for the last: a busy hardware thread beside the emulated CPU's does not slow them down.
pub fn run(instructions: u64) {
    let turns = (instructions / (UNROLLED + 2)).max(1);
    // SAFETY: multiplies a register and counts another down to zero; touches no memory and no stack.
    unsafe {
        asm!(
            "2:", ".rept {unrolled}", "imul {product}, {product}", ".endr", "dec {n}", "jnz 2b",
            unrolled = const UNROLLED, n = inout(reg) turns => _, product = inout(reg) 3_u64 => _,
            options(nomem, nostack)
        );
    }
}

struct Running {
    spec: Spec,
    // Ended before the server that it sends to.
    source: Actor,
    sink: Actor,
    gauge: Actor,
}

impl Spec {
    fn least_ratio(&self) -> f64 {
        match self.by {
            By::Boot { .. } => LEAST_RATIO,
            By::Governor { .. } => LEAST_RATIO_BURNT,
        }
    }

    fn where_it_is_slow(&self, order: Order) -> Order {
        match self.by {
            By::Boot { .. } => order,
            By::Governor { cpu, .. } => order.on(cpu),
        }
    }

    fn instructions(&self) -> u64 {
        match self.by {
            By::Boot { .. } => INSTRUCTIONS,
            By::Governor { .. } => INSTRUCTIONS_PACED,
        }
    }
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        matches!(self.by, By::Governor { .. })
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        if !testbed.is_guest() {
            return Err("this changes settings of the kernel: in guests only".into());
        }
        if let By::Governor { percent, cpu } = self.by {
            lowest_delivers_less(testbed, percent, cpu, draw)?;
        }
        fs::write("/proc/sys/net/core/netdev_budget", BUDGET)?;
        let (net, port) = (draw.between(1, 250) as u8, draw.between(20_000, 30_000) as u16);
        let address = |host| Ipv4Addr::new(10, 92, net, host);
        let group = testbed.fence.group(&draw.word(6))?;
        let sink = Act::Sink(Sink { port, turns_per_byte: self.turns_per_byte });
        let sink = self.where_it_is_slow(Order::new(&self.sink, sink)).within(group.procs_files());
        let sink = sink.apart().start()?;
        let to = Source { to: address(2), port, datagrams_per_s: self.datagrams_per_s };
        let source = Order::new(&self.source, Act::Source(to)).within(group.procs_files()).apart().start()?;
        let near = End { pid: source.pid(), device: draw.word(6), address: address(1) };
        net::cable(&near, &End { pid: sink.pid(), device: draw.word(6), address: address(2) })?;
        let slot = format!("{}ms", self.burst_every_ms);
        let qdisc = ["qdisc", "add", "dev", &near.device, "root", "netem", "slot", &slot, &slot];
        net::run_in(source.pid(), "tc", &qdisc)?;
        let gauge = Act::Loop(Loop { instructions: self.instructions(), rest_us: REST_US });
        let mut gauge = self.where_it_is_slow(Order::new(&draw.word(6), gauge));
        gauge.nice = FIRST;
        let gauge = gauge.start()?;
        Ok(Box::new(Running { spec: self.clone(), sink, source, gauge }))
    }
}

/// Emulated CPUs do not slow down with their P-state: the module does that.
fn lowest_delivers_less(testbed: &TestBed, percent: u32, cpu: usize, draw: &mut Draw) -> Result<(), Trouble> {
    let folio = testbed.folio.loaded(draw)?;
    folio.module.make(&Fault::PStateMsr { aperf: false })?;
    policies::load()?;
    policies::govern("performance")?;
    let cpus = vec![cpu as u32];
    Ok(folio.module.make(&Fault::SlowCpu { cpus, percent, every: PACE, when: When::Lowest })?)
}

impl Running {
    /// Time of an instruction in nanoseconds, from the fastest tenth of the loops, which had the CPU to themselves.
    fn instruction_ns(&self, span: Span) -> f64 {
        let mut took: Vec<f64> = self.gauge.notes(span).into_iter().map(|(_, ns)| ns as f64).collect();
        took.sort_by(f64::total_cmp);
        took.get(took.len() / 10).copied().unwrap_or(0.0) / self.spec.instructions() as f64
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        match self.spec.by {
            By::Governor { cpu, .. } if !self.spec.twin => policies::govern_one(cpu, "powersave"),
            _ => Ok(()),
        }
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        match self.spec.by {
            By::Governor { cpu, .. } => policies::govern_one(cpu, "performance"),
            By::Boot { .. } => Ok(()),
        }
    }

    fn names(&self) -> BTreeMap<String, String> {
        let cpu = match self.spec.by {
            By::Governor { cpu, .. } => cpu,
            By::Boot { .. } => 0,
        };
        let Spec { sink, source, .. } = self.spec.clone();
        named([("sink", sink), ("source", source), ("cpu", cpu.to_string())])
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let with = self.instruction_ns(window);
        let usual = match self.spec.by {
            By::Boot { usual_ns } => usual_ns,
            By::Governor { .. } => median(without.iter().map(|span| self.instruction_ns(*span))),
        };
        let what = format!(
            "time of an instruction, ns ({:.0} messages/s, {:.0} before; sent {:.0}/s)",
            self.sink.rate(window),
            without.first().map_or(0.0, |span| self.sink.rate(*span)),
            self.source.rate(window)
        );
        let proof = if self.spec.twin {
            steady(what, with, usual, self.spec.least_ratio())
        } else {
            Proof::rises(what, with, usual, self.spec.least_ratio())
        };
        let mut names = self.names();
        names.insert(RATIO.to_owned(), format!("{:.3}", with / usual.max(1e-9)));
        Ok(Facts { proof, lost_s: None, names })
    }
}
