//! Makes the timelines of a recording from the sched probe's data: times since the window began, names for addresses.

use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use whyslow_model::syscall::FUTEX;
use whyslow_model::table::{Request, Run, Span, Stack};
use whyslow_model::timeline::{
    Asked, Context, Delivery, Ends, LockKind, LockWait, OtherEnd, Polled, Role, State, StateTimes, Target,
    Waker,
};

use crate::bpf::constants::{other_ends_h, parked_h, peers_h, rows_h, shared_h};
use crate::bpf::rows::{Rows, SentRow, SpanRow, WakeRow};
use crate::bpf::sched::{self, RawSched, sched_ends, sched_live, sched_span};
use crate::bpf::text;
use crate::pid_map::Numbers;
use crate::redact;
use crate::symbols::KernelNames;

/// Requests that were sent later than so long before the window's end are not reported.
const SOON: u64 = 15_000_000;

/// Timelines, the stacks they point to, and which task ran on which CPU.
#[derive(Default)]
pub struct Timelines {
    /// In order of time for each task.
    pub spans: Vec<Span>,
    /// By id.
    pub stacks: Vec<Stack>,
    /// In order of time for each CPU.
    pub runs: Vec<Run>,
}

/// The window: CLOCK_MONOTONIC of its begin, and its length.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Its begin.
    pub start_ns: u64,
    /// Its length.
    pub ns: u64,
}

impl Window {
    /// A moment, since the window began, within it.
    #[must_use]
    pub fn at(&self, clock: u64) -> u64 {
        clock.saturating_sub(self.start_ns).min(self.ns)
    }
}

/// Make the timelines.
pub fn timelines(
    seen: &mut RawSched,
    window: Window,
    kernel: &mut KernelNames,
    numbers: Option<&Numbers>,
) -> Timelines {
    let open: Vec<SpanRow> = seen.live.iter().map(|live| open_row(live, &mut seen.rows)).collect();
    let rows = &seen.rows;
    let mut used = Used::default();
    let reported = rows.spans.iter().chain(&open);
    let (heirs, askers) = (Heirs::of(&open, seen), askers(seen));
    let end = |row: &SpanRow| {
        let end = seen.other_ends.get(&row.span.other_end).filter(|_| !is_lock(&row.span));
        end.map(|found| Box::new(other_end(found, row.span.tgid, &askers)))
    };
    let all = reported.map(|row| Span {
        other_end: end(row),
        holder: heirs.holder(&row.span),
        ..span(row, rows, window, kernel, &mut used)
    });
    let mut spans: Vec<Span> = all.collect();
    name_wakers(&mut spans);
    drop_foreign_owners(&mut spans, numbers);
    spans.sort_by_key(|span| (span.pid, span.to_ns, span.from_ns));
    let run = |cpu, pid, from, to| Run { cpu, pid, from_ns: window.at(from), to_ns: window.at(to) };
    let runs = rows.runs.iter().map(|reported| run(reported.cpu, reported.pid, reported.from, reported.to));
    // Tasks that are on a CPU when the window ends: the closing walk reports since when.
    let running = seen.live.iter().filter(|live| live.slot.state as usize == sched::RUNNING);
    let runs = runs.chain(running.map(|live| {
        let span = &live.row.span;
        run(span.cpu, span.pid, span.key, span.open_ns)
    }));
    let mut runs: Vec<Run> = runs.collect();
    runs.sort_by_key(|run| (run.cpu, run.from_ns));
    let stacks = used.stacks.iter().map(|id| Stack {
        id: *id,
        kernel: without_ours(kernel.stack(rows.stack(*id))),
        user: Vec::new(),
    });
    Timelines { spans, stacks: stacks.collect(), runs }
}

/// For some wakers only the thread id was noted: their own rows have the name.
fn name_wakers(spans: &mut [Span]) {
    let known: HashMap<u32, (u32, String)> =
        spans.iter().map(|span| (span.pid, (span.tgid, span.comm.clone()))).collect();
    for waker in spans.iter_mut().filter_map(|span| span.waker.as_mut()).filter(|waker| waker.tgid == 0) {
        if let Some((tgid, comm)) = known.get(&waker.pid) {
            (waker.tgid, waker.comm) = (*tgid, comm.clone());
        }
    }
}

/// Whether the task waits for a lock on an open file.
fn is_lock(span: &sched_span) -> bool {
    span.lock_file != 0 && span.waits_at == 0
}

/// Locks of open files (flock, OFD) whose taker has ended or closed the file: "exec 9>lock; flock 9" in a script. The processes that have the
/// file open hold such a lock; the oldest of them had it first. The key is the open file, whose address may have been reused, its taker and its
/// inode.
struct Heirs(HashMap<(u64, u32, u32, u64), u32>);

impl Heirs {
    fn of(open: &[SpanRow], seen: &RawSched) -> Self {
        let heir = |row: &SpanRow| {
            let end = seen.other_ends.get(&row.span.other_end).filter(|_| is_lock(&row.span))?;
            let processes = end.holders.get(..end.count as usize)?;
            let is_gone = !processes.contains(&row.span.holder);
            processes.first().filter(|_| is_gone).map(|oldest| (Self::key(&row.span), *oldest))
        };
        Heirs(open.iter().filter_map(heir).collect())
    }

    fn key(span: &sched_span) -> (u64, u32, u32, u64) {
        (span.lock_file, span.holder, span.dev, span.ino)
    }

    fn holder(&self, span: &sched_span) -> u32 {
        let heir = self.0.get(&Self::key(span)).filter(|_| span.lock_file != 0);
        heir.copied().unwrap_or(span.holder)
    }
}

/// Where a lock has no owner field beside its word, other data of the program lies there: such a number is dropped. A mutex is held by a
/// thread of its own process, a file lock by a process. Programs count their threads by the numbers of their own pid namespace, which are
/// known if it is ours.
fn drop_foreign_owners(spans: &mut [Span], numbers: Option<&Numbers>) {
    let back = numbers.map(Numbers::back);
    let known: HashMap<u32, u32> = spans.iter().map(|span| (span.pid, span.tgid)).collect();
    for span in spans.iter_mut().filter(|span| span.holder != 0) {
        let is_futex = span.syscall == Some(FUTEX);
        if let Some(back) = back.as_ref().filter(|_| is_futex) {
            span.holder = back.get(&span.holder).copied().unwrap_or(0);
        }
        let process = known.get(&span.holder);
        let is_ours = if is_futex {
            process == Some(&span.tgid) && span.holder != span.pid
        } else {
            process == Some(&span.holder) && span.holder != span.tgid
        };
        if !is_ours {
            span.holder = 0;
        }
    }
}

/// A waker's stack begins with the frames of our own hook: remove them.
fn without_ours(mut names: Vec<String>) -> Vec<String> {
    if let Some(hook) = names.iter().position(|name| name == "__traceiter_sched_waking") {
        names.drain(..=hook);
    }
    names
}

/// What woke the task that waited at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Data,
    /// Room to send, or another change of state.
    Other,
}

/// Stacks that rows point to.
#[derive(Default)]
struct Used {
    stacks: BTreeSet<u32>,
    /// By stack of a waker.
    sockets: HashMap<u32, Option<By>>,
}

impl Used {
    fn note(&mut self, id: Option<u32>) -> Option<u32> {
        self.stacks.extend(id);
        id
    }

    /// Whether a socket woke the task, by the waker's stack: on a CPU that received packets, code other than sockets can wake tasks from a
    /// softirq, too, while the current task works on a socket of its own.
    fn woken_by(&mut self, stack: u32, rows: &Rows, kernel: &mut KernelNames) -> Option<By> {
        *self.sockets.entry(stack).or_insert_with(|| {
            let names = kernel.stack(rows.stack(stack));
            let has = |begin: &str| names.iter().any(|name| name.starts_with(begin));
            if has("sock_def_readable") {
                return Some(By::Data);
            }
            let others = ["sock_def_", "sk_stream_write_space", "unix_write_space"];
            others.iter().any(|other| has(other)).then_some(By::Other)
        })
    }
}

/// What a task was doing when the window ended.
fn open_row(live: &sched_live, rows: &mut Rows) -> SpanRow {
    let stack = rows.stack_of(live.row.span.depth, &live.row.frames);
    SpanRow { stack, ..SpanRow::of(live.row.span) }
}

fn span(row: &SpanRow, rows: &Rows, window: Window, kernel: &mut KernelNames, used: &mut Used) -> Span {
    let reported = &row.span;
    let end = if reported.to == 0 { reported.open_ns } else { reported.to };
    let woken = if reported.woken == 0 { end } else { reported.woken };
    let state = state_of(reported.state);
    let (from_ns, at_ns) = (window.at(reported.from), window.at(reported.at));
    let wake = rows
        .wakes
        .get(&(reported.pid, reported.key))
        .filter(|_| reported.woken != 0 && state != State::Runnable);
    Span {
        pid: reported.pid,
        tgid: reported.tgid,
        comm: text(&reported.comm),
        from_ns,
        at_ns,
        woken_ns: window.at(woken),
        to_ns: window.at(end),
        mixed: mix(reported, at_ns.saturating_sub(from_ns)),
        state,
        open: reported.woken == 0 && state != State::None,
        ended: reported.ended != 0,
        cpu: reported.cpu,
        waker: wake.map(|wake| waker(wake, rows, kernel, used)),
        stack: used.note(row.stack),
        sampled_wait_ns: row.stands,
        work: function(reported.work, kernel),
        syscall: u32::try_from(reported.syscall).ok(),
        args: reported.args,
        target: target(reported),
        polled: ends(&reported.polled).map(|ends| {
            let connecting = reported.connecting != 0;
            Box::new(Polled { peer: ends.peer, connecting, serves: ends.serves })
        }),
        device: (reported.device != 0).then(|| device(reported.device)),
        io_file: reported.io_file,
        lock: lock(reported, window),
        holder: reported.holder,
        refused: reported.refused != 0,
        asked: reported.asked != 0,
        held_back: reported.held != 0,
        throttled_ns: if reported.throttled == 0 { 0 } else { end.saturating_sub(woken) },
        other_end: None,
    }
}

/// Requests that processes had sent and that were not answered when the window ended. Requests sent just before the end are left out.
pub fn requests(seen: &RawSched) -> Vec<Request> {
    let is_lasting = |end: &OtherEnd| end.sent_before_ns.is_none_or(|before| before >= SOON);
    let askers = askers(seen);
    let request = |(to, found): &(sched_ends, sched::other_end)| {
        let end = Some(other_end(found, found.asker, &askers))
            .filter(is_lasting)
            .filter(|end| end.asked != Asked::No)?;
        let (peer, connecting) = (ends(to).map(|ends| ends.peer), found.connecting != 0);
        Some(Request { tgid: found.asker, peer, connecting, other_end: end })
    };
    let mut all: Vec<Request> = seen.requests.iter().filter_map(request).collect();
    all.sort_by(|one, other| {
        (one.tgid, &one.peer, &one.other_end.processes).cmp(&(
            other.tgid,
            &other.peer,
            &other.other_end.processes,
        ))
    });
    all
}

/// How long ago, by a clock of ticks that reports one tick too many; 0: not known.
fn before(ticks: u32) -> Option<u64> {
    let ticks = u64::from(ticks).checked_sub(1);
    ticks.map(|ticks| ticks.saturating_mul(crate::host::tick_ns()))
}

/// For (sending process, woken process): how long ago, in ticks as above, the sender woke a thread of the other process with a message. That
/// thread has answered no process since.
type Askers = HashMap<(u32, u32), u32>;

/// A thread that sleeps may have passed its request on to other threads of its process.
fn askers(seen: &RawSched) -> Askers {
    /// A larger count is a message that was sent after the window: ticks are counted in 32 bits.
    const LONGEST: u32 = 1 << 30;
    let mut threads: HashMap<u32, u32> = HashMap::new();
    for live in &seen.live {
        *threads.entry(live.row.span.tgid).or_default() += 1;
    }
    let is_at_it = |live: &&sched::sched_live| {
        let process = live.row.span.tgid;
        live.slot.state as usize != sched::ASLEEP || threads.get(&process) == Some(&1)
    };
    let has_sent = |live: &&sched::sched_live| {
        let ticks = live.slot.asked_tick;
        live.slot.asked_by != 0 && live.slot.connected == 0 && (1..=LONGEST).contains(&ticks)
    };
    let mut askers = Askers::new();
    for live in seen.live.iter().filter(has_sent).filter(is_at_it) {
        let ticks = askers.entry((live.slot.asked_by, live.row.span.tgid)).or_insert(u32::MAX);
        *ticks = live.slot.asked_tick.min(*ticks);
    }
    askers
}

/// If there are more holders than fit, none is reported. Over a unix socket process `client` has sent a request to a holder that it woke.
fn other_end(found: &sched::other_end, client: u32, askers: &Askers) -> OtherEnd {
    let mut processes = found.holders.get(..found.count as usize).unwrap_or_default().to_vec();
    processes.sort_unstable();
    processes.dedup();
    let asked = match found.asked {
        other_ends_h::ASKED_NOT => Asked::No,
        other_ends_h::ASKED_SENT => Asked::Sent,
        other_ends_h::ASKED_UNREAD | other_ends_h::ASKED_QUEUED => Asked::Unread,
        _ => Asked::Unknown,
    };
    let sent_before_ns = before(found.sent);
    let watched = match found.watch {
        parked_h::WATCH_WAITED => Some(true),
        parked_h::WATCH_PARKED => Some(false),
        _ => None,
    };
    let queued = found.asked == other_ends_h::ASKED_QUEUED;
    let end = OtherEnd { processes, asked, sent_before_ns, queued, watched };
    let woken = end.processes.iter().filter_map(|process| askers.get(&(client, *process))).min();
    match woken {
        Some(ticks) if asked == Asked::Unknown && sent_before_ns.is_none() => {
            OtherEnd { asked: Asked::Sent, sent_before_ns: before(*ticks), ..end }
        }
        _ => end,
    }
}

fn waker(row: &WakeRow, rows: &Rows, kernel: &mut KernelNames, used: &mut Used) -> Waker {
    let unnamed = row.comm[0] == 0;
    let named = rows.name_of(row.waker).filter(|_| unnamed).unwrap_or(&row.comm);
    Waker {
        pid: row.waker,
        tgid: row.tgid,
        comm: text(named),
        context: match row.context {
            rows_h::WAKE_TASK => Context::Task,
            rows_h::WAKE_SOFTIRQ => Context::Softirq,
            rows_h::WAKE_HARDIRQ => Context::Hardirq,
            rows_h::WAKE_NMI => Context::Nmi,
            _ => Context::Unknown,
        },
        work: function(row.work, kernel),
        stack: used.note(row.stack),
        delivery: sent_by(row, rows, kernel, used).map(Box::new),
    }
}

/// What a socket delivered to the woken task: by the waker's stack, or, where no stack was taken, by the socket. A system call on a unix socket
/// shows that something was sent.
fn sent_by(row: &WakeRow, rows: &Rows, kernel: &mut KernelNames, used: &mut Used) -> Option<Delivery> {
    let sent = row.sent.as_ref()?;
    let by = match row.stack {
        Some(stack) => used.woken_by(stack, rows, kernel)?,
        None => Some(By::Data).filter(|_| sent.by_data || sent.unix_role != peers_h::UNIX_NEITHER)?,
    };
    Some(delivery(sent, by))
}

fn delivery(sent: &SentRow, by: By) -> Delivery {
    let ready = ends(&sent.ready).filter(|_| by == By::Data);
    let role = match sent.unix_role {
        peers_h::UNIX_ANSWERS => Some(Role::Answers),
        peers_h::UNIX_ASKS => Some(Role::Asks),
        peers_h::UNIX_TAKES => Some(Role::Takes),
        _ => None,
    };
    let is_told = ready.is_some() || role == Some(Role::Answers);
    Delivery {
        sent_before_ns: before(sent.sent_ticks).filter(|_| is_told),
        ready,
        sends: ends(&sent.sends),
        syscall: u32::try_from(sent.call).ok(),
        role,
    }
}

fn ends(row: &sched_ends) -> Option<Ends> {
    let end =
        |port, address| (port != 0).then(|| SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port));
    let text = |port, address| end(port, address).map_or_else(String::new, |end| end.to_string());
    let round_trip_us = Some(row.round_trip_us).filter(|us| *us > 0);
    (row.family != 0).then(|| Ends {
        local: text(row.local_port, row.local),
        peer: text(row.peer_port, row.peer),
        round_trip_ns: round_trip_us.map(|us| u64::from(us) * 1000),
        serves: row.serves != 0,
        unread: row.unread != 0,
        netns: row.netns,
    })
}

fn state_of(state: u32) -> State {
    match state as usize {
        sched::READY => State::Runnable,
        sched::IO => State::Io,
        sched::BLOCKED => State::Blocked,
        sched::ASLEEP => State::Sleep,
        _ => State::None,
    }
}

/// The times in each state within a stretch, scaled to its length: clocks of two CPUs, and the edge of the window, can cut through it.
fn mix(reported: &sched_span, length: u64) -> StateTimes {
    let parts = [
        reported.mixed[sched::RUNNING],
        reported.mixed[sched::READY],
        reported.mixed[sched::IO],
        reported.mixed[sched::BLOCKED],
        reported.mixed[sched::ASLEEP],
        reported.unknown,
    ];
    let total = parts.into_iter().fold(0, u64::saturating_add);
    let fit = |part: u64| {
        if total <= length {
            part
        } else {
            (u128::from(part) * u128::from(length) / u128::from(total)) as u64
        }
    };
    let [running_ns, runnable_ns, io_ns, blocked_ns, sleep_ns, unknown_ns] = parts.map(fit);
    let mix = StateTimes { running_ns, runnable_ns, io_ns, blocked_ns, sleep_ns, unknown_ns };
    let missing_ns = length.saturating_sub(mix.total_ns());
    StateTimes { unknown_ns: mix.unknown_ns.saturating_add(missing_ns), ..mix }
}

/// A work item's function, without an offset: at its entry a function has none.
fn function(address: u64, kernel: &mut KernelNames) -> Option<String> {
    (address != 0).then(|| kernel.stack(&[address]).into_iter().next()).flatten()
}

/// MINORBITS is 20 in the kernel's own numbers.
fn device(number: u32) -> String {
    format!("{}:{}", number >> 20, number & 0xf_ffff)
}

fn lock(reported: &sched_span, window: Window) -> Option<LockWait> {
    (reported.lock != 0).then(|| LockWait {
        address: reported.lock,
        kind: lock_kind(reported.lock_kind),
        write: reported.lock_write != 0,
        since_ns: window.at(reported.lock_since),
        owner: reported.owner,
        owner_again: reported.owner_again,
        reader_owned: reported.reader_owned != 0,
    })
}

/// `enum lock_kind` in shared.bpf.h.
#[must_use]
pub fn lock_kind(kind: u32) -> LockKind {
    match kind {
        shared_h::LOCK_MUTEX => LockKind::Mutex,
        shared_h::LOCK_RWSEM => LockKind::Rwsem,
        shared_h::LOCK_RTMUTEX => LockKind::Rtmutex,
        shared_h::LOCK_PERCPU_RWSEM => LockKind::PercpuRwsem,
        shared_h::LOCK_SEMAPHORE => LockKind::Semaphore,
        _ => LockKind::Unknown,
    }
}

fn target(reported: &sched_span) -> Option<Target> {
    let kind = match reported.mode & 0o170_000 {
        _ if reported.mode == 0 => return None,
        0o040_000 => "dir",
        0o100_000 => "file",
        0o010_000 => "pipe",
        0o140_000 => "socket",
        0o020_000 => "chr",
        0o060_000 => "blk",
        _ => "anon",
    };
    let name = if kind == "socket" { family(reported.family) } else { redact::path(&text(&reported.file)) };
    // Anonymous inodes had no type before v6.15, and are regular files since: their names show what they are.
    let kind = if name.starts_with('[') { "anon" } else { kind };
    Some(Target {
        fd: if reported.refused == 0 { reported.args[0] as i32 } else { -1 },
        kind: kind.to_owned(),
        name,
        ino: reported.ino,
        dev: device(reported.dev),
        peer: peer(reported),
    })
}

/// include/linux/socket.h
fn family(number: u32) -> String {
    match number {
        1 => "unix",
        2 => "inet",
        10 => "inet6",
        16 => "netlink",
        17 => "packet",
        38 => "alg",
        40 => "vsock",
        _ => return format!("family {number}"),
    }
    .to_owned()
}

fn peer(reported: &sched_span) -> Option<String> {
    let port = u16::from_be(reported.port as u16);
    let address = match reported.family {
        2 => {
            let [a, b, c, d, ..] = reported.address;
            Ipv4Addr::new(a, b, c, d).into()
        }
        10 => Ipv6Addr::from(reported.address).to_canonical(),
        _ => return None,
    };
    (port != 0).then(|| SocketAddr::new(address, port).to_string())
}
