//! Threads use CPU time to wait: they spin.
//!
//! Signal: the code in which busy threads were sampled, and the results of their system calls (`analyze/src/spin`). A risk with its
//! price in CPU time; a cause where other tasks waited for the CPUs that spinning threads used.
//!
//! On-CPU samples come with registers and with the code around them. A loop counts as waiting if its code shows it: it has a pause
//! instruction (near 20 % of its samples); or it stores nothing and carries nothing from turn to turn but counters (if it has lock
//! instructions, the registers must also be the same from sample to sample); or it waits for a clock. System calls count as waiting
//! with sched_yield over 1000 times a second and 10 times for each real sleep, or with 80 % of a thread's samples in calls at one site
//! that returns nothing. The price is the spun share of the process's CPU time. Its lower bound allows for the cost of sleeping and
//! waking instead.

use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::{Culprit, Finding, Missing, RuledOut, Share, Subject, SubjectKind, command, seconds};

use super::{Fold, Rule};
use crate::Evidence;
use crate::cpu::loss::FairShareModel;
use crate::cpu::spin::{Hints, Process, Runtime, SQ_THREAD, Thread, folded, place, processes, runtime};
use crate::parse::cpulist;

mod full;
#[cfg(test)]
#[path = "spin_tests.rs"]
mod tests;
mod victims;

pub const RULE: Rule = Rule {
    id: "spin",
    question: "Do threads spin: use CPU time to wait?",
    what: "A thread with nothing to do can sleep until it is woken, or it can spin: check again and again whether there is something to do. \
           top, the load and the program's own statistics show a spinning thread as busy. Spinning for microseconds can be cheaper than a \
           wake-up; with many spinning threads, or where the thread that they wait for needs their CPU, it is lost time.",
    how: "On-CPU samples with registers and the code around them, in loops or system calls that only wait. The price is the spun share of the \
          process's CPU time, reported from 2 % of one CPU and 10 % of the process on. Time lost by other tasks = the difference between an ideal \
          fair scheduler with and without the spun time, from 5 % of the window on.",
    limits: "A loop that spins by calling functions without a pause (try_lock): not seen. The loop of an interpreter: not seen. Spinning on \
             purpose: reported, though it may shorten answers; judge a change by the latency that users see. Real-time pollers and pollers of \
             io_uring: reported as such, and never as a cause. A spinning thread that fills a CPU while the host looks idle: reported here, and \
             not a second time by full-thread.",
    sources: "Intel SDM, PAUSE; erl(1) +sbwt; GOMP_SPINCOUNT and OMP_WAIT_POLICY in libgomp's manual; sched_yield(2): \"intended for use \
              with real-time scheduling policies\"; io_uring/sqpoll.c; rabbitmq/rabbitmq-common#414.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: Some(Fold { of: &[full::FULL_THREAD], fold: full::fold }),
    shows: super::NOTHING,
};

/// Share of one CPU. Less is the price of a few idle loops, and not worth a line. On a full host a spinning thread that yields
/// gets no more than this.
const NOTICEABLE: f64 = 0.02;
/// Share of the process's CPU time. Locks that spin for a moment before they sleep take some percent of a busy program, and are worth it.
const OF_PROCESS: f64 = 0.1;
/// With fewer samples a loop may be code that a thread only passed through: with 12, at most one in five is elsewhere by chance.
const ENOUGH: u64 = 12;
/// A thread is named if it spun for this share of its time: all threads wait for a lock now and then.
const OF_THREAD: f64 = 0.1;
/// Most threads that are named.
const NAMED: usize = 32;
/// A thread that sleeps instead of spinning pays for each wake-up, and works with colder caches. An Erlang VM on a full host gained
/// only four fifths of the CPU time that it had spun.
const COST_OF_WAKING: f64 = 0.2;

/// A process that spins noticeably.
struct Spinner<'r> {
    process: Process,
    leader: Option<&'r Task>,
    /// The name of the process in the whole report.
    called: String,
    runtime: Option<&'static Runtime>,
    /// CPU time of the process, as the kernel counts it.
    used: Duration,
    /// Number of threads.
    tasks: usize,
    /// Why we think that it spins on purpose.
    deliberate: Option<&'static str>,
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let spinners = spinners(ev, processes(ev)?)?;
    if spinners.is_empty() {
        return Ok(Vec::new());
    }
    let fair = ev.fair_shares()?;
    Ok(spinners.iter().map(|spinner| spinner.finding(ev, fair)).collect())
}

fn spinners<'r>(ev: &Evidence<'r>, all: Vec<Process>) -> Result<Vec<Spinner<'r>>, Missing> {
    let window = ev.window().as_secs_f64();
    let mut spinners = Vec::new();
    for process in all.into_iter().filter(|process| !ev.is_own(process.tgid, process.tgid)) {
        let spinner = Spinner::of(ev, process)?;
        let (_, share, _) = spinner.process.sum.share();
        let worth_it = spinner.spun().as_secs_f64() > NOTICEABLE * window && share > OF_PROCESS;
        if worth_it && spinner.process.sum.spun >= ENOUGH {
            spinners.push(spinner);
        }
    }
    spinners.sort_by_key(|spinner| (std::cmp::Reverse(spinner.spun()), spinner.process.tgid));
    Ok(spinners)
}

impl<'r> Spinner<'r> {
    fn of(ev: &Evidence<'r>, process: Process) -> Result<Self, Missing> {
        ev.tasks()?;
        ev.samples()?;
        let tasks = ev.threads(process.tgid);
        let frames = ev.samples_of(process.tgid).iter();
        let hints = Hints {
            places: process
                .places
                .iter()
                .map(|(_, name, module, _)| (name.as_str(), module.as_str()))
                .collect(),
            frames: frames.flat_map(|sample| &sample.user).map(String::as_str).collect(),
            threads: tasks.iter().map(|task| task.comm.as_str()).collect(),
        };
        let used: u64 = tasks.iter().map(|task| task.exec_ns).fold(0, u64::saturating_add);
        let sampled = process.sum.all.saturating_mul(process.period_ns);
        let runtime = runtime(&hints);
        let leader = tasks.iter().find(|task| task.pid == process.tgid).copied();
        let first = process.threads.first().map_or("", |thread| thread.comm.as_str());
        let called = ev.process_name(process.tgid, first);
        // A process that ended before the last count of CPU time has only samples.
        let used = Duration::from_nanos(if used > 0 { used } else { sampled });
        let deliberate = deliberate(ev, &process, tasks);
        Ok(Spinner { leader, called, runtime, used, tasks: tasks.len(), deliberate, process })
    }

    fn spun(&self) -> Duration {
        self.used.mul_f64(self.process.sum.share().1.clamp(0.0, 1.0))
    }

    fn name(&self) -> &str {
        let thread = self.process.threads.first().map_or("", |thread| thread.comm.as_str());
        self.leader.map_or(thread, |task| task.comm.as_str())
    }

    fn finding(&self, ev: &Evidence<'_>, fair: &FairShareModel<'_>) -> Finding {
        let (low, _, high) = self.process.sum.share();
        let of = |share: f64| self.used.mul_f64(share.clamp(0.0, 1.0));
        let (spun, low, high) = (self.spun(), of(low * (1.0 - COST_OF_WAKING)), of(high));
        let victims = self.deliberate.is_none().then(|| victims::of(self, ev, fair)).flatten();
        let tgid = self.process.tgid.to_string();
        let found = match &victims {
            Some((victim, loss)) => Finding::cause(RULE.id, victim.clone(), loss.likely)
                .share_of(loss.lived)
                .between(loss.low, loss.high)
                .raw_wait(loss.raw)
                .hop(victims::waited(victim, loss, &self.called)),
            None => Finding::risk(RULE.id, Subject::new(SubjectKind::Task, &tgid, &self.called)),
        };
        let mut culprit = Culprit::new(SubjectKind::Task, &tgid, &self.called);
        if let Some((_, name, module, _)) = self.process.places.first() {
            culprit = culprit.in_function(place(name, module));
            culprit.file = Some(module.clone()).filter(|module| !module.is_empty());
        }
        let title = self.title(victims.is_none(), spun, low, high);
        let found = found.titled(title).by(culprit).gives_back(spun, low, high);
        self.remedies(found)
    }

    /// Threads that spin for a large part of their time.
    fn named(&self) -> impl Iterator<Item = &Thread> {
        self.process.threads.iter().filter(|thread| thread.sum.share().1 > OF_THREAD).take(NAMED)
    }

    /// `is_subject`: the process is named before the title.
    fn title(&self, is_subject: bool, spun: Duration, low: Duration, high: Duration) -> String {
        let of = |time: Duration| Share::of(time.as_secs_f64(), self.used.as_secs_f64());
        let (how, name, module) =
            self.process.places.first().map_or(("", "", ""), |(how, name, module, _)| {
                (how.as_str(), name.as_str(), module.as_str())
            });
        let purpose = self.deliberate.map_or(String::new(), |why| format!(" by configuration ({why})"));
        let each = if self.named().count() == 1 { "it" } else { "each" };
        let whose = self.runtime.map_or(String::new(), |runtime| format!("; this is {}", runtime.name));
        format!(
            "{}{purpose}: {} ({}, between {} and {}) of its {} of CPU time went into waiting; {each} {how}, in {}{whose}",
            self.who_spins(is_subject),
            seconds(spun),
            of(spun),
            of(low),
            of(high),
            seconds(self.used),
            place(name, module),
        )
    }

    /// "4 threads *_scheduler spin". If another process is the victim, with the name of the process: "thread poll of db (pid 7) spins".
    fn who_spins(&self, is_subject: bool) -> String {
        let (name, pid) = (self.name(), self.process.tgid);
        let threads: Vec<&Thread> = self.named().collect();
        let verb = if threads.len() == 1 { "spins" } else { "spin" };
        let are_one = threads.len() == 1 && self.tasks == 1;
        match (is_subject, are_one) {
            (true, true) => format!("it {verb}"),
            (true, false) => format!("{} {verb}", folded(&threads, name)),
            (false, true) => format!("{} (pid {pid}) {verb}", self.called),
            (false, false) => format!("{} of {} (pid {pid}) {verb}", folded(&threads, name), self.called),
        }
    }

    fn remedies(&self, found: Finding) -> Finding {
        let tgid = self.process.tgid;
        let thread = self.process.threads.first().map_or(tgid, |thread| thread.pid);
        let names: Vec<&str> = self.named().map(|thread| thread.comm.as_str()).collect();
        let found = found
            .check(
                format!("the threads that spin: {}", names.join(", ")),
                command!("top -H -b -n 1 -p {} | head -30", tgid),
            )
            .check(
                "the code that one of them runs",
                command!(
                    "perf record -q -N -o - -t {} -- sleep 5 | perf report -q --stdio -i - | head -30",
                    thread
                ),
            );
        let judge = "Judge the change by the answer times of this service before and after, not by its CPU time alone: spinning may \
                     have shortened the answers";
        match self.runtime {
            Some(runtime) => found.advice(format!("{}. {judge} (undo: the old setting)", runtime.knob)),
            None => found.advice(format!(
                "the program's own code spins: let it sleep until it is woken (a condition variable, a futex, an eventfd, a poll with a \
                 timeout), at least after some tries. {judge}"
            )),
        }
    }
}

fn deliberate(ev: &Evidence<'_>, process: &Process, tasks: &[&Task]) -> Option<&'static str> {
    if process.places.first().is_some_and(|(_, place, ..)| place == SQ_THREAD) {
        return Some("SQPOLL");
    }
    let first = process.threads.first()?;
    let task = tasks.iter().find(|task| task.pid == first.pid)?;
    match task.policy {
        // sched(7): 1 is FIFO, 2 RR, 6 DEADLINE.
        1 | 2 | 6 => Some("real-time priority"),
        _ if on_isolated_cpus(ev, task) => Some("isolated CPUs"),
        _ => None,
    }
}

/// Whether the task is bound to CPUs that are kept free of other tasks.
fn on_isolated_cpus(ev: &Evidence<'_>, task: &Task) -> bool {
    // CONFIG_NR_CPUS is 8192 at most on x86 and arm64.
    const MOST: u32 = 8192;
    // Without the file or the mask it is not known whether the task spins on purpose.
    let Ok(isolated) = ev.file("sys/devices/system/cpu/isolated", cpulist::parse) else { return false };
    let Ok(allowed) = cpulist::parse(&task.allowed) else { return false };
    let mut allowed = (0..MOST).filter(|cpu| allowed.contains(*cpu)).peekable();
    allowed.peek().is_some() && allowed.all(|cpu| isolated.contains(cpu))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let all = processes(ev)?;
    let spun = all.iter().map(|p| p.sum.spun.saturating_mul(p.period_ns)).fold(0, u64::saturating_add);
    if !spinners(ev, all)?.is_empty() {
        return Ok(None);
    }
    let samples: u64 = ev.samples()?.iter().map(|s| s.count).fold(0, u64::saturating_add);
    let evidence = format!(
        "no process spins noticeably ({} of CPU time in loops that wait, of {samples} samples)",
        seconds(Duration::from_nanos(spun))
    );
    Ok(Some(RuledOut { what: "busy waiting".into(), evidence }))
}
