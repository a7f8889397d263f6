//! Tasks that ended and of which no rows are left: what those of one name did, by their sums.

use std::rc::Rc;

use crate::hashing::{Set, Table};
use whyslow_model::table::Task;
use whyslow_model::timeline::{Context, StateTimes, Waker};
use whyslow_model::wait::{Reason, WaitTarget};

use super::facts::Graph;
use super::node::{Node, Sort, merged};
use super::split::split;
use super::timeline::Line;

/// Time by state of all that ended, by name; numbers that tasks of several names had.
#[derive(Debug, Default)]
pub(super) struct Ended<'r>(Table<&'r str, StateTimes>, Set<u32>);

/// Of one name: of those who have rows of their own, and of the others.
#[derive(Default)]
struct Sums {
    reported: StateTimes,
    rowless: StateTimes,
}

impl<'r> Ended<'r> {
    /// Of these. Those who have rows stand for their name only where all have some: who bore thousands is called as they
    /// are, and his waits for them are none of theirs.
    pub fn of(tasks: &'r [Task], lines: &Table<u32, Line>) -> Self {
        let mut sums: Table<&str, Sums> = Table::default();
        let (mut names, mut several): (Table<u32, &str>, Set<u32>) = Default::default();
        for task in tasks {
            if *names.entry(task.pid).or_insert(&task.comm) != task.comm {
                several.insert(task.pid);
            }
        }
        for task in tasks.iter().filter(|task| task.ended && task.born && !task.comm.is_empty()) {
            let sums = sums.entry(&task.comm).or_default();
            let sum = if has_rows(task, lines) { &mut sums.reported } else { &mut sums.rowless };
            sum.running_ns = sum.running_ns.saturating_add(task.traced_ns);
            sum.runnable_ns = sum.runnable_ns.saturating_add(task.runnable_ns);
            sum.io_ns = sum.io_ns.saturating_add(task.io_ns);
            sum.blocked_ns = sum.blocked_ns.saturating_add(task.blocked_ns);
            sum.sleep_ns = sum.sleep_ns.saturating_add(task.sleep_ns);
            sum.unknown_ns = sum.unknown_ns.saturating_add(task.unknown_ns);
        }
        let of_name = |sums: Sums| if sums.rowless.total_ns() > 0 { sums.rowless } else { sums.reported };
        let sums = sums.into_iter().map(|(comm, sums)| (comm, of_name(sums)));
        Ended(sums.filter(|(_, sum)| sum.total_ns() > 0).collect(), several)
    }

    /// Whether all that had this number were called so, as far as rows tell.
    fn is_one_name(&self, pid: u32, comm: &str) -> bool {
        !comm.is_empty() && !self.1.contains(&pid)
    }

    /// Whether somebody of this name ended.
    pub fn is_known(&self, comm: &str) -> bool {
        self.0.contains_key(comm)
    }
}

impl Graph<'_> {
    /// Whether of a waker nothing is left of this time but what all of its name did together. Its number may be another's now.
    pub fn is_reported_by_sums(&self, waker: &Waker, from: u64, to: u64) -> bool {
        let untold = || self.lines.get(&waker.pid).is_none_or(|line| !line.tells_of(from, to));
        waker.context == Context::Task && self.ended.is_known(&waker.comm) && untold()
    }

    /// The same of a hole in the rows of a number that several had, one after the other, and all are gone.
    pub fn hole_by_sums(&self, line: &Line, pid: u32, ns: u64) -> Option<Rc<[Node]>> {
        let task = self.tasks.get(&pid).filter(|task| task.born && task.ended)?;
        let is_known =
            !line.is_one() && self.ended.is_one_name(pid, &task.comm) && self.ended.is_known(&task.comm);
        is_known.then(|| self.by_sums(pid, &task.comm, ns))
    }

    /// Where time went that somebody of this name took, as far as that of all of them tells.
    pub fn by_sums(&self, pid: u32, comm: &str, ns: u64) -> Rc<[Node]> {
        let Some(m) = self.ended.0.get(comm) else { return Rc::new([]) };
        let who = self.called(pid, comm, None);
        let weights = [m.running_ns, m.runnable_ns, m.io_ns, m.blocked_ns, m.sleep_ns, m.unknown_ns];
        let [ran, ready, io, blocked, slept, missed] = split(ns, weights);
        let reported = |sort, reason, what, ns| self.node(sort, reason, who, what, ns);
        let mut nodes = self.ran_as(who, &self.namesakes_did(comm), ran);
        nodes.extend([
            reported(Sort::Ready, Reason::Runnable, self.rests.short_cpu, ready),
            self.unexplained(who, WaitTarget::ShortIo, io),
            self.unexplained(who, WaitTarget::ShortBlocked, blocked),
            self.unexplained(who, WaitTarget::ShortSleeps, slept),
            self.unexplained(who, WaitTarget::TracerMissed, missed),
        ]);
        merged(nodes, &self.rests)
    }

    /// It was born and ended in the window, and did little.
    pub fn is_brief(&self, pid: u32) -> bool {
        self.lines.get(&pid).is_none_or(|line| line.is_little())
            && self.tasks.get(&pid).is_some_and(|task| task.born && task.ended)
    }
}

/// Whether rows tell of at least half of its life.
fn has_rows(task: &Task, lines: &Table<u32, Line>) -> bool {
    let line = lines.get(&task.pid).filter(|line| task.folded == 0 && line.is_one());
    let reported = line.and_then(Line::life).map_or(0, |(from, to)| to.saturating_sub(from));
    reported > 0 && reported >= task.lived_ns / 2
}
