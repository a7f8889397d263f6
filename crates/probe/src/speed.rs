//! How fast does each CPU run? A thread goes from CPU to CPU and runs loops of known length, 4 ms per CPU and visit.
//!
//! The thread has whyslow's own priority, the highest that an ordinary task can have: like any task it waits until the running task has used
//! up its time slice, and then gets a slice itself. At a lower priority whyslow's own work would keep it from a full CPU.
//! The window never waits for the thread: if it gets no CPU (because of a real-time task that never yields), the window ends without it.

mod cycles;
mod turn;
pub mod which;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use whyslow_model::table::Speed;
use whyslow_model::{Missing, MissingNote};

use crate::bpf::tasks::tasks_one;
use crate::{host, priority};
use cycles::{Cycles, Events};
use turn::Clocks;

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::CpuSpeed.word();
/// The name of its counters.
pub const CYCLES: &str = "busy frequency";

/// Visits of a CPU in a window: three in each half, so that one visit that a burst of interrupts disturbed does not decide.
const VISITS: u32 = 6;
/// Loops at each visit: the first may run before the clock frequency has risen.
const LOOPS: usize = 2;
/// The least time of one visit: two loops of 2 ms, and the move to the CPU.
const VISIT: Duration = Duration::from_micros(4_500);
/// More threads than this would be a load of their own.
const MOST_THREADS: usize = 16;
/// Visits of a window without a known end: after 100 ms, 200 ms, 400 ms ...
const FIRST_OF_ENDLESS: Duration = Duration::from_millis(100);
const ENDLESS: Duration = Duration::from_secs(24 * 3600);

/// The threads at work.
pub struct Speeds {
    shared: Arc<Shared>,
}

struct Shared {
    rows: Mutex<Vec<Speed>>,
    notes: Mutex<Vec<Missing>>,
    stop: Mutex<bool>,
    bell: Condvar,
    /// The threads that still live.
    threads: Mutex<Vec<libc::pid_t>>,
}

impl Shared {
    /// whyslow does not end before its last thread, and a reader of its answer from a pipe waits for that. A thread that had just moved
    /// to a busy CPU was seen ready there for seconds without running (Linux 6.18, in affine_move_task, at load 20). At
    /// the lowest real-time priority it runs now, sees that it must stop, and ends.
    fn hurry(&self) {
        let first = libc::sched_param { sched_priority: 1 };
        for thread in locked(&self.threads).iter() {
            // SAFETY: plain numbers; the thread lives, because it removes itself from the list. If refused, it ends when it can.
            unsafe { libc::sched_setscheduler(*thread, libc::SCHED_FIFO, &raw const first) };
        }
    }

    /// Put this thread on the list until the returned value is dropped.
    fn enlist(&self) -> Enlisted<'_> {
        // SAFETY: no arguments, cannot fail.
        let thread = unsafe { libc::gettid() };
        locked(&self.threads).push(thread);
        Enlisted { shared: self, thread }
    }
}

/// A thread on the list.
struct Enlisted<'a> {
    shared: &'a Shared,
    thread: libc::pid_t,
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        locked(&self.shared.threads).retain(|thread| *thread != self.thread);
    }
}

/// If a thread panicked with this lock, the measured data are still valid.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Speeds {
    /// The window begins. `tasks`: the tasks that live now. `all`: also measure CPUs that other processes have for themselves.
    pub fn begin(window: Duration, tasks: &[tasks_one], all: bool) -> Result<Self, Missing> {
        let root = Path::new("/");
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            let needs = "x86-64 or arm64".to_owned();
            return Err(Missing::NotInKernel { what: WHAT.to_owned(), needs });
        }
        let mut cpus = host::online_cpus(root);
        cpus.truncate(8192);
        let spared = if all { BTreeMap::new() } else { which::spared(root, tasks) };
        let cycle_exact = turn::is_cycle_exact();
        let row = |cpu: &u32| Speed {
            cpu: *cpu,
            skipped: spared.get(cpu).cloned(),
            loops: Vec::with_capacity(VISITS as usize * LOOPS),
            cycle_exact,
            ..Speed::default()
        };
        let shared = Arc::new(Shared {
            rows: Mutex::new(cpus.iter().map(row).collect()),
            notes: Mutex::new(Vec::new()),
            stop: Mutex::new(false),
            bell: Condvar::new(),
            threads: Mutex::new(Vec::new()),
        });
        let measured: Vec<u32> = cpus.into_iter().filter(|cpu| !spared.contains_key(cpu)).collect();
        let threads = threads(measured.len(), window);
        let (origin_ns, goes_first) = (host::monotonic_ns(), priority::is_raised_by_niceness());
        for first in 0..threads.min(measured.len()) {
            let cpus = measured.iter().copied().skip(first).step_by(threads).collect();
            let round = Round { shared: shared.clone(), cpus, window, origin_ns, goes_first };
            let named = std::thread::Builder::new().name("whyslow-speed".to_owned());
            named.spawn(move || round.run()).map_err(|err| Missing::broken(WHAT, err))?;
        }
        Ok(Speeds { shared })
    }

    /// The window ends: what was measured until now.
    pub fn end(self, missing: &mut Vec<MissingNote>) -> Vec<Speed> {
        *locked(&self.shared.stop) = true;
        self.shared.bell.notify_all();
        self.shared.hurry();
        missing.extend(std::mem::take(&mut *locked(&self.shared.notes)).into_iter().map(MissingNote::from));
        let mut rows = std::mem::take(&mut *locked(&self.shared.rows));
        for row in rows.iter_mut().filter(|row| row.loops.is_empty()) {
            row.skipped.get_or_insert_with(|| "whyslow's loops did not get to run on it in time".to_owned());
        }
        rows
    }
}

/// So many threads that a round of visits ends long before the next begins.
fn threads(cpus: usize, window: Duration) -> usize {
    let fit = (window / 2 / VISITS).as_micros() / VISIT.as_micros();
    cpus.div_ceil(usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, 64)).clamp(1, MOST_THREADS)
}

/// When visit `at` is due; `None`: there are no more.
fn moment(at: u32, window: Duration) -> Option<Duration> {
    if window >= ENDLESS {
        return FIRST_OF_ENDLESS.checked_mul(1u32.checked_shl(at).filter(|n| *n > 0)?);
    }
    (at < VISITS).then(|| window * (2 * at + 1) / (2 * VISITS))
}

/// The work of one thread.
struct Round {
    shared: Arc<Shared>,
    cpus: Vec<u32>,
    window: Duration,
    origin_ns: u64,
    goes_first: bool,
}

impl Round {
    fn run(self) {
        let _enlisted = self.shared.enlist();
        if self.goes_first {
            priority::go_first();
        }
        let (clocks, events) = (Clocks::open(), Events::of(Path::new("/")));
        let mut counters: BTreeMap<u32, (Cycles, (u64, u64))> = BTreeMap::new();
        for at in 0.. {
            let Some(moment) = moment(at, self.window) else { return };
            if self.wait_until(moment) {
                return;
            }
            for cpu in &self.cpus {
                if *locked(&self.shared.stop) {
                    return;
                }
                if let Err(err) = go_to(*cpu) {
                    self.note(*cpu, |row| row.skipped = Some(format!("it may not be used: {err}")));
                    continue;
                }
                if at == 0 {
                    self.arrive(*cpu, events, &mut counters);
                }
                self.visit(*cpu, &clocks, counters.get_mut(cpu));
            }
        }
    }

    /// True: the window is over.
    fn wait_until(&self, moment: Duration) -> bool {
        let gone = Duration::from_nanos(host::monotonic_ns().saturating_sub(self.origin_ns));
        let stop = locked(&self.shared.stop);
        let left = moment.saturating_sub(gone);
        let waited = self.shared.bell.wait_timeout_while(stop, left, |stop| !*stop);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn note(&self, cpu: u32, what: impl FnOnce(&mut Speed)) {
        if let Some(row) = locked(&self.shared.rows).iter_mut().find(|row| row.cpu == cpu) {
            what(row);
        }
    }

    /// Read what only a thread on that CPU can read without an interrupt: `rdmsr_on_cpu` of the own CPU is a plain call.
    fn arrive(&self, cpu: u32, events: Events, counters: &mut BTreeMap<u32, (Cycles, (u64, u64))>) {
        match Cycles::open(events, cpu) {
            Ok(mut cycles) => {
                if let Some(first) = cycles.read() {
                    counters.insert(cpu, (cycles, first));
                }
            }
            Err(err) => locked(&self.shared.notes).push(no_counters(&err)),
        }
        let folder = Path::new("/sys/devices/system/cpu");
        let policy = folder.join(format!("cpufreq/policy{cpu}/energy_performance_preference"));
        let bias = folder.join(format!("cpu{cpu}/power/energy_perf_bias"));
        let (preference, bias) = (word(&policy), word(&bias));
        self.note(cpu, |row| (row.preference, row.bias) = (preference, bias));
    }

    fn visit(&self, cpu: u32, clocks: &Clocks, counters: Option<&mut (Cycles, (u64, u64))>) {
        let loops: [_; LOOPS] = std::array::from_fn(|_| clocks.turn(self.origin_ns));
        let counted = counters.and_then(|(cycles, first)| {
            let now = cycles.read()?;
            Some((now.0.saturating_sub(first.0), now.1.saturating_sub(first.1)))
        });
        self.note(cpu, |row| {
            row.loops.extend(loops);
            if let Some((busy, reference)) = counted {
                (row.busy_cycles, row.reference_cycles) = (busy, reference);
            }
        });
    }
}

/// A file of one word.
fn word(file: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(file).ok()?.take(64).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned()).filter(|word| !word.is_empty())
}

fn no_counters(err: &std::io::Error) -> Missing {
    match err.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Missing::NotAllowed {
            what: CYCLES.to_owned(),
            way_out: crate::rights::Rights::own().way_out_for_perf(),
        },
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL) => Missing::NotInKernel {
            what: CYCLES.to_owned(),
            needs: "a CPU with APERF and MPERF, or with a performance unit: few virtual CPUs have either"
                .to_owned(),
        },
        _ => Missing::broken(CYCLES, err),
    }
}

/// Bind this thread to `cpu`.
fn go_to(cpu: u32) -> std::io::Result<()> {
    let mut mask = [0u64; 128]; // 8192 CPUs, the most that x86 and arm64 can have
    let word = mask.get_mut(cpu as usize / 64).ok_or(std::io::ErrorKind::InvalidInput)?;
    *word = 1 << (cpu % 64);
    // SAFETY: the mask is as long as we say; 0 is this thread.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&mask), mask.as_ptr()) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Whether loops can run: on how many of the online CPUs, and whether cycles can be counted there.
pub fn ask() -> (Result<String, String>, Result<String, String>) {
    let asked = std::thread::spawn(|| {
        let cpus = host::online_cpus(Path::new("/"));
        let usable = cpus.iter().filter(|cpu| go_to(**cpu).is_ok()).count();
        let speed = match usable {
            0 => Err("no CPU may be chosen".to_owned()),
            n => Ok(format!("loops can run on {n} of {} CPUs", cpus.len())),
        };
        let cycles = cpus.iter().find(|cpu| go_to(**cpu).is_ok()).map(|cpu| {
            Cycles::open(Events::of(Path::new("/")), *cpu).map_err(|err| no_counters(&err).to_string())
        });
        let cycles = cycles.unwrap_or_else(|| Err("no CPU may be chosen".to_owned()));
        (speed, cycles.map(|_| "cycles can be counted while a CPU is busy".to_owned()))
    });
    asked.join().unwrap_or_else(|_| (Err("the thread died".to_owned()), Err("the thread died".to_owned())))
}

#[cfg(test)]
#[path = "speed_tests.rs"]
mod tests;
