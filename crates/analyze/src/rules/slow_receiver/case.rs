//! One slow reader, with all that is known about its chain.

use std::time::Duration;

use whyslow_model::Missing;
use whyslow_model::table::Task;
use whyslow_model::wait::Reason;

use super::super::pace::paces;
use crate::Evidence;
use crate::cpu::speed::{CpuSpeeds, Group, reasons};
use crate::net::receive::{Reader, Receiving, State, Symptoms, Why, readers, receiving, symptoms, why};

/// Fewer queues and packets that ran over in a window are a burst.
const LEAST_SPILLED: u64 = 5;
/// A window closes now and then on any busy connection.
const LEAST_CLOSED: u64 = 10;
/// Where a sender was seen to sleep for room, a window that closed once and stayed closed is enough.
const ONCE: u64 = 1;
/// netdata warns above 10 squeezes a second; a busy but healthy NIC has only a few.
const STOPS_PER_SECOND: f64 = 10.0;
/// Readers that are reported for one namespace.
const MOST_READERS: usize = 3;

/// One slow reader.
pub(super) struct Case<'r> {
    /// What ran over in the reader's network namespace.
    pub symptoms: Symptoms,
    /// The process whose queues were full; `None`: no queue was seen full.
    pub reader: Option<Reader<'r>>,
    /// What the reader did instead of reading.
    pub why: Option<Why<'r>>,
    /// The receive softirq that stopped most often, or that of the reader's CPU.
    pub receiving: Option<Receiving>,
    /// A slow CPU that the reader or that softirq runs on.
    pub slow: Option<Group>,
    /// The time that the senders lost: if queues ran over, the time that their windows were closed; else the time that they slept for room.
    pub held: Duration,
    /// The CPUs were measured.
    pub speed_known: bool,
    /// Sockets were sampled.
    pub sockets_known: bool,
    /// TCP as a whole is short of memory: (pages, limit).
    pub memory: Option<(u64, u64)>,
}

impl Case<'_> {
    /// The chain has an end.
    pub fn is_explained(&self) -> bool {
        let known = self.why.as_ref().is_some_and(|why| why.state != State::Unknown);
        self.reader.is_some() && (known || self.slow.is_some() || self.memory.is_some())
    }

    /// What the reader lost because its CPU is slow.
    pub fn lost_by_speed(&self) -> Duration {
        let (Some(slow), Some(why)) = (&self.slow, &self.why) else { return Duration::ZERO };
        if !why.cpu.is_some_and(|cpu| slow.numbers().contains(&cpu)) {
            return Duration::ZERO;
        }
        let ran = why.thread.exec_ns.max(why.thread.traced_ns) as f64;
        Duration::from_nanos((ran * (1.0 - 1.0 / slow.ratio().max(1.0))) as u64)
    }
}

/// All slow readers.
pub(super) fn cases<'r>(ev: &Evidence<'r>) -> Result<Vec<Case<'r>>, Missing> {
    let all = symptoms(ev)?;
    let cpus = receiving(ev).unwrap_or_default();
    let rate = |cpu: &Receiving| cpu.stops() as f64 / ev.window().as_secs_f64().max(1e-3);
    let stops = cpus.iter().any(|cpu| rate(cpu) >= STOPS_PER_SECOND);
    let mut found = Vec::new();
    for symptoms in all {
        let spilled = symptoms.spilled() >= LEAST_SPILLED;
        let closed = stops && symptoms.closed >= LEAST_CLOSED;
        // A recording without sockets still has the symptoms.
        let mut readers = readers(ev.sockets().unwrap_or_default(), &symptoms.netns);
        if !spilled && !closed {
            let shut = symptoms.closed.saturating_add(symptoms.to_close);
            let is_held = |reader: &Reader<'_>| shut >= ONCE || is_no_stream(ev, reader);
            readers.retain(|reader| slept(ev, reader) >= super::LEAST_LOST && is_held(reader));
        }
        if readers.is_empty() && spilled {
            found.push(of(ev, &symptoms, None, &cpus)?);
        }
        for reader in readers.into_iter().take(MOST_READERS) {
            found.push(of(ev, &symptoms, Some(reader.named(ev)), &cpus)?);
        }
    }
    Ok(found)
}

fn of<'r>(
    ev: &Evidence<'r>,
    symptoms: &Symptoms,
    reader: Option<Reader<'r>>,
    cpus: &[Receiving],
) -> Result<Case<'r>, Missing> {
    let why = match &reader {
        Some(reader) => why(ev, reader)?,
        None => None,
    };
    let reading = why.as_ref().and_then(|why| why.cpu);
    let most = cpus.iter().filter(|cpu| cpu.stops() > 0).max_by_key(|cpu| cpu.stops());
    let receiving = most.or_else(|| cpus.iter().find(|cpu| Some(cpu.cpu) == reading)).copied();
    let below: Vec<u32> = reading.into_iter().chain(receiving.map(|receiving| receiving.cpu)).collect();
    let speeds = CpuSpeeds::of(ev).ok();
    Ok(Case {
        slow: speeds.as_ref().and_then(|speeds| slowness(ev, speeds, &below)),
        speed_known: speeds.is_some_and(|speeds| !speeds.measured.is_empty()),
        sockets_known: ev.sockets().is_ok(),
        memory: ev.tcp_memory_short(),
        held: match &reader {
            Some(reader) if symptoms.spilled() >= LEAST_SPILLED => reader.held(),
            Some(reader) => slept(ev, reader),
            None => Duration::ZERO,
        },
        symptoms: symptoms.clone(),
        reader,
        why,
        receiving,
    })
}

/// The time that the reader's senders slept for room.
fn slept(ev: &Evidence<'_>, reader: &Reader<'_>) -> Duration {
    let waits = ev.waits().unwrap_or_default();
    reader.senders.iter().map(|sender| sender.slept(waits)).fold(Duration::ZERO, Duration::saturating_add)
}

/// A window may be too small for a message long before it closes. That holds back a sender of a stream, which loses nothing. A sender that rests
/// between two messages although it is late is no stream: it could send more.
fn is_no_stream(ev: &Evidence<'_>, reader: &Reader<'_>) -> bool {
    let first = reader.senders.first().filter(|first| first.held >= super::LEAST_LOST);
    let tasks = ev.tasks().unwrap_or_default();
    let of_first = |task: &&Task| first.is_some_and(|first| first.tgid == task.tgid);
    let threads = tasks.iter().filter(of_first).map(|task| task.pid).collect();
    paces(ev, &threads, AT_SOCKETS).values().any(|pace| pace.unhurried)
}

/// The reason of a sender's waits: for room in a socket's buffer, and for data if it also reads.
const AT_SOCKETS: Reason = Reason::Socket;

/// How slow the CPUs at the end of a chain are, and why. The reader's CPU comes first.
fn slowness(ev: &Evidence<'_>, speeds: &CpuSpeeds, below: &[u32]) -> Option<Group> {
    let measured = |cpu: &u32| speeds.measured.iter().find(|seen| seen.cpu == *cpu).copied();
    let (seen, verdict) =
        below.iter().filter_map(measured).find_map(|seen| Some((seen, speeds.judge(&seen)?)))?;
    let why = reasons(ev, &seen, &verdict);
    // Other CPUs that are slow for the same reason belong to the same finding: one setting mends all of them.
    let alike = |other: &crate::cpu::speed::Measured| {
        let judged = speeds.judge(other).filter(|judged| judged.against == verdict.against)?;
        (reasons(ev, other, &judged).key() == why.key()).then_some((*other, judged))
    };
    let cpus = speeds.measured.iter().filter_map(alike).collect();
    Some(Group { cpus, why })
}
