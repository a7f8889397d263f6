//! One window, from start to end: load the probes, read the files, wait, read again, put it all into a recording.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whyslow_model::table::{Tables, Task};
use whyslow_model::timeline::Watched;
use whyslow_model::{FORMAT, Meta, Missing, MissingNote, Recording};

mod pings;

pub use pings::{Asking, record_pings};

use crate::budget::OwnBudget;
use crate::cost;
use crate::files::{Files, Moment, RawFiles};
use crate::groups;
use crate::host;
use crate::probes::{Probes, Slots};
use crate::span_table::Window;

/// How often the ring buffers are emptied, and hooks are checked for slowing a CPU: a burst of switches pays for two hooks until then.
const BEAT: Duration = Duration::from_millis(50);
/// The most time for the hazardous rows, after the window.
const HAZARD_DEADLINE: Duration = Duration::from_millis(250);
/// Processes whose /proc files are read: the busiest.
const BUSIEST: usize = 20;

/// What to record.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Length of the window.
    pub window: Duration,
    /// Where /proc and /sys are: "/" live; an unpacked recording can stand for a host, too (files only, no BPF).
    pub root: PathBuf,
    /// Version of the program, for the recording.
    pub version: String,
    /// The processes that are followed in detail.
    pub follow: Option<Follow>,
    /// The window ends when this can be read: a pidfd.
    pub ends_with: Option<RawFd>,
    /// Which tables and probes fit into our limits.
    pub budget: OwnBudget,
    /// The user asked for the speed of CPUs: it is measured however scarce CPU time is.
    pub needs_speeds: bool,
    /// Only waits are requested: the probes that count softirqs and packets, two hooks each, are left out.
    pub only_waits: bool,
    /// Packets that wait are requested: a CPU is watched however many of them it has.
    pub watches_packets: bool,
    /// Measure the speed of CPUs that are isolated or run real-time tasks, too.
    pub all_cpus: bool,
    /// Ask this host meanwhile: the window is over when it has been asked.
    pub asking: Option<Asking>,
}

/// Processes that are followed in detail: their system calls, and waits of 100 us.
#[derive(Debug, Clone, Default)]
pub struct Follow {
    /// As the user named it.
    pub subject: String,
    /// These processes, with all their threads, and those they start.
    pub pids: Vec<u32>,
    /// Descriptors (pidfds) of the processes whose number may be reused before they are followed.
    pub pidfds: Vec<(u32, RawFd)>,
    /// The tasks that are in this cgroup (`Cgroup::id`) when the window begins, and those they start.
    pub cgroup: Option<u64>,
    /// Report single system calls slower than this.
    pub slow: Option<Duration>,
    /// Take user stacks of slow calls and of samples.
    pub user_stacks: bool,
}

/// Callbacks while the window runs.
pub trait Observer {
    /// About once a second: the time left.
    fn left(&mut self, _left: Duration) {}
    /// Everything is attached: the window has begun.
    fn begun(&mut self, _at: Instant) {}
    /// The window is over.
    fn ended(&mut self) {}
    /// Progress: what runs now. Called a few times a second in the window, and between the parts of the work before and after it:
    /// if it is not called for long, whyslow is stuck.
    fn step(&mut self, _doing: &'static CStr) {}
}

/// Record one window. `stop` ends it early.
pub fn record(plan: &Plan, stop: &AtomicBool, observer: &mut dyn Observer) -> Recording {
    observer.step(c"loading the probes");
    crate::open_files::raise_limit();
    crate::bpf::silence_libbpf();
    let before = cost::so_far();
    let mut seen = RawFiles { snapshots: Vec::new(), missing: Vec::new() };
    let mut files = Files::open(&plan.root);
    crate::bpf::map_sizes::halve(plan.budget.halvings);
    seen.missing.extend(plan.budget.notes(plan.needs_speeds).into_iter().map(MissingNote::from));
    let mut slots = Slots::default();
    let mut probes = Probes::load(&mut slots, plan, &mut seen.missing);

    observer.step(c"reading the kernel's files");
    files.read(Moment::Start, Duration::ZERO, &[], &mut seen);
    probes.begin(plan.follow.as_ref(), &mut seen.missing);
    probes.spare_owned(plan, &mut seen.missing);
    let (started_at, began, start_ns) = (host::now_rfc3339(), Instant::now(), host::monotonic_ns());
    probes.count(&mut seen.missing);
    probes.measure(plan, &mut seen.missing);
    observer.begun(began);
    let mut notes = Vec::new();
    let asked = pings::ask(plan, (began, start_ns), stop, observer, &mut notes, &mut |at, second| {
        let more = probes.poll(at, plan.window);
        if second {
            files.read(Moment::Second, at, &[], &mut seen);
        }
        more
    });
    seen.missing.append(&mut notes);
    let window = began.elapsed();
    observer.ended();
    observer.step(c"reading the probes' results");
    let traced = probes.end(window, &mut seen.missing);
    observer.step(c"reading the kernel's files again");
    files.read(Moment::End, window, &traced.busiest(BUSIEST), &mut seen);

    let own_pid = probes.own_pid();
    observer.step(c"looking up names");
    let lost_events = traced.lost.clone();
    let own_bpf_ns = traced.own_bpf_ns;
    let own_pids = [own_pid].into_iter().chain(traced.own.iter().copied()).collect();
    let mut tables = traced.into_tables(
        &files,
        probes.kallsyms(),
        Window { start_ns, ns: window.as_nanos() as u64 },
        &mut seen.missing,
    );
    tables.pings = asked.rows;
    groups::note(&plan.root, &mut tables, &mut seen.missing);
    files.note_limited(tables.cgroups.as_deref().unwrap_or_default());
    observer.step(c"reading files that may block");
    files.read_hazardous(window, HAZARD_DEADLINE, &mut seen);
    drop(probes);
    let watched = plan.follow.as_ref().map(|follow| watched(follow, &tables, &mut seen.missing));
    let spent = cost::so_far();
    let meta = Meta {
        format: FORMAT,
        whyslow: plan.version.clone(),
        started_at,
        window_ns: window.as_nanos() as u64,
        own_pids,
        own_cpu_ns: spent.cpu.saturating_sub(before.cpu).as_nanos() as u64,
        own_rss_bytes: spent.rss_bytes,
        own_bpf_ns,
        lost_events,
        interrupted: asked.interrupted,
        watched,
        pinged: asked.pinged,
        ..host::facts(&plan.root)
    };
    Recording { meta, snapshots: seen.snapshots, tables, missing: once_each(seen.missing), torn: None }
}

/// The processes that the trace followed: the requested ones, and all that they started, as far as rows show it.
fn watched(follow: &Follow, tables: &Tables, missing: &mut Vec<MissingNote>) -> Watched {
    let mut pids: BTreeSet<u32> = follow.pids.iter().copied().collect();
    let tasks = tables.tasks.as_deref().unwrap_or_default();
    let mut by_number: HashMap<u32, Vec<&Task>> = HashMap::new();
    tasks.iter().for_each(|task| by_number.entry(task.pid).or_default().push(task));
    // A child is found by its parent's row, or, if the parent ended before, by its parent's process id.
    loop {
        let is_ours = |task: &Task| pids.contains(&task.tgid) || pids.contains(&task.ppid);
        // Several processes may have had a number one after another: if not all of them are ours, the number does not show which one is meant. A
        // row that stands for several processes has number 0, which is also the parent of the first of all processes.
        let all_are = |pid: &u32| {
            let rows = by_number.get(pid).map_or(&[][..], Vec::as_slice);
            *pid != 0
                && rows.iter().all(|row| pids.contains(&row.ppid) || row.pid != row.tgid && is_ours(row))
        };
        let ours = tasks.iter().filter(|task| is_ours(task)).flat_map(|task| [task.pid, task.tgid]);
        let more: Vec<u32> = ours.filter(|pid| !pids.contains(pid) && all_are(pid)).collect();
        if more.is_empty() {
            let unclear = tasks
                .iter()
                .filter(|task| task.pid != 0 && is_ours(task) && !pids.contains(&task.pid))
                .count();
            missing.extend(strangers(unclear));
            break;
        }
        pids.extend(more);
    }
    Watched {
        subject: follow.subject.clone(),
        pids: pids.into_iter().collect(),
        command: None,
        slow_ns: follow.slow.map(|slow| slow.as_nanos() as u64),
    }
}

/// The note about children whose numbers do not show to which process they belong.
fn strangers(tasks: usize) -> Option<MissingNote> {
    let what = "some descendants of the followed processes";
    let why = || {
        format!(
            "{tasks} of them shared their process number with other tasks: more tasks were born than there are numbers"
        )
    };
    (tasks > 0).then(|| Missing::skipped(what, why()).into())
}

/// Wait until the window is over or `stop` is set; true if stopped. `is_over`: what ends the window instead of its length.
fn wait_out(
    plan: &Plan,
    began: Instant,
    stop: &AtomicBool,
    is_over: Option<&dyn Fn() -> bool>,
    observer: &mut dyn Observer,
    beat: &mut dyn FnMut(Duration, bool) -> bool,
) -> bool {
    let window = plan.window;
    let mut next_second = Duration::from_secs(1);
    observer.left(window);
    loop {
        let at = began.elapsed();
        if is_over.map_or(at >= window, |is_over| is_over()) {
            return false;
        }
        if stop.load(Ordering::Relaxed) {
            return true;
        }
        let second = at >= next_second;
        if second {
            next_second = at + pace(at);
            observer.left(window.saturating_sub(at));
        }
        observer.step(c"looking");
        let more = beat(at, second);
        let left = if is_over.is_some() { BEAT } else { window.saturating_sub(began.elapsed()) };
        let rest = if more { Duration::ZERO } else { BEAT.min(left) };
        if nap(rest, plan.ends_with) {
            return false;
        }
    }
}

/// The time until the next reading of the rows that are read "once a second": 24 kB each. In a long window they are read less often, so
/// that the kept data grows with the logarithm of its length.
fn pace(at: Duration) -> Duration {
    const EVERY_SECOND: Duration = Duration::from_secs(600);
    Duration::from_secs(1).max(at / EVERY_SECOND.as_secs() as u32)
}

/// Sleep, but let a signal (Ctrl-C) end it: `std::thread::sleep` would go on. True: the event that ends the window has come.
fn nap(time: Duration, ends_with: Option<RawFd>) -> bool {
    let mut wanted = libc::pollfd { fd: ends_with.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
    // Rounded up: a poll of 0 ms would spin.
    let patience = time.as_millis().saturating_add(1).min(60_000) as i32;
    // SAFETY: one local pollfd; a negative descriptor is ignored.
    let ready = unsafe { libc::poll(&raw mut wanted, 1, patience) };
    ready > 0 && wanted.revents != 0
}

fn once_each(mut notes: Vec<MissingNote>) -> Vec<MissingNote> {
    let mut known = std::collections::HashSet::new();
    notes.retain(|note| known.insert(note.text.clone()));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: u32, tgid: u32, ppid: u32) -> Task {
        Task { pid, tgid, ppid, ..Task::default() }
    }

    fn pids(of: u32, tasks: Vec<Task>) -> (Vec<u32>, usize) {
        let follow = Follow { pids: vec![of], ..Follow::default() };
        let mut missing = Vec::new();
        let pids = watched(&follow, &Tables { tasks: Some(tasks), ..Tables::default() }, &mut missing).pids;
        (pids, missing.len())
    }

    #[test]
    fn children_threads_and_what_they_start_are_followed() {
        let tree =
            vec![task(1, 1, 0), task(9, 9, 8), task(8, 8, 5), task(5, 5, 1), task(6, 5, 1), task(7, 7, 1)];
        assert_eq!(pids(5, tree), (vec![5, 6, 8, 9], 0));
    }

    #[test]
    fn a_row_that_stands_for_many_makes_nobody_else_ours() {
        let many = Task { folded: 40_000, ..task(30, 0, 5) };
        let host = [task(1, 1, 0), task(2, 2, 0), task(70, 0, 1), task(80, 80, 2)];
        assert_eq!(pids(5, [task(5, 5, 1), many].into_iter().chain(host).collect()), (vec![5, 30], 0));
    }

    #[test]
    fn a_number_that_a_stranger_had_too_is_not_ours() {
        let host = vec![task(5, 5, 1), task(30, 30, 5), task(30, 30, 7), task(31, 31, 30), task(7, 7, 1)];
        assert_eq!(pids(5, host), (vec![5], 1), "and that is reported");
        let ours = vec![task(5, 5, 1), task(6, 6, 5), task(30, 30, 5), task(30, 30, 6), task(31, 31, 30)];
        assert_eq!(pids(5, ours), (vec![5, 6, 30, 31], 0));
    }
}
