//! Packets that waited for their CPU: what ran there meanwhile.
//!
//! Interrupts off: the gap that the IRQ latency probe recorded shows the code that let the interrupt in, under the doubts that `irqs-off` has.
//! A deferred softirq: ticks of the CPU show what ran between the raise and the entry; without a tick the end shows it, if a thread enabled
//! bottom halves there. A long poll: ticks show the code of the softirq. Packets behind others (`queues`): the same. A task that ran
//! before the stall has no tick in it, and is not named.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Missing;
use whyslow_model::stall::{Stall, StallAccount, StallCulprit, StallKind, StallSeen};
use whyslow_model::table::Gap;

use crate::Evidence;
use crate::irq::latency::{Stolen, at_end, interrupted as interrupted_by_gap, is_interrupt_entry};
use crate::stacks::doing::function_at_work;
use crate::stacks::symbol;
use crate::stacks::syscalls::syscall_name;

pub(crate) mod polling_threads;
pub(crate) mod queues;

#[cfg(test)]
#[path = "stalls_tests.rs"]
mod tests;

/// The hypervisor made a gap if it took so much of it.
const STOLEN: f64 = 0.5;
/// A gap without interrupts is what made a stall if it is so much of it.
const GAP: f64 = 0.5;
/// Gaps that end within a stall are looked at, the last ones: only invalid rows have more.
const LOOKED_AT: usize = 200;
/// A CPU that ran for longer than this had a tick, unless it has none at all (nohz_full), in ns.
const TICKLESS: u64 = 12_000_000;
/// Threads with equal rights take turns that are shorter, in ns.
const A_TURN: u64 = 50_000_000;
/// Load weight at nice 0: ksoftirqd's.
const NICE_0: u64 = 1024;
/// A task that had fewer of the ticks did not keep the others out.
const MOST_TICKS: f64 = 0.5;
/// Functions that run the softirqs: kernel/softirq.c, handle_softirqs since 6.10 (`__do_softirq` before).
const SOFTIRQS: [&str; 2] = ["handle_softirqs", "__do_softirq"];
const IDLED: &str = "the CPU idled: a deep idle state, firmware or a hypervisor delayed it";
/// Frames of a stack that are kept.
const FRAMES: usize = 8;

/// Why no thread is named where the hypervisor may have made the stalls.
const TAKEN_AS_MUCH: &str = "the hypervisor took as much time of this CPU, and when is not known";

/// A stall, and what caused it.
pub(super) struct Told {
    pub(super) cpu: u32,
    pub(super) kind: StallKind,
    /// When it was over.
    pub(super) at_ns: u64,
    /// The longest wait of a packet.
    pub(super) ns: u64,
    /// The time that no other stall of this CPU has.
    pub(super) new_ns: u64,
    /// How many waits that were.
    count: u64,
    thread: Option<String>,
    pub(super) culprit: Result<StallCulprit, String>,
}

/// All stalls, in no order.
pub(super) fn all(ev: &Evidence<'_>) -> Vec<Told> {
    let mut all: Vec<Told> = of_softirqs(ev).into_iter().chain(polling_threads::stalls(ev)).collect();
    doubt_stolen(&mut all, &Stolen::of(ev.recording()));
    all
}

/// Whether each packet that waited for its CPU is among them.
pub(crate) fn are_all_seen(ev: &Evidence<'_>) -> Result<bool, Missing> {
    ev.stalls()?;
    ev.gaps()?;
    ev.cpus()?;
    polling_threads::are_known(ev)?;
    let unseen = queues::lacks_polls(ev) || queues::unseen(ev).is_some();
    Ok(!unseen && !polling_threads::may_be_late_otherwise(ev))
}

/// The stalls by CPU and cause, the longest time first.
pub(crate) fn accounts(ev: &Evidence<'_>) -> Vec<StallAccount> {
    let mut by_cause: BTreeMap<_, StallAccount> = BTreeMap::new();
    for one in all(ev) {
        let (culprit, unknown) = match one.culprit {
            Ok(culprit) => (Some(culprit), None),
            Err(why) => (None, Some(why)),
        };
        let cause = culprit.clone().map(|one| StallCulprit { stack: Vec::new(), ..one });
        let key = (one.cpu, one.kind, cause, unknown.clone());
        let ns = Duration::from_nanos(one.ns);
        let at = Duration::from_nanos(one.at_ns.saturating_sub(one.ns));
        let sum = by_cause.entry(key).or_insert_with(|| StallAccount {
            cpu: one.cpu,
            kind: one.kind,
            count: 0,
            total: Duration::ZERO,
            worst: Duration::ZERO,
            at,
            thread: None,
            culprit: None,
            unknown,
        });
        sum.count = sum.count.saturating_add(if one.new_ns > 0 { one.count } else { 0 });
        sum.total = sum.total.saturating_add(Duration::from_nanos(one.new_ns));
        if sum.worst.is_zero() || ns > sum.worst {
            (sum.culprit, sum.thread) = (culprit, one.thread);
        }
        (sum.worst, sum.at) = (sum.worst.max(ns), sum.at.min(at));
    }
    let mut all: Vec<StallAccount> = by_cause.into_values().collect();
    // Waits of threads that others' waits hold.
    all.retain(|one| one.count > 0);
    all.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| (a.at, a.cpu).cmp(&(b.at, b.cpu))));
    all
}

fn of_softirqs(ev: &Evidence<'_>) -> Vec<Told> {
    let stalls = ev.stalls().unwrap_or_default();
    if stalls.is_empty() {
        return Vec::new();
    }
    let gaps = Gaps::of(ev);
    let told = |stall: &Stall| {
        // `None`: of a newer whyslow.
        let kind = StallKind::ALL.iter().copied().find(|kind| kind.word() == stall.kind)?;
        let gap = gaps.most_of(stall);
        // However the packets were kept out: while it lasted, the CPU took no interrupts.
        let kind = if gap.is_some() { StallKind::IrqsOff } else { kind };
        let culprit = culprit(ev, &gaps, gap, kind, stall);
        let (cpu, at_ns, new_ns) = (stall.cpu, stall.at_ns, stall.ns);
        // A row of a queue has the waits of several packets.
        let ns = if stall.worst_ns > 0 { stall.worst_ns } else { stall.ns };
        let count = u64::from(stall.waits.max(1));
        Some(Told { cpu, kind, at_ns, ns, new_ns, count, thread: None, culprit })
    };
    stalls.iter().filter_map(told).collect()
}

/// Where a hypervisor took as much of a CPU as its softirq was late, or its polls took, these times are as likely the hypervisor's.
fn doubt_stolen(all: &mut [Told], stolen: &Stolen) {
    let mut sums: BTreeMap<(u32, StallKind), u64> = BTreeMap::new();
    for one in all.iter() {
        let sum = sums.entry((one.cpu, one.kind)).or_default();
        *sum = sum.saturating_add(one.new_ns);
    }
    sums.retain(|(cpu, kind), sum| *kind != StallKind::IrqsOff && stolen.took_as_much(*cpu, *sum));
    for one in all.iter_mut().filter(|one| one.culprit.is_ok() && sums.contains_key(&(one.cpu, one.kind))) {
        one.culprit = Err(TAKEN_AS_MUCH.to_owned());
    }
}

/// What kept the packets out, or why that is not known.
fn culprit(
    ev: &Evidence<'_>,
    gaps: &Gaps<'_>,
    gap: Option<&Gap>,
    kind: StallKind,
    stall: &Stall,
) -> Result<StallCulprit, String> {
    let Some((end, ticks)) = stall.seen.split_last() else { return Err("no stack was taken".to_owned()) };
    // A CPU that took no interrupts had no ticks, and what it did next is not what kept the packets out.
    match (kind, gap) {
        (_, Some(gap)) => of_gap(ev, gaps, gap, end),
        (StallKind::IrqsOff, None) => Err("the gap without interrupts was not recorded".to_owned()),
        (StallKind::Thread, None) => Err("its probe does not tell of threads".to_owned()),
        (StallKind::Deferred, None) => deferred(ev, stall, end, ticks),
        (StallKind::Queued, None) => queues::culprit(ticks),
        (StallKind::Poll, None) => {
            let rows: Vec<&StallSeen> = ticks.iter().filter(|row| is_in_softirq(row)).collect();
            if rows.is_empty() {
                Err("no tick came within the poll".to_owned())
            } else {
                of_softirq_rows(&rows)
            }
        }
    }
}

/// Times without interrupts.
struct Gaps<'r> {
    /// By CPU, in order of their ends.
    by_cpu: BTreeMap<u32, Vec<&'r Gap>>,
    /// Why those that end in a function may be the hypervisor's: by CPU and function.
    doubts: BTreeMap<(u32, &'r str), Option<String>>,
}

impl<'r> Gaps<'r> {
    fn of(ev: &Evidence<'r>) -> Self {
        let (mut by_cpu, mut by_place) = (BTreeMap::<_, Vec<&Gap>>::new(), BTreeMap::<_, Vec<&Gap>>::new());
        for gap in ev.recording().tables.gaps.iter().flatten() {
            by_cpu.entry(gap.cpu).or_default().push(gap);
            if let Some(function) = at_end(ev.recording(), gap) {
                by_place.entry((gap.cpu, function)).or_default().push(gap);
            }
        }
        by_cpu.values_mut().for_each(|gaps| gaps.sort_by_key(|gap| gap.at_ns));
        let stolen = Stolen::of(ev.recording());
        let doubts = by_place.into_iter().map(|(place, gaps)| (place, stolen.doubt(place.0, &gaps)));
        Gaps { by_cpu, doubts: doubts.collect() }
    }

    /// The gap that is most of the stall. Where the waits of several packets are one row, when each of them was is not known.
    fn most_of(&self, stall: &Stall) -> Option<&'r Gap> {
        if stall.kind == StallKind::Queued.word() && stall.waits != 1 {
            return None;
        }
        let begin = stall.at_ns.saturating_sub(stall.ns);
        let gaps = self.by_cpu.get(&stall.cpu)?;
        let (from, to) = (
            gaps.partition_point(|gap| gap.at_ns < begin),
            gaps.partition_point(|gap| gap.at_ns <= stall.at_ns),
        );
        let shared = |gap: &Gap| gap.at_ns.saturating_sub(gap.at_ns.saturating_sub(gap.ns).max(begin));
        let last = gaps.get(from..to)?.iter().rev().take(LOOKED_AT);
        let long = last.filter(|gap| shared(gap) as f64 >= GAP * stall.ns as f64);
        long.max_by_key(|gap| shared(gap)).copied()
    }
}

/// The thread that the first interrupt behind the gap has stopped.
fn of_gap(ev: &Evidence<'_>, gaps: &Gaps<'_>, gap: &Gap, end: &StallSeen) -> Result<StallCulprit, String> {
    if gap.stolen_ns.is_some_and(|taken| taken as f64 >= STOLEN * gap.ns as f64) {
        return Err("the hypervisor did not run this CPU".to_owned());
    }
    if gap.let_in == Some(false) {
        return Err("interrupts were on: firmware or a hypervisor stopped this CPU".to_owned());
    }
    if gap.state.is_some() || gap.pid == 0 {
        return Err(IDLED.to_owned());
    }
    let Some(function) = at_end(ev.recording(), gap) else {
        return Err("the end of the time without interrupts shows no code that keeps them off".to_owned());
    };
    if let Some(Some(why)) = gaps.doubts.get(&(gap.cpu, function)) {
        return Err(why.clone());
    }
    // The softirq may begin in a later system call of the thread.
    let is_same = end.pid == gap.pid && frames(end).contains(&function);
    let (syscall, file) = if is_same { (end.syscall, end.file.clone()) } else { (None, None) };
    let Gap { pid, tgid, comm, kernel, .. } = gap.clone();
    let stopped =
        StallSeen { at_ns: gap.at_ns, count: 1, pid, tgid, comm, softirq: false, syscall, file, kernel };
    let stack = interrupted_by_gap(gap).unwrap_or_default().into_iter().take(FRAMES).map(str::to_owned);
    let culprit = of_thread(ev, &stopped, &[&stopped])?;
    Ok(StallCulprit { function: Some(function.to_owned()), stack: stack.collect(), ..culprit })
}

fn deferred(
    ev: &Evidence<'_>,
    stall: &Stall,
    end: &StallSeen,
    ticks: &[StallSeen],
) -> Result<StallCulprit, String> {
    let all: u64 = ticks.iter().map(|row| u64::from(row.count)).sum();
    if all == 0 {
        return match stall.ns <= TICKLESS && enables_bottom_halves(end) {
            true => of_thread(ev, end, &[end]),
            false => Err("no tick of this CPU came meanwhile".to_owned()),
        };
    }
    // Each tick stands for the time until the next one.
    if all.saturating_mul(TICKLESS) < stall.ns / 2 {
        return Err("few ticks of this CPU came meanwhile".to_owned());
    }
    let (in_softirqs, in_threads): (Vec<&StallSeen>, Vec<&StallSeen>) =
        ticks.iter().partition(|row| is_in_softirq(row));
    let is_most = |rows: &[&StallSeen]| {
        let own: u64 = rows.iter().map(|row| u64::from(row.count)).sum();
        own as f64 > MOST_TICKS * all as f64
    };
    if is_most(&in_softirqs) {
        return of_softirq_rows(&in_softirqs);
    }
    let mut by_pid: BTreeMap<u32, Vec<&StallSeen>> = BTreeMap::new();
    for row in in_threads {
        by_pid.entry(row.pid).or_default().push(row);
    }
    let Some(rows) = by_pid.into_values().find(|rows| is_most(rows)) else {
        return Err("several tasks ran there in turn".to_owned());
    };
    match end.comm.starts_with("ksoftirqd/") && stall.ns < A_TURN && took_turns(ev, &rows) {
        true => Err("ksoftirqd took turns with an ordinary thread: this CPU is full".to_owned()),
        false => of_thread(ev, rows.last().copied().unwrap_or(end), &rows),
    }
}

/// A thread with no more right to the CPU than ksoftirqd, in code that the scheduler may stop at any time: its own.
fn took_turns(ev: &Evidence<'_>, rows: &[&StallSeen]) -> bool {
    let task = rows.first().and_then(|row| ev.task(row.pid));
    let is_ordinary = task.is_none_or(|task| !task.is_real_time() && task.weight <= NICE_0);
    is_ordinary && rows.iter().all(|row| row.syscall.is_none() && interrupted(row).is_empty())
}

/// A tick has stopped a softirq there: by the CPU's count, or by its stack where the place of that count is not known.
fn is_in_softirq(row: &StallSeen) -> bool {
    row.softirq || softirq_frames(row).is_some()
}

/// Whether the softirq begins because this thread enables bottom halves: an interrupt or ksoftirqd would begin it otherwise.
fn enables_bottom_halves(end: &StallSeen) -> bool {
    let all = frames(end);
    let enables = all.iter().position(|frame| *frame == "__local_bh_enable_ip");
    enables.is_some_and(|at| !all.iter().take(at).any(|frame| is_interrupt_entry(frame)))
}

/// The thread of `last`; the function that most of `rows` show.
fn of_thread(ev: &Evidence<'_>, last: &StallSeen, rows: &[&StallSeen]) -> Result<StallCulprit, String> {
    if last.pid == 0 {
        return Err(IDLED.to_owned());
    }
    if ev.is_own(last.pid, last.tgid) {
        return Err("whyslow itself ran there".to_owned());
    }
    let function = most(rows, |row| function_at_work(&interrupted(row)).map(str::to_owned));
    let row = rows
        .iter()
        .rev()
        .find(|row| function_at_work(&interrupted(row)) == function.as_deref())
        .unwrap_or(&last);
    let group = ev
        .task(last.pid)
        .and_then(|task| ev.cgroup(task.unified_cgroup).or_else(|| ev.cgroup(task.cpu_cgroup)));
    Ok(StallCulprit {
        pid: last.pid,
        who: ev.process_name(last.tgid, &last.comm),
        group: group.filter(|group| group.path != "/").map(|group| ev.names().cgroup(group).name),
        call: row.syscall.map(|call| syscall_name(call).into_owned()),
        file: row.file.clone(),
        function,
        stack: interrupted(row).into_iter().take(FRAMES).map(str::to_owned).collect(),
    })
}

/// The function of the softirqs that most of these rows show.
fn of_softirq_rows(rows: &[&StallSeen]) -> Result<StallCulprit, String> {
    let work = |row: &StallSeen| function_at_work(&softirq_frames(row)?).map(str::to_owned);
    // Stacks end in code that the kernel cannot unwind: BPF programs, and modules without ORC data.
    let named =
        || most(rows, work).ok_or_else(|| "a softirq ran there, whose function is not known".to_owned());
    let function = named()?;
    let row = rows.iter().rev().find(|row| work(row).as_ref() == Some(&function));
    let frames = row.and_then(|row| softirq_frames(row)).unwrap_or_default();
    let stack = frames.into_iter().take(FRAMES).map(str::to_owned).collect();
    Ok(StallCulprit { who: "softirq".to_owned(), function: Some(function), stack, ..StallCulprit::default() })
}

fn most(rows: &[&StallSeen], of: impl Fn(&StallSeen) -> Option<String>) -> Option<String> {
    let mut ticks: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        if let Some(function) = of(row) {
            // A row of many ticks has one of their stacks.
            *ticks.entry(function).or_default() += 1;
        }
    }
    ticks.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0))).map(|(function, _)| function)
}

fn frames(row: &StallSeen) -> Vec<&str> {
    row.kernel.iter().map(|frame| symbol(frame)).filter(|frame| !frame.is_empty()).collect()
}

/// What the thread itself ran, innermost first: behind the outermost entry of an interrupt, of a softirq on its way out of a call
/// behind that.
fn interrupted(row: &StallSeen) -> Vec<&str> {
    let all = frames(row);
    let entry = all.iter().rposition(|frame| is_interrupt_entry(frame) || SOFTIRQS.contains(frame));
    all.get(entry.map_or(0, |at| at + 1)..).unwrap_or_default().to_vec()
}

/// The frames of a softirq that a tick has interrupted, innermost first; `None`: it has interrupted none.
fn softirq_frames(row: &StallSeen) -> Option<Vec<&str>> {
    let all = frames(row);
    let tick = all.iter().position(|frame| is_interrupt_entry(frame))?;
    let runs = all.iter().skip(tick).position(|frame| SOFTIRQS.contains(frame))? + tick;
    Some(all.get(tick + 1..runs)?.to_vec()).filter(|frames| !frames.is_empty())
}
