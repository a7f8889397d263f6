//! The processes of a case: this program, started again under a drawn name, doing one act until the harness stops it.
//!
//! One number, its mode, controls an act; the harness may change it at any time: 0 is healthy. Its record is a ledger of two slots: pieces
//! of work in the first, notes (moment, number) in the second.

mod pen;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::Ledger;
use whyslow_faults::clock::Span;
use whyslow_faults::ledger::{Fact, Word};
use whyslow_faults::process::Process;

pub use pen::Pen;

use super::{burst, churn, cpu_latency, files, polling, slow_cpu, stall, sys, traffic};

const ENV: &str = "LAB_ACT";
const WORK: usize = 0;
const NOTES: usize = 1;
/// Instructions between two reads of the CPU's clock: short compared with a piece of work, long compared with the read.
const INSTRUCTIONS: u64 = 20_000;
/// A process that makes thousands of cgroups in an emulated guest needs this long.
const READY_WITHIN: Duration = Duration::from_secs(150);

/// The act of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Act {
    /// None; it owns a network namespace whose device spreads packets over CPUs according to a mask.
    FarEnd(stall::FarEnd),
    /// Sends a packet at each tick and records when its answer arrived.
    Ping(stall::Ping),
    /// Sends datagrams at each tick.
    Burst(burst::Burst),
    /// Makes cgroups that outlive their removal, then maps and unmaps a file.
    Remap(stall::Remap),
    /// Reads a file at each tick.
    Poll(stall::Poll),
    /// Makes a long list of the kernel, and keeps it.
    Hoard(files::Hoard),
    /// Reads a slow or a quick file at moments that others share.
    Glance(files::Glance),
    /// Computes at these moments.
    Before(files::Before),
    /// Sends, in a shape of honest traffic.
    Talk(traffic::Talk),
    /// Answers it.
    Listen(traffic::Listen),
    /// Makes and removes a cgroup at each tick.
    Come(traffic::Come),
    /// Computes without a break for a while at each tick, if its mode is not 0.
    Hog(polling::Hog),
    /// Makes a cgroup, runs a job in it in new namespaces, removes it.
    Jobs(churn::Jobs),
    /// Makes namespaces and leaves them.
    Churn(churn::Churn),
    /// Computes for so many microseconds and ends.
    Burn(u64),
    /// Queries every CPU in turn.
    AskCpus(cpu_latency::AskCpus),
    /// System calls for a while, sleep for a while.
    Calls(cpu_latency::Calls),
    /// Takes messages and computes over each byte.
    Sink(slow_cpu::Sink),
    /// Sends messages.
    Source(slow_cpu::Source),
    /// Computes the same piece again and again, with rests.
    Loop(slow_cpu::Loop),
    /// Computes; a piece of work is so many microseconds of CPU.
    Busy(u64),
}

/// How a process is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub comm: String,
    /// What it does.
    pub act: Act,
    /// `cgroup.procs` files to join first.
    pub join: Vec<PathBuf>,
    /// CPUs that it may use; an empty list: all.
    pub cpus: Vec<usize>,
    /// Its real-time priority, if it has one.
    pub real_time: Option<i32>,
    /// Its nice value.
    pub nice: i32,
    /// A network namespace of its own.
    pub own_network: bool,
    /// The network namespace of this process.
    pub network_of: Option<u32>,
    /// Its life ends after this many seconds, whatever happens.
    pub lifetime_s: u32,
    ledger: i32,
}

impl Order {
    /// An ordinary process.
    #[must_use]
    pub fn new(comm: &str, act: Act) -> Self {
        Order {
            comm: comm.to_owned(),
            act,
            join: Vec::new(),
            cpus: Vec::new(),
            real_time: None,
            nice: 0,
            own_network: false,
            network_of: None,
            lifetime_s: 300,
            ledger: -1,
        }
    }

    /// Bind it to this CPU.
    #[must_use]
    pub fn on(mut self, cpu: usize) -> Self {
        self.cpus = vec![cpu];
        self
    }

    /// Start it in these cgroups.
    #[must_use]
    pub fn within(mut self, procs: Vec<PathBuf>) -> Self {
        self.join = procs;
        self
    }

    /// Start it in a network namespace of its own.
    #[must_use]
    pub fn apart(mut self) -> Self {
        self.own_network = true;
        self
    }

    /// Start it and wait until it reports that it is ready.
    pub fn start(mut self) -> io::Result<Actor> {
        let ledger = Ledger::new(2)?;
        self.ledger = ledger.descriptor();
        let text = serde_json::to_string(&self).map_err(io::Error::other)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg0(&self.comm).env_clear().env(ENV, text).stdin(Stdio::null()).stdout(Stdio::null());
        let mut actor = Actor { process: Process::start(&mut command, Arc::new(ledger), self.comm)? };
        actor.until_ready()?;
        Ok(actor)
    }
}

/// A process of a case. It ends when this is dropped, when the thread that started it ends, or when its time is up.
pub struct Actor {
    process: Process,
}

impl Actor {
    /// Change the mode from now on; 0 is healthy.
    pub fn set_mode(&self, mode: u64) {
        self.process.ledger().word(Word::Mode).store(mode, Ordering::Release);
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    #[must_use]
    pub fn comm(&self) -> &str {
        self.process.comm()
    }

    /// Its notes in a span.
    #[must_use]
    pub fn notes(&self, span: Span) -> Vec<(u64, u64)> {
        let mut all = self.process.ledger().notes(NOTES);
        all.retain(|(at, _)| (span.from..span.to).contains(at));
        all
    }

    /// Pieces of work a second.
    #[must_use]
    pub fn rate(&self, span: Span) -> f64 {
        // The slot of the notes has no counts of work: read only the slot of the work.
        let ledger = self.process.ledger();
        let done = ledger.done_at(WORK, span.to) - ledger.done_at(WORK, span.from);
        done / span.length().as_secs_f64().max(1e-9)
    }

    /// Wait until it has recorded a note after `since`.
    pub fn until_noted(&mut self, since: u64, within: Duration) -> io::Result<()> {
        self.process.until("note anything", within, |ledger| {
            ledger.notes(NOTES).last().is_some_and(|(at, _)| *at > since)
        })
    }

    fn until_ready(&mut self) -> io::Result<()> {
        self.process.until("get ready", READY_WITHIN, |l| l.fact(WORK, Fact::Tid).load(Ordering::Acquire) > 0)
    }
}

/// Be the actor that the environment describes, for the rest of this process's life. Without it, return. `main` must call this first,
/// before there is a second thread.
pub fn become_if_asked() {
    let Some(text) = std::env::var_os(ENV) else { return };
    let order = serde_json::from_slice::<Order>(text.as_encoded_bytes());
    let status = match order.map_err(io::Error::other).and_then(|order| live(&order)) {
        Ok(()) => 0,
        Err(err) => {
            eprintln!("an act failed: {err}");
            2
        }
    };
    sys::leave(status);
}

/// The environment of a program that only burns CPU for so long.
#[must_use]
pub fn to_burn(us: u64) -> String {
    let order = Order { lifetime_s: 60, ..Order::new("", Act::Burn(us)) };
    format!("{ENV}={}", serde_json::to_string(&order).unwrap_or_default())
}

fn live(order: &Order) -> io::Result<()> {
    if let Act::Burn(us) = order.act {
        burn(us);
        return Ok(());
    }
    sys::die_after(order.lifetime_s);
    std::fs::write("/proc/self/oom_score_adj", "1000")?;
    for procs in &order.join {
        std::fs::write(procs, "0")
            .map_err(|err| io::Error::other(format!("cannot join {}: {err}", procs.display())))?;
    }
    if order.own_network {
        sys::unshare(libc::CLONE_NEWNET)?;
    }
    if let Some(pid) = order.network_of {
        sys::enter_network(&std::fs::File::open(format!("/proc/{pid}/ns/net"))?)?;
    }
    if !order.cpus.is_empty() {
        sys::pin(0, &order.cpus)?;
    }
    if let Some(priority) = order.real_time {
        sys::real_time(priority)?;
    }
    sys::nice(order.nice)?;
    sys::set_name(&order.comm);
    // For the rest of the process's life.
    let ledger: &'static Ledger = Box::leak(Box::new(Ledger::inherited(order.ledger, 2)?));
    let pen = Pen::of(ledger);
    match &order.act {
        Act::FarEnd(act) => act.live(&pen),
        Act::Ping(act) => act.live(pen),
        Act::Burst(act) => act.live(pen),
        Act::Hoard(act) => act.live(&pen),
        Act::Glance(act) => act.live(pen),
        Act::Before(act) => act.live(pen),
        Act::Talk(act) => act.live(pen),
        Act::Listen(act) => act.live(&pen),
        Act::Come(act) => act.live(pen),
        Act::Hog(act) => act.live(pen),
        Act::Remap(act) => act.live(pen),
        Act::Poll(act) => act.live(pen),
        Act::Jobs(act) => act.live(pen),
        Act::Churn(act) => act.live(pen),
        Act::AskCpus(act) => act.live(pen),
        Act::Calls(act) => act.live(pen),
        Act::Sink(act) => act.live(pen),
        Act::Source(act) => act.live(pen),
        Act::Loop(act) => act.live(pen),
        Act::Busy(us) => busy(*us, pen),
        Act::Burn(_) => Ok(()),
    }
}

fn burn(us: u64) {
    // CPU time, not wall time: a program that waits for a CPU has not done its work yet.
    while sys::cpu_time_ns(0).is_ok_and(|used| used < us.saturating_mul(1000)) {
        std::hint::black_box(us);
    }
}

/// Pieces are measured in CPU time: the work that an emulated CPU does in the same wall time depends on the host and on other tasks.
fn busy(us: u64, mut pen: Pen) -> io::Result<()> {
    pen.ready();
    let mut due = sys::cpu_time_ns(0)?;
    loop {
        due = due.saturating_add(us.saturating_mul(1000));
        while sys::cpu_time_ns(0)? < due {
            slow_cpu::run(INSTRUCTIONS);
        }
        pen.did_one();
    }
}
