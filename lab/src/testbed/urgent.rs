//! A SCHED_FIFO thread that begins to keep a CPU full, and threads that have work there, or on the other CPUs.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use whyslow_faults::ledger::Word;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Span, Truth, Victim, host};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};
use crate::testbed::readers;

/// Above all tasks that are not real-time, below the kernel's own threads (50 and 99).
const PRIORITY: i32 = 10;
/// A healthy thread rests for nine tenths of its time.
const FILLS: f64 = 2.0;
/// The victims get only the rest of that CPU (5 %: sched_rt_runtime_us, since Linux 6.12 the fair server).
const LEAST: f64 = 2.5;
/// Other threads do at least this part of their work.
const ALIKE: f64 = 3.0;
/// The share that whyslow itself and a noisy host take from a victim, which is not caused by the fault.
const EXACT: f64 = 0.15;

/// One CPU, and the threads.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    cpu: u32,
    /// Name of the thread that fills it.
    by: String,
    /// Name of the working threads.
    comm: String,
    threads: u64,
    /// They may use the other CPUs only, and lose nothing.
    #[serde(default)]
    elsewhere: bool,
}

struct Urgent {
    urgent: Victim,
    workers: Victim,
    elsewhere: bool,
    names: BTreeMap<String, String>,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let cpu = self.cpu as usize;
        let start = |draw: &mut Draw, comm: &str, threads, work| {
            let group = testbed.fence.group(&draw.word(6))?;
            let victim = Victim::spawn(testbed.fence.spec(&group, comm, threads, work))?;
            Ok::<_, Trouble>((victim, group.path().to_owned()))
        };
        let (urgent, _) = start(draw, &self.by, 1, Work::Few { tasks: 0, idle_us: 0 })?;
        urgent.pin(&[cpu])?;
        urgent.tids().into_iter().try_for_each(at_once)?;
        urgent.go();
        // Half of a CPU for all of them together.
        let burst_us = 10_000 / self.threads.max(1);
        let work = Work::Paced { burst_us, every_us: 20_000 };
        let (workers, group) = start(draw, &self.comm, self.threads, work)?;
        let cpus: Vec<usize> =
            host::cpus().into_iter().filter(|one| (*one == cpu) != self.elsewhere).collect();
        workers.pin(&cpus)?;
        workers.go();
        let mut names = readers::names(&workers);
        names.insert("by".to_owned(), self.by.clone());
        names.insert("group".to_owned(), group);
        Ok(Box::new(Urgent { urgent, workers, elsewhere: self.elsewhere, names }))
    }
}

/// Give it the CPU whenever it is ready.
fn at_once(tid: u32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the parameters outlive the call, which copies them.
    let done = unsafe { libc::sched_setscheduler(tid as libc::pid_t, libc::SCHED_FIFO, &parameters) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Urgent {
    fn set_mode(&self, mode: u64) {
        self.urgent.ledger().word(Word::Mode).store(mode, Ordering::Release);
    }
}

impl Part for Urgent {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.set_mode(1);
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.set_mode(0);
        Ok(self.workers.until_it_moves()?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        self.names.clone()
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let names = self.names();
        let urgent = Truth::reported_by(self.urgent.ledger(), window, without);
        let fills =
            Proof::rises("pieces of urgent work a second", urgent.rate_with, urgent.rate_without, FILLS);
        if !fills.holds {
            return Ok(Facts { proof: fills, lost_s: None, names });
        }
        let truth = Truth::reported_by(self.workers.ledger(), window, without);
        let what = "pieces of work a second beside an urgent thread";
        if self.elsewhere {
            let proof = Proof::stays(what, truth.rate_with, truth.rate_without, ALIKE);
            return Ok(Facts { proof, lost_s: None, names });
        }
        let proof = Proof::falls(what, truth.rate_with, truth.rate_without, LEAST);
        let (lost, slack) = (truth.lost_s(), EXACT * truth.tasks as f64 * truth.window_s);
        Ok(Facts { proof, lost_s: Some(((lost - slack).max(0.0), lost + slack)), names })
    }
}
