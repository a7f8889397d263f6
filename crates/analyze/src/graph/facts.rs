//! A recording's rows, sorted for questions: who did what when, who had which CPU, who held which lock.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use whyslow_model::Recording;
use whyslow_model::table::{Cgroup, Task};
use whyslow_model::timeline::{Hold, HoldSeen, Run, Span};
use whyslow_model::wait::{Detail, Reason};

use super::brief::Siblings;
use super::children::Kin;
use super::did::Did;
use super::ended::Ended;
use super::growing::Growing;
use super::in_flight::Answer;
use super::ipi_waits::IpiWaits;
use super::names::{Called, DetailId, Details, Name, Names, folded};
use super::node::{Node, Rests};
use super::onward::Onward;
use super::other_ends::{OtherEnd, lasting};
use super::passed_on::{Hand, Word};
use super::patience::{Wakes, is_look};
use super::short_runs::ShortRuns;
use super::timeline::Line;
use super::turns::{LockId, Turn};
use super::who_answers::Stuck;
use crate::hashing::{Table, with_room};
use crate::names::Names as GroupNames;
use crate::stacks::doing::OnCpu;
use crate::wait_reasons::{Class, Stacks, WaitKind};

/// Windows are shorter (13 days).
const LONGEST_WINDOW: u64 = 1 << 50;

/// Garbage beyond it cannot overflow a sum over all rows, all tasks or all that are watched.
fn longest_window(rec: &Recording) -> u64 {
    let tables = &rec.tables;
    let watched = rec.meta.watched.as_ref().map_or(0, |watched| watched.pids.len());
    let summed =
        tables.spans.as_ref().map_or(0, Vec::len).max(tables.tasks.as_ref().map_or(0, Vec::len)).max(watched);
    LONGEST_WINDOW.min(u64::MAX / (summed as u64).saturating_mul(2).max(1))
}

/// One tenth: a smaller part of a wait, or of the time of a thread, changes no answer.
pub(super) const SMALL_PART: u64 = 10;

/// Tells what a wait was for.
pub(super) type Classify = fn(&Span, &Stacks<'_>) -> WaitKind;

/// What a wait was for, with its name's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub reason: Reason,
    pub what: DetailId,
    pub class: Class,
}

/// A task at some time: a thread may change its name, and a worker its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who {
    pub key: Called,
    pub shown: Called,
    pub pid: u32,
}

/// What is behind a wait, and what is to be known about it.
pub(super) type Behind = (Rc<[Node]>, u8);

/// The wait-for graph of a recording.
pub(super) struct Graph<'r> {
    pub rec: &'r Recording,
    pub spans: &'r [Span],
    pub stacks: Rc<Stacks<'r>>,
    pub window: u64,
    pub lines: Table<u32, Line>,
    pub tasks: Table<u32, &'r Task>,
    pub kin: Kin,
    pub groups: Table<u64, &'r Cgroup>,
    pub names: Names,
    pub details: Details,
    pub rests: Rests,
    /// Pieces of timelines that may still be looked at: bounds the work, whatever the rows.
    pub fuel: Cell<u64>,
    /// What was found to be behind a whole wait, by its row.
    pub known: RefCell<Table<usize, Behind>>,
    /// Whom those spin for that asked other CPUs.
    pub ipi_waits: IpiWaits<'r>,
    /// When each ended waits of others.
    pub wakes: Wakes,
    /// The wait of a thread that lasts when the window ends, where it is known who has the other end.
    pub lasting: Table<u32, usize>,
    /// Who is there; found when it is asked for.
    pub other_ends: OnceCell<Table<usize, OtherEnd>>,
    /// What came to processes that had asked; found when it is asked for.
    pub answers: OnceCell<Table<u32, Vec<Answer>>>,
    /// What processes asked of others; found when it is asked for.
    pub onward: OnceCell<Table<u32, Vec<Onward<'r>>>>,
    /// Those that ended, by name: of many no rows are left.
    pub ended: Ended<'r>,
    /// The quota that binds first, by group; found when it is asked for.
    pub binding: OnceCell<Table<u64, u64>>,
    /// What cgroups are called.
    pub group_names: OnceCell<Rc<GroupNames<'r>>>,
    /// Who had CPUs in short runs; found when it is asked for.
    pub short_runs: OnceCell<ShortRuns>,
    /// The wait of each process that waits at another epoll than its clients'; found when it is asked for.
    pub parked: OnceCell<Table<u32, usize>>,
    /// When waiters for words of user space were woken by who let them go; found when it is asked for.
    pub let_go: OnceCell<Table<(u32, u64), Vec<u64>>>,
    /// Words of user space that are locks; found when it is asked for.
    pub passed_on: OnceCell<Table<Word, Vec<Hand>>>,
    /// Threads that wake the waiters at a word; found when it is asked for.
    pub wakers: OnceCell<Table<Word, (Option<usize>, usize)>>,
    /// Turns at locks; found when it is asked for.
    pub turns: OnceCell<Table<LockId, Vec<Turn>>>,
    /// What chains may grow with; found when it is asked for.
    pub growing: OnceCell<Growing>,
    /// Threads that are stuck, by process, as far as they were asked for.
    pub stuck: RefCell<Table<u32, Rc<[Stuck]>>>,
    classify: Classify,
    /// Samples.
    pub on_cpu: Rc<OnCpu<'r>>,
    runs: Table<u32, LongRuns>,
    /// Runs that may still be looked at: any number of waits may be for one CPU.
    looks: Cell<usize>,
    /// Looks ran short: what was found then may be too little.
    cut: Cell<bool>,
    owner_samples: Table<u64, Vec<OwnerSample>>,
    comms: Table<u32, &'r str>,
    kinds: RefCell<Vec<Option<Kind>>>,
    folds: RefCell<Table<Name, Name>>,
    whos: RefCell<Vec<Option<Who>>>,
    /// Threads by their last names, without work, as they were asked for.
    threads: RefCell<Table<u32, Who>>,
    /// What short waits like that of a row are called.
    pub shorts: RefCell<Table<usize, DetailId>>,
    /// What each thread did on a CPU, as it was asked for.
    pub did: RefCell<Table<u32, Rc<Did>>>,
    /// The same of those that lived for a short time, together; found when it is asked for.
    pub brief: OnceCell<Table<Siblings, Rc<Did>>>,
}

impl<'r> Graph<'r> {
    /// Of this recording; `None` if there are no timelines in it.
    pub fn of(rec: &'r Recording, classify: Classify) -> Option<Self> {
        let samples = rec.tables.samples.as_deref().unwrap_or_default();
        Graph::with(rec, classify, Rc::new(Stacks::in_recording(rec)), Rc::new(OnCpu::of(samples)))
    }

    /// The same, with the recording's stacks and samples.
    pub fn with(
        rec: &'r Recording,
        classify: Classify,
        stacks: Rc<Stacks<'r>>,
        on_cpu: Rc<OnCpu<'r>>,
    ) -> Option<Self> {
        let tables = &rec.tables;
        let spans = tables.spans.as_deref()?;
        let all_tasks = tables.tasks.as_deref().unwrap_or_default();
        let window = rec.meta.window_ns.min(longest_window(rec));
        let tasks: Table<u32, &Task> = tables.tasks.iter().flatten().map(|t| (t.pid, t)).collect();
        let mut comms: Table<u32, &str> = tables.holds.iter().flatten().map(|h| (h.pid, &*h.comm)).collect();
        comms.extend(spans.iter().map(|s| (s.pid, &*s.comm)));
        comms.extend(tasks.iter().map(|(pid, t)| (*pid, &*t.comm)));
        let names = Names::default();
        let details = Details::default();
        let rests = Rests::of(Called { comm: names.id(""), work: None }, &details);
        let lines = lines(spans, &tasks, window);
        Some(Graph {
            rec,
            spans,
            stacks,
            window,
            ended: Ended::of(all_tasks, &lines),
            lines,
            kin: Kin::of(all_tasks, &tasks),
            tasks,
            groups: tables.cgroups.iter().flatten().rev().map(|group| (group.id, group)).collect(),
            names,
            details,
            rests,
            fuel: Cell::new(0),
            known: RefCell::default(),
            ipi_waits: IpiWaits::of(rec),
            wakes: Wakes::of(spans),
            lasting: lasting(spans),
            other_ends: OnceCell::new(),
            answers: OnceCell::new(),
            onward: OnceCell::new(),
            binding: OnceCell::new(),
            group_names: OnceCell::new(),
            short_runs: OnceCell::new(),
            parked: OnceCell::new(),
            let_go: OnceCell::new(),
            passed_on: OnceCell::new(),
            wakers: OnceCell::new(),
            turns: OnceCell::new(),
            growing: OnceCell::new(),
            stuck: RefCell::default(),
            classify,
            on_cpu,
            runs: runs(tables.runs.as_deref().unwrap_or_default()),
            looks: Cell::new(MOST_LOOKS),
            cut: Cell::new(false),
            owner_samples: owner_samples(tables.holds.as_deref().unwrap_or_default(), spans, window),
            comms,
            kinds: RefCell::new(vec![None; spans.len()]),
            folds: RefCell::default(),
            whos: RefCell::new(vec![None; spans.len()]),
            threads: RefCell::default(),
            shorts: RefCell::default(),
            did: RefCell::default(),
            brief: OnceCell::new(),
        })
    }

    /// For the next question: as many pieces and runs may be looked at as for any. What was cut short is forgotten.
    pub fn refuel(&self, fuel: u64) {
        let cut = self.fuel.replace(fuel) == 0 || self.cut.replace(false);
        if cut {
            self.known.borrow_mut().clear();
        }
        self.looks.set(MOST_LOOKS);
    }

    /// What the wait of a row was for. Whoever stands in a kernel lock's queue waits for its holder.
    pub fn kind(&self, row: usize) -> Kind {
        if let Some(Some(kind)) = self.kinds.borrow().get(row) {
            return *kind;
        }
        let Some(span) = self.spans.get(row) else {
            let what = self.details.id(Detail::Nothing);
            return Kind { reason: Reason::Unknown, what, class: Class::Unknown };
        };
        let WaitKind { mut reason, detail, mut class } = (self.classify)(span, &self.stacks);
        // An address says more than that nobody was seen.
        let unseen = || self.unseen_end_of_looks(row).filter(|_| class == Class::Timer);
        let look = if is_look(span) { self.end_of_looks(row).or_else(unseen) } else { None };
        if span.lock.is_some() && class == Class::Unknown {
            (reason, class) = (Reason::Lock, Class::Lock);
        }
        let own = Kind { reason, what: self.details.id(detail), class };
        let own = self.at_another_epoll(span, own).unwrap_or(own);
        let alike = if class == Class::Unknown { self.alike(row, span) } else { self.as_lock(row, own) };
        let look = look.or_else(|| self.lasting_look_of_client(row).filter(|_| class == Class::Timer));
        let kind = look.map(|end| self.kind(end)).or(alike).unwrap_or(own);
        if let Some(slot) = self.kinds.borrow_mut().get_mut(row) {
            *slot = Some(kind);
        }
        kind
    }

    /// Whose row it is.
    pub fn who(&self, row: usize, span: &Span, work: Option<&str>) -> Who {
        if work.is_some() && span.work.is_none() {
            return self.called(span.pid, &span.comm, work);
        }
        if let Some(Some(who)) = self.whos.borrow().get(row) {
            return *who;
        }
        let who = self.called(span.pid, &span.comm, span.work.as_deref());
        if let Some(slot) = self.whos.borrow_mut().get_mut(row) {
            *slot = Some(who);
        }
        who
    }

    /// A thread by its last name.
    pub fn who_is(&self, pid: u32, work: Option<&str>) -> Who {
        if work.is_none()
            && let Some(who) = self.threads.borrow().get(&pid)
        {
            return *who;
        }
        let who = match self.comms.get(&pid) {
            Some(comm) => self.called(pid, comm, work),
            None => {
                let called = |comm: &str| Called { comm: self.names.id(comm), work: None };
                Who { key: called("task"), shown: called(&format!("task {pid}")), pid }
            }
        };
        if work.is_none() {
            self.threads.borrow_mut().insert(pid, who);
        }
        who
    }

    /// No task.
    pub fn no_one(&self) -> Who {
        Who { key: self.rests.nobody, shown: self.rests.nobody, pid: 0 }
    }

    /// How a thread is called whose name this is, or was.
    pub fn called(&self, pid: u32, comm: &str, work: Option<&str>) -> Who {
        match self.stacks.names().called(pid, comm) {
            Some(own) => {
                let id = |name: &str| Called { comm: self.names.id(name), work: None };
                Who { key: id(&own.key), shown: id(&own.name), pid }
            }
            None => self.plain(pid, comm, work),
        }
    }

    /// By the kernel's name alone.
    pub fn plain(&self, pid: u32, comm: &str, work: Option<&str>) -> Who {
        let shown = self.names.id(comm);
        let known = self.folds.borrow().get(&shown).copied();
        let key = known.unwrap_or_else(|| {
            let key = self.names.id(&folded(comm));
            self.folds.borrow_mut().insert(shown, key);
            key
        });
        let work = work.map(|work| self.names.id(work));
        Who { key: Called { comm: key, work }, shown: Called { comm: shown, work }, pid }
    }

    /// Who had a CPU for long, in order, around `from..to`. `None`: too many rows were looked at.
    pub fn runs(&self, cpu: u32, from: u64, to: u64) -> Option<&[LongRun]> {
        let all = self.runs.get(&cpu).map_or(&[][..], |runs| &runs.all);
        let begin = all.partition_point(|run| run.to <= from);
        let after = all.get(begin..).unwrap_or_default();
        // Counted, as all of them are looked at anyway: to halve the way to the last meets a row that is in no cache each time.
        // No further than may still be looked at: with that spent, each further question ends at once.
        let most = self.looks.get();
        let count = after.iter().take(most.saturating_add(1)).take_while(|run| run.from < to).count();
        if self.spend_looks(count) { after.get(..count) } else { None }
    }

    /// From when to when a thread had the CPU that it had at that time; runs below half a millisecond have no rows.
    pub fn run_at(&self, pid: u32, at: u64) -> Option<(u64, u64)> {
        let mut runs = self.runs.keys().filter_map(|cpu| self.runs(*cpu, at, at.saturating_add(1))?.first());
        runs.find(|run| run.pid == pid).map(|run| (run.from, run.to))
    }

    /// Look at so many runs, or sums of runs. False: too much was looked at.
    pub fn spend_looks(&self, many: usize) -> bool {
        let left = self.looks.get().checked_sub(many);
        self.looks.set(left.unwrap_or(0));
        if left.is_none() {
            self.cut.set(true);
        }
        left.is_some()
    }

    /// The longest run on a CPU: where all are short, none needs to be looked for.
    pub fn longest_run(&self, cpu: u32) -> u64 {
        self.runs.get(&cpu).map_or(0, |runs| runs.longest)
    }

    /// Whose run it is, and the function at work in it.
    pub fn who_ran(&self, run: &LongRun) -> (Who, Option<Name>) {
        *run.who.get_or_init(|| (self.who_is(run.pid, None), self.did(run.pid).function()))
    }

    /// Who was seen to hold a lock, in order.
    pub fn owner_samples(&self, lock: u64) -> &[OwnerSample] {
        self.owner_samples.get(&lock).map_or(&[], Vec::as_slice)
    }
}

/// Runs that are looked at beside waits for a CPU: 0.3 s of CPU.
const MOST_LOOKS: usize = 10_000_000;

/// Who had one CPU for long, in order.
struct LongRuns {
    all: Vec<LongRun>,
    longest: u64,
}

/// A time in which a thread had a CPU.
#[derive(Debug)]
pub(super) struct LongRun {
    pub pid: u32,
    pub from: u64,
    pub to: u64,
    /// Once it was asked for.
    who: OnceCell<(Who, Option<Name>)>,
}

impl LongRun {
    /// How long it had the CPU in this stretch.
    pub fn within(&self, from: u64, to: u64) -> u64 {
        self.to.min(to).saturating_sub(self.from.max(from))
    }
}

/// One sample of a lock's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerSample {
    pub at: u64,
    /// 0: it changed hands at some unknown moment.
    pub pid: u32,
    /// Held for reading: others may hold it, too.
    pub reader: bool,
    /// Seen in the lock word; else it got the lock after waiting for it.
    pub word: bool,
}

fn lines(spans: &[Span], tasks: &Table<u32, &Task>, window: u64) -> Table<u32, Line> {
    let mut rows: Table<u32, Vec<usize>> = with_room(tasks.len());
    for (at, span) in spans.iter().enumerate() {
        rows.entry(span.pid).or_default().push(at);
    }
    let born = |pid: u32| tasks.get(&pid).is_some_and(|task| task.born);
    rows.into_iter().map(|(pid, rows)| (pid, Line::of(spans, rows, born(pid), window))).collect()
}

/// By CPU, in order; of runs that overlap the earlier wins: a CPU runs one task at a time.
fn runs(rows: &[Run]) -> Table<u32, LongRuns> {
    let mut by_cpu: Table<u32, Vec<&Run>> = Table::default();
    for run in rows.iter().filter(|run| run.from_ns < run.to_ns) {
        by_cpu.entry(run.cpu).or_default().push(run);
    }
    let one_at_a_time = |mut runs: Vec<&Run>| {
        runs.sort_by_key(|run| (run.from_ns, run.to_ns, run.pid));
        let mut done = 0;
        runs.retain(|run| {
            let fits = run.from_ns >= done;
            done = if fits { run.to_ns } else { done };
            fits
        });
        let long =
            |run: &Run| LongRun { pid: run.pid, from: run.from_ns, to: run.to_ns, who: OnceCell::new() };
        let all: Vec<LongRun> = runs.into_iter().map(long).collect();
        LongRuns { longest: all.iter().map(|run| run.to - run.from).max().unwrap_or(0), all }
    };
    by_cpu.into_iter().map(|(cpu, runs)| (cpu, one_at_a_time(runs))).collect()
}

/// By lock, in order. Whoever waited for a lock has it when its wait is over, unless it then goes on waiting.
fn owner_samples(holds: &[Hold], spans: &[Span], window: u64) -> Table<u64, Vec<OwnerSample>> {
    let mut by_lock: Table<u64, Vec<OwnerSample>> = Table::default();
    for hold in holds {
        let word = hold.seen == HoldSeen::Word;
        let sample = OwnerSample { at: hold.at_ns, pid: hold.pid, reader: hold.reader, word };
        by_lock.entry(hold.lock).or_default().push(sample);
    }
    // The last row of each wait: a task that is woken and does not get it sleeps again.
    let mut got: Table<(u32, u64, u64), (u64, bool, bool)> = Table::default();
    for span in spans {
        let Some(lock) = &span.lock else { continue };
        let last = got.entry((span.pid, lock.address, lock.since_ns)).or_default();
        // When it was woken, not when it ran: while it waits for a CPU with the lock handed to it, others wait for it.
        *last = (*last).max((span.woken_ns, span.open, lock.write));
    }
    for ((pid, lock, _), (at, open, write)) in got {
        if !open && at < window {
            by_lock.entry(lock).or_default().push(OwnerSample { at, pid, reader: !write, word: false });
        }
    }
    for owner_samples in by_lock.values_mut() {
        owner_samples.sort_by_key(|sample| (sample.at, sample.word, sample.pid));
    }
    by_lock
}
