//! How much threads and processes spin, in samples, with bounds.

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::Missing;
use whyslow_model::table::{Sample, Spin, Task};

use super::calls::{About, Calls, How};
use super::places::{Places, seen};
use super::purpose::Purpose;
use crate::Evidence;
use crate::hashing::Table;
use crate::stacks::symbol;
use crate::stacks::syscalls::syscall_name;

/// The kernel thread of an io_uring that polls its submission queue, and what the thread does when the queue has an entry.
pub(crate) const SQ_THREAD: &str = "io_sq_thread";
/// Below these functions the kernel does what the task requested, by a call or by touching a page; in other samples an interrupt
/// or a switch stopped the task at any point of its work.
const ASKED: &[&str] = &[
    "do_syscall_64",
    "do_syscall_x64",
    "x64_sys_call",
    "entry_SYSCALL_64_after_hwframe",
    "do_fast_syscall_32",
    "do_int80_emulation",
    "exc_page_fault",
    "asm_exc_page_fault",
    "invoke_syscall",
    "el0_svc",
    "do_mem_abort",
    "ret_from_fork",
];
const SQ_WORK: &[&str] = &["io_submit_sqes", "io_do_iopoll", "io_issue_sqe"];
/// Of a spinner's samples, at most one in this many counts as unsure: most of its sleeps are real ones, and it would sleep
/// more often if it did not spin.
const UNSURE: u64 = 10;
/// Each bound holds in 99 of 100 windows: 2.33 standard deviations.
const Z: f64 = 2.33;

/// Samples of one thread or process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// All samples.
    pub all: u64,
    /// Samples in which it waited by spinning.
    pub spun: u64,
    /// Samples of a spinning thread in which it may have spun: in calls that threads wait with.
    pub unsure: u64,
}

impl Sum {
    /// The share that was spun, with bounds: chance (Wilson), and samples that may have been spinning, too.
    #[must_use]
    pub fn share(&self) -> (f64, f64, f64) {
        let of = |n: u64| n as f64 / self.all.max(1) as f64;
        let (low, _) = wilson(self.spun, self.all);
        let (_, high) = wilson(self.spun.saturating_add(self.unsure).min(self.all), self.all);
        (low, of(self.spun), high)
    }

    /// Interrupts hit a spinner as often while it spins as while it works.
    fn with_its_part_of(&self, interrupted: u64) -> u64 {
        let let_alone = self.all.saturating_sub(interrupted).max(1);
        let part = self.spun.min(let_alone) as f64 / let_alone as f64;
        self.spun.saturating_add((interrupted as f64 * part).round() as u64).min(self.all)
    }

    fn add(&mut self, other: &Sum) {
        self.all = self.all.saturating_add(other.all);
        self.spun = self.spun.saturating_add(other.spun);
        self.unsure = self.unsure.saturating_add(other.unsure);
    }
}

fn wilson(hits: u64, all: u64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 1.0);
    }
    let (n, p) = (all as f64, hits as f64 / all as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thread {
    /// Thread id.
    pub pid: u32,
    pub comm: String,
    /// Its samples.
    pub sum: Sum,
}

/// A process, with its threads that spin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub tgid: u32,
    /// The samples of all its threads.
    pub sum: Sum,
    /// The threads that spin, the one that spins most first.
    pub threads: Vec<Thread>,
    /// Where it spins, by samples: (what it does, function or file and offset, file), the most first.
    pub places: Vec<(String, String, String, u64)>,
    /// CPU time that one sample stands for.
    pub period_ns: u64,
}

/// Processes with at least one sample that shows spinning.
pub fn processes(ev: &Evidence<'_>) -> Result<Vec<Process>, Missing> {
    ev.spinning().map(<[Process]>::to_vec)
}

/// The same, without the cache.
pub(crate) fn spinning(ev: &Evidence<'_>) -> Result<Vec<Process>, Missing> {
    let rows = ev.spins()?;
    let samples = ev.samples()?;
    let sleeps = |task: &Task| (task.pid, task.voluntary);
    let sleeps: Table<u32, u64> = ev.tasks()?.iter().map(sleeps).collect();
    let mut of_process: BTreeMap<u32, Vec<&Spin>> = BTreeMap::new();
    for row in rows {
        of_process.entry(row.tgid).or_default().push(row);
    }
    let mut sampled: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        sampled.entry(sample.tgid).or_default().push(sample);
    }
    let period_ns = samples.iter().find(|s| s.count > 0).map_or(0, |s| s.ns / s.count);
    let window_ns = ev.recording().meta.window_ns;
    let about = About { period_ns, window_ns, ..About::default() };
    let one = |(tgid, samples): (&u32, &Vec<&Sample>)| {
        let rows = of_process.get(tgid).map_or(&[][..], Vec::as_slice);
        Tally::of(*tgid, samples, rows, &sleeps, about).process()
    };
    Ok(sampled.iter().map(one).filter(|process| process.sum.spun > 0).collect())
}

type Where = (String, String, String);

struct Tally {
    tgid: u32,
    period_ns: u64,
    threads: BTreeMap<u32, Thread>,
    /// Samples of threads in calls that threads wait with.
    waiting: BTreeMap<u32, u64>,
    /// ... in which they were interrupted, or whose call is known by number only: divided like the others.
    interrupted: BTreeMap<u32, u64>,
    /// ... of these, the ones known by number only: all may have been spinning.
    unknown: BTreeMap<u32, u64>,
    places: BTreeMap<Where, u64>,
}

impl Tally {
    fn of(tgid: u32, samples: &[&Sample], rows: &[&Spin], sleeps: &Table<u32, u64>, about: About) -> Tally {
        let mut tally = Tally {
            tgid,
            period_ns: about.period_ns,
            threads: BTreeMap::new(),
            waiting: BTreeMap::new(),
            interrupted: BTreeMap::new(),
            unknown: BTreeMap::new(),
            places: BTreeMap::new(),
        };
        for sample in samples {
            tally.note_sample(sample);
        }
        let seen = seen(rows);
        let loops = seen.waiting;
        tally.note_loops(&loops);
        let mut calls = BTreeMap::new();
        for row in rows {
            Calls::note(&mut calls, row);
        }
        for (pid, calls) in &calls {
            let sum = tally.threads.get(pid).map_or(Sum::default(), |thread| thread.sum);
            let computing = seen.computing.get(pid).copied().unwrap_or(0);
            let about = About { samples: sum.all, loops: sum.spun > 0, computing, ..about };
            let sleeps = sleeps.get(pid).copied().unwrap_or(0);
            tally.waiting.insert(*pid, calls.in_waiting_calls());
            tally.note_calls(*pid, calls, &About { sleeps, ..about }, rows, &loops);
        }
        tally
    }

    fn note_sample(&mut self, sample: &Sample) {
        let fresh = || Thread { pid: sample.pid, comm: sample.comm.clone(), sum: Sum::default() };
        let thread = self.threads.entry(sample.pid).or_insert_with(fresh);
        thread.sum.all = thread.sum.all.saturating_add(sample.count);
        let is = |names: &[&str]| sample.kernel.iter().any(|frame| names.contains(&symbol(frame)));
        if sample.bare {
            let unknown = self.unknown.entry(sample.pid).or_default();
            *unknown = unknown.saturating_add(sample.count);
        }
        if sample.bare || (!sample.kernel.is_empty() && !is(ASKED)) {
            let interrupted = self.interrupted.entry(sample.pid).or_default();
            *interrupted = interrupted.saturating_add(sample.count);
        }
        if is(&[SQ_THREAD]) && !is(SQ_WORK) {
            self.spun(sample.pid, sample.count, ("polls an io_uring", SQ_THREAD, "the kernel"));
        }
    }

    fn spun(&mut self, pid: u32, count: u64, (how, name, module): (&str, &str, &str)) {
        if let Some(thread) = self.threads.get_mut(&pid) {
            thread.sum.spun = thread.sum.spun.saturating_add(count).min(thread.sum.all);
        }
        let place = self.places.entry((how.to_owned(), name.to_owned(), module.to_owned())).or_default();
        *place = place.saturating_add(count);
    }

    fn note_loops(&mut self, loops: &Places) {
        for place in loops.values() {
            for (pid, count) in &place.by_thread {
                self.spun(*pid, *count, (in_words(place.purpose), &place.name, &place.module));
            }
        }
    }

    fn note_calls(&mut self, pid: u32, calls: &Calls, about: &About, rows: &[&Spin], loops: &Places) {
        for waits in calls.waits(about) {
            let row = rows.iter().rfind(|row| row.at <= waits.site && waits.site - row.at < WINDOW);
            let (name, module) = row.map_or(("", ""), |row| (row.place.as_str(), row.module.as_str()));
            let how = match waits.how {
                How::Yields => "yields the CPU again and again (sched_yield)".to_owned(),
                How::Empty(call) => {
                    format!("calls {} again and again, and finds nothing", syscall_name(call))
                }
                How::Clock => "reads a clock again and again".to_owned(),
            };
            let inside = |at: u64| loops.keys().any(|(from, to)| *from <= at && at <= *to);
            let wanted: BTreeSet<u64> = waits.user.iter().copied().filter(|at| !inside(*at)).collect();
            let user = calls.in_user_mode(&wanted);
            let spun = waits.kernel.saturating_add(user).saturating_add(waits.way);
            self.spun(pid, spun, (&how, name, module));
        }
    }

    fn process(mut self) -> Process {
        for thread in self.threads.values_mut().filter(|thread| thread.sum.spun > 0) {
            let interrupted = self.interrupted.get(&thread.pid).copied().unwrap_or(0);
            thread.sum.spun = thread.sum.with_its_part_of(interrupted);
            let left = thread.sum.all.saturating_sub(thread.sum.spun);
            let waiting = self.waiting.get(&thread.pid).copied().unwrap_or(0).min(thread.sum.all / UNSURE);
            let unknown = self.unknown.get(&thread.pid).copied().unwrap_or(0);
            thread.sum.unsure = waiting.saturating_add(unknown).min(left);
        }
        let mut sum = Sum::default();
        self.threads.values().for_each(|thread| sum.add(&thread.sum));
        let mut threads: Vec<Thread> = self.threads.into_values().filter(|t| t.sum.spun > 0).collect();
        threads.sort_by_key(|thread| (std::cmp::Reverse(thread.sum.spun), thread.pid));
        let mut places: Vec<_> = self.places.into_iter().map(|((a, b, c), n)| (a, b, c, n)).collect();
        places.sort_by(|a, b| b.3.cmp(&a.3).then_with(|| a.cmp(b)));
        Process { tgid: self.tgid, sum, threads, places, period_ns: self.period_ns }
    }
}

/// Bytes of code in a row.
const WINDOW: u64 = 256;

fn in_words(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Pauses => "waits in a loop with a pause instruction",
        Purpose::Polls => "reads the same memory again and again",
        Purpose::PollsCounted => {
            "reads the same memory a limited number of times before it does anything else"
        }
        Purpose::Clock => "reads the CPU's clock again and again",
        Purpose::Empty => "runs an empty loop",
        Purpose::Works(_) => "works",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_shared_out_as_the_rest_is() {
        let of = |spun| Sum { all: 100, spun, unsure: 0 }.with_its_part_of(20);
        assert_eq!((of(0), of(40), of(80)), (0, 50, 100));
    }

    #[test]
    fn bounds_hold_the_share_and_narrow_with_samples() {
        let (low, share, high) = Sum { all: 100, spun: 80, unsure: 5 }.share();
        assert!(low < share && share < high && high - low < 0.25, "{low} {share} {high}");
        let wide = Sum { all: 20, spun: 16, unsure: 0 }.share();
        let narrow = Sum { all: 2000, spun: 1600, unsure: 0 }.share();
        assert!(narrow.2 - narrow.0 < wide.2 - wide.0);
        assert_eq!(Sum::default().share(), (0.0, 0.0, 1.0));
    }
}
