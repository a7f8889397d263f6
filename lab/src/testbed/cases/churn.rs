//! Jobs that each make a cgroup, run a program in it in namespaces of its own, and remove the cgroup: on kernels before 6.3 the removal of
//! an IPC namespace takes an RCU grace period, one namespace after the other, and everything that makes or removes a cgroup waits behind
//! the tasks that wait for these removals.
//!
//! Two accelerators: processes that only make IPC namespaces and leave them, and thousands of idle cgroups, which stand for the dying
//! cgroups of a large host. The healthy form makes UTS namespaces: the same load, and the kernel removes these at once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;

use super::actor::{Act, Actor, Order, Pen, to_burn};
use super::memory_cgroup::Room;
use super::{largest, named, steady, sys};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// A job must take so many times as long.
const LEAST_RATIO: f64 = 2.5;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Name of the processes that run jobs.
    pub worker: String,
    /// Number of them.
    pub workers: u64,
    /// Sleep between two jobs.
    pub think_ms: u64,
    /// Name of the processes that only make namespaces.
    pub churner: String,
    /// Number of them.
    pub churners: u64,
    /// Sleep between two namespaces.
    pub churn_every_ms: u64,
    /// Cgroups in which nothing happens.
    pub idle_groups: u64,
    /// The same on a kernel without the problem.
    #[serde(default)]
    pub twin: bool,
    /// UTS namespaces all the time: the kernel removes these at once.
    #[serde(default)]
    pub uts: bool,
    /// Jobs without cgroups.
    #[serde(default)]
    pub bare: bool,
}

/// Makes a cgroup, runs a program in it in a new namespace, removes it; records how long that took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Jobs {
    pub dir: PathBuf,
    pub name: String,
    pub think_ms: u64,
    pub work_us: u64,
    pub bare: bool,
}

/// Makes a namespace and leaves the previous one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Churn {
    pub every_ms: u64,
}

/// The kind of namespace for a mode.
fn namespace(mode: u64) -> i32 {
    if mode == 0 { libc::CLONE_NEWUTS } else { libc::CLONE_NEWIPC }
}

impl Jobs {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        let environment = to_burn(self.work_us);
        pen.ready();
        for job in 0_u64.. {
            let began = clock::now();
            let dir = self.dir.join(format!("{}-{job}", self.name));
            if self.bare {
                self.run(None, namespace(pen.mode()), &environment)?;
            } else {
                fs::create_dir(&dir)?;
                self.run(Some(&dir), namespace(pen.mode()), &environment)?;
                // The member has been waited for, but may not have left the cgroup yet.
                while fs::remove_dir(&dir).is_err_and(|err| err.kind() == io::ErrorKind::ResourceBusy) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            pen.note(began, clock::now().saturating_sub(began));
            pen.did_one();
            std::thread::sleep(Duration::from_millis(self.think_ms));
        }
        Ok(())
    }

    fn run(&self, dir: Option<&Path>, namespace: i32, environment: &str) -> io::Result<()> {
        let Some(child) = sys::fork()? else {
            let ready = sys::die_with_parent()
                .and_then(|()| sys::unshare(namespace))
                .and_then(|()| dir.map_or(Ok(()), |dir| fs::write(dir.join("cgroup.procs"), "0")));
            let failed = ready.err().unwrap_or_else(|| sys::exec_self(&self.name, environment));
            eprintln!("a job failed: {failed}");
            sys::leave(2);
        };
        match sys::wait_for(child)? {
            0 => Ok(()),
            status => Err(io::Error::other(format!("a job ended with {status:#x}"))),
        }
    }
}

impl Churn {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        loop {
            sys::unshare(namespace(pen.mode()))?;
            pen.did_one();
            std::thread::sleep(Duration::from_millis(self.every_ms));
        }
    }
}

/// Measured before whyslow starts, which uses a whole emulated CPU: that is the healthy time.
const ALONE_NS: u64 = 10_000_000_000;

/// The processes of one run.
struct Running {
    spec: Spec,
    imposed_at: u64,
    workers: Vec<Actor>,
    churners: Vec<Actor>,
    room: Room,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let room = Room::make(testbed, draw)?;
        (0..self.idle_groups).try_for_each(|n| fs::create_dir(room.dir().join(format!("idle-{n}"))))?;
        let worker = |_| {
            let name = draw.word(5);
            let (dir, think_ms) = (room.dir().to_owned(), self.think_ms);
            let jobs = Jobs { dir, name, think_ms, work_us: 2_000, bare: self.bare };
            Order::new(&self.worker, Act::Jobs(jobs)).within(vec![room.procs()]).start()
        };
        let workers = (0..self.workers).map(worker).collect::<io::Result<_>>()?;
        let churner = |_| {
            let churn = Churn { every_ms: self.churn_every_ms };
            Order::new(&self.churner, Act::Churn(churn)).within(vec![room.procs()]).start()
        };
        let churners = (0..self.churners).map(churner).collect::<io::Result<_>>()?;
        Ok(Box::new(Running { spec: self.clone(), imposed_at: 0, workers, churners, room }))
    }
}

impl Running {
    fn set_mode(&self, mode: u64) {
        self.workers.iter().chain(&self.churners).for_each(|actor| actor.set_mode(mode));
    }

    fn rate(&self, span: Span) -> f64 {
        self.workers.iter().map(|worker| worker.rate(span)).sum()
    }

    /// Time of a job without its think time, computed from the number of jobs, not from the length of finished jobs: a job that hangs
    /// through the whole window would otherwise not count at all.
    fn time_of_a_job(&self, span: Span) -> f64 {
        let each = self.workers.len() as f64 / self.rate(span).max(1e-3);
        (each - self.spec.think_ms as f64 / 1e3).max(1e-4)
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.imposed_at = clock::now();
        self.set_mode(u64::from(!self.spec.uts));
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.set_mode(0);
        Ok(())
    }

    fn names(&self) -> BTreeMap<String, String> {
        named([
            ("worker", self.spec.worker.clone()),
            ("churner", self.spec.churner.clone()),
            ("group", self.room.path().to_owned()),
        ])
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        // After the fault thousands of namespaces still wait for removal: only the time before it is healthy.
        let before = without.first().copied().ok_or("there is no time without the fault")?;
        let alone = Span { from: self.imposed_at, to: self.imposed_at.saturating_add(ALONE_NS) };
        let (with, usual) = (self.time_of_a_job(window), self.time_of_a_job(before));
        let longest = |span: Span| {
            largest(self.workers.iter().flat_map(|w| w.notes(span)).map(|(_, ns)| ns as f64 / 1e9))
        };
        let what = format!(
            "time of a job, s ({:.1}/s with, {:.1}/s of them alone, {:.1}/s without; longest {:.3}, {:.3})",
            self.rate(window),
            self.rate(alone),
            self.rate(before),
            longest(window),
            longest(before)
        );
        if self.spec.twin {
            let proof = steady(what, self.time_of_a_job(alone), usual, LEAST_RATIO);
            return Ok(Facts { proof, lost_s: None, names: self.names() });
        }
        let share = (1.0 - self.rate(window) / self.rate(before).max(1e-3)).max(0.0);
        let lost = self.workers.len() as f64 * window.length().as_secs_f64() * share;
        let proof = Proof::rises(what, with, usual, LEAST_RATIO);
        Ok(Facts { proof, lost_s: Some((lost * 0.7, lost * 1.3)), names: self.names() })
    }
}
