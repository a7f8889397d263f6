//! CPU time that is burned waiting.
//!
//! Signal: the code in which busy threads were met, and what their system calls returned (`analyze/src/spin`). A risk with its
//! price; a cause where others waited for the CPUs that spinners had.

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
    question: "Does anybody burn CPU to wait?",
    what: "A thread that has nothing to do can sleep until it is woken, or look again and again whether there is something to \
           do: it spins. A top, the load and a program's own statistics show it as busy. Some spin for microseconds because waking \
           up costs as much; where many do, or where the one they wait for needs their CPU, it is lost time.",
    how: "On-CPU samples with registers and the code around them. A loop counts as waiting if its code shows it: it has a pause \
          instruction (near 20 % of its samples), or it stores nothing and carries nothing from turn to turn but counters (of \
          lock instructions the registers must be the same, too, from sample to sample), or it waits for a clock. System calls: \
          sched_yield over 1000 times a second and 10 times a real sleep; 80 % of a thread's samples in calls at one site that \
          returns nothing. The price is the spun share of the process's CPU time; its lower bound allows for the cost of \
          sleeping and waking instead. Reported from 2 % of one CPU and 10 % of the process on. Time lost by others: an ideal fair \
          scheduler with and without the spun time. That such a thread fills a CPU while the host looks idle is reported here, and \
          not a second time by full-thread.",
    limits: "What is spun by calling functions in a loop without a pause (try_lock) is not seen, nor is an interpreter's loop. Whether \
             the cure helps is to be judged by the user's latency: some spin on purpose and answer sooner for it. Real-time pollers \
             and those of io_uring are reported as such, and never as a cause.",
    sources: "Intel SDM, PAUSE; erl(1) +sbwt; GOMP_SPINCOUNT and OMP_WAIT_POLICY in libgomp's manual; sched_yield(2): \"intended for use \
              with real-time scheduling policies\"; io_uring/sqpoll.c; rabbitmq/rabbitmq-common#414.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: Some(Fold { of: &[full::FULL_THREAD], fold: full::fold }),
    shows: super::NOTHING,
};

/// Of one CPU. Less is the price of an idle loop here and there, and not worth a line. On a full host a spinner that yields
/// gets no more than that.
const NOTICEABLE: f64 = 0.02;
/// Of the process: locks that spin for a moment before they sleep take some percent of a busy program, and are worth it.
const OF_PROCESS: f64 = 0.1;
/// With fewer samples in it a loop may be a place that somebody came by: of so many, at most one in five is elsewhere by luck.
const ENOUGH: u64 = 12;
/// A thread is named if so much of its time is spun: all threads wait for a lock now and then.
const OF_THREAD: f64 = 0.1;
/// So many are named.
const NAMED: usize = 32;
/// Who sleeps instead of spinning pays for each wake-up, and works with colder caches: of what an Erlang VM spun on a full
/// host, a fifth did not come back.
const COST_OF_WAKING: f64 = 0.2;

/// A process that spins noticeably.
struct Spinner<'r> {
    process: Process,
    leader: Option<&'r Task>,
    /// As it is called in all of the report.
    called: String,
    runtime: Option<&'static Runtime>,
    /// CPU time of the process, by the kernel.
    used: Duration,
    /// How many threads it has.
    tasks: usize,
    /// On purpose: why we think so.
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
        // A process that ended before the end was counted has its samples only.
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

    /// Threads that spin much of their time.
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

    /// "4 threads *_scheduler spin"; of another's loss with the process: "thread poll of db (pid 7) spins".
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
        let judge = "Judge it by the answer times of what it serves, before and after, not by its CPU use alone: spinning may \
                     have bought shorter answers";
        match self.runtime {
            Some(runtime) => found.advice(format!("{}. {judge} (undo: the old setting)", runtime.knob)),
            None => found.advice(format!(
                "the code is its own: let it sleep until it is woken (a condition variable, a futex, an eventfd, a poll with a \
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

/// Bound to CPUs that are kept free of other tasks.
fn on_isolated_cpus(ev: &Evidence<'_>, task: &Task) -> bool {
    // CONFIG_NR_CPUS is 8192 at most on x86 and arm64.
    const MOST: u32 = 8192;
    // Without the file, or the mask, it is not known to be on purpose.
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
