//! Makes a day: first the victim alone, then the fault, and a run of whyslow.

use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use whyslow_faults::cgroup::Group;
use whyslow_faults::honest::Crowd;
use whyslow_faults::host::Calm;
use whyslow_faults::rounds::{self, Trouble, Verdict};
use whyslow_faults::spec::{Place, Work};
use whyslow_faults::{Draw, Fence, Form, Ledger, Span, Truth, Victim, clock, host, thresholds};

use crate::days::capture::{self, Capture};
use crate::days::day::{Cell, Day};
use crate::days::judge::{self, Made};
use crate::days::{cpu, disk, locks, memory, services, threads};

/// The parts of a day.
pub struct Stage {
    /// The victim; its clock gives the loss.
    pub victim: Victim,
    /// Its cgroup.
    pub group: Group,
    /// Other tasks that lose as much as the victim, each of which would do as much work as a thread of the victim.
    pub alike: Option<Arc<Ledger>>,
    /// Names and ids of the victim.
    pub whose: Vec<String>,
    /// Names and ids of the culprit.
    pub blame: Vec<String>,
    /// Rules that may report it.
    pub rules: &'static [&'static str],
    /// Text that the title must also contain.
    pub says: &'static str,
    /// The process or group that keeps the CPUs full.
    pub busy: Option<String>,
    /// Turns the fault on.
    pub begin: Box<dyn FnMut() -> io::Result<()>>,
    /// Undoes what would keep the victim from ending.
    pub end: Box<dyn FnMut()>,
    /// Other things that live as long.
    pub keep: Vec<Box<dyn Any>>,
    /// What was drawn.
    pub said: String,
}

impl Drop for Stage {
    fn drop(&mut self) {
        (self.end)();
    }
}

/// The surroundings in which a day is made.
pub struct Ground<'f> {
    pub fence: &'f Fence,
    pub draw: &'f mut Draw,
    pub form: Form,
}

impl Ground<'_> {
    pub fn is_fault(&self) -> bool {
        self.form == Form::Fault
    }

    pub fn group(&mut self) -> io::Result<Group> {
        self.fence.group(&self.draw.word(7))
    }

    /// A file of this size.
    pub fn file(&mut self, bytes: u64) -> io::Result<PathBuf> {
        let file = self.fence.dir().join(self.draw.word(8));
        host::make_file(&file, bytes)?;
        Ok(file)
    }

    /// A port, or a path.
    pub fn place(&mut self, port: bool) -> Place {
        match port {
            true => Place::Port(self.draw.between(20_000, 30_000) as u16),
            false => Place::Path(self.fence.dir().join(self.draw.word(6))),
        }
    }

    /// A process with so many threads; it waits for its start.
    pub fn process(&mut self, group: &Group, threads: u64, work: Work) -> io::Result<Victim> {
        Victim::spawn(self.fence.spec(group, &self.draw.word(9), threads, work))
    }

    /// A stage with a single victim.
    pub fn stage(&self, victim: Victim, group: Group, rules: &'static [&'static str]) -> Stage {
        Stage {
            alike: None,
            whose: names(&victim, &group),
            blame: Vec::new(),
            rules,
            says: "",
            busy: None,
            begin: Box::new(|| Ok(())),
            end: Box::new(|| ()),
            keep: Vec::new(),
            said: String::new(),
            victim,
            group,
        }
    }
}

/// Possible names of a process.
pub fn names(process: &Victim, group: &Group) -> Vec<String> {
    vec![process.pid().to_string(), process.comm().to_owned(), group.path().to_owned()]
}

fn set(day: Day, ground: &mut Ground<'_>) -> io::Result<Stage> {
    match day {
        Day::Weight | Day::Number | Day::Nice => cpu::crowd(day, ground),
        Day::Programs | Day::ShortLived => cpu::programs(day, ground),
        Day::Quota => cpu::quota(ground),
        Day::Heap => memory::heap(ground),
        Day::Tmpfs => memory::tmpfs(ground),
        Day::Reads => disk::reads(ground),
        Day::Fsync => disk::fsync(ground),
        Day::Evicted => memory::evicted(ground),
        Day::Dropped => memory::dropped(ground),
        Day::Asleep(how) => locks::asleep(how, ground),
        Day::AtWork(how) => locks::at_work(how, ground),
        Day::Stopped(how) => locks::stopped(how, ground),
        Day::Traced => locks::traced(ground),
        Day::ServiceStopped => services::stopped(ground),
        Day::OneThread => services::one_thread(ground),
        Day::ServiceSleeps => services::sleeps(ground),
        Day::Upstream => services::upstream(ground),
        Day::Relays => services::relays(ground),
        Day::Pool => threads::pool(ground, 1),
        Day::PoolStuck => threads::pool(ground, 2),
        Day::Prefork(mode) => services::prefork(ground, mode),
        Day::Frozen => disk::frozen(ground),
        Day::Interpreter => threads::interpreter(ground),
        Day::Guard => threads::guard(ground),
        Day::ServiceThrottled => services::throttled(ground),
        Day::ServiceCrowded => services::crowded(ground),
        Day::ServiceReads => services::reads(ground),
        Day::SlowReader => services::reader(ground),
        Day::Fuse => services::file_system(ground),
    }
}

/// A crowd that uses the remaining CPU time: a hundredth of the weight, one process per CPU.
fn busy_host(fence: &Fence, day: Day, draw: &mut Draw) -> io::Result<Option<Crowd>> {
    let is_of_cpus = matches!(
        day,
        Day::Weight
            | Day::Number
            | Day::Nice
            | Day::Programs
            | Day::ShortLived
            | Day::Quota
            | Day::ServiceCrowded
    );
    if is_of_cpus || !draw.one_in(3) {
        return Ok(None);
    }
    Crowd::start(fence, host::cpus().len(), 100, draw).map(Some)
}

/// Make the day, and judge whyslow's document.
fn once(cell: Cell, draw: &mut Draw, label: &str) -> Result<Verdict, Trouble> {
    let fence = Fence::enter()?;
    let mut ground = Ground { fence: &fence, draw: &mut *draw, form: cell.form };
    let mut stage = set(cell.day, &mut ground)?;
    let crowd = busy_host(&fence, cell.day, draw)?;
    println!("{cell}: {}{}", stage.said, if crowd.is_some() { ", on a busy host" } else { "" });
    stage.victim.go();
    stage.victim.until_it_moves()?;
    let without = clock::span_of(thresholds::WITHOUT);
    (stage.begin)()?;
    std::thread::sleep(thresholds::SETTLE);
    let cpu = stage.group.cpu_used()?;
    let calm = Calm::watch(Some(fence.top()))?;
    let capture = Capture::of(cell)?;
    let args = capture::arguments(capture.as_ref());
    let look = crate::look("days", label, &args.iter().map(String::as_str).collect::<Vec<_>>())?;
    let disturbed = calm.crowded(Some(fence.top()), look.own_cpu(), CROWDED)?;
    let sight = look.sight(&stage.group, cpu)?;
    fence.check_time()?;
    let aside = crowd.iter().map(|crowd| crowd.group().path().to_owned()).collect();
    let made = Made {
        cell,
        truth: truth(&stage, look.window, without),
        whose: stage.whose.clone(),
        blame: stage.blame.clone(),
        rules: stage.rules,
        says: stage.says,
        busy: stage.busy.clone(),
        aside,
        top: fence.top().path().to_owned(),
        said: stage.said.clone(),
        sight,
    };
    let verdict = judge::judge(&made, &look);
    let verdict = match disturbed {
        Some(why) => Verdict::Again(format!("{why}: {verdict:?}")),
        None => verdict,
    };
    capture.map_or(Ok(()), |capture| capture.end(&made, &verdict))?;
    Ok(verdict)
}

fn truth(stage: &Stage, window: Span, without: Span) -> Truth {
    let truth = Truth::reported_by(stage.victim.ledger(), window, &[without]);
    match &stage.alike {
        Some(alike) => truth.with_alike(alike.slots(), alike.rate(window)),
        None => truth,
    }
}

/// A cell of the table.
pub fn run(cell: Cell) {
    rounds::run_judged(&cell, &crate::kept_in("days"), |draw, label| once(cell, draw, label));
}

/// Interrupts and kernel threads work for the test, too: only use of the CPUs above this share counts as use by others.
const CROWDED: f64 = 0.4;
