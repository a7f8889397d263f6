//! A small host of tasks and locks that writes down what a tracer would see, and the truth beside it.

use proptest::prelude::*;

use super::host::{Does, Host, Wait, locked};

/// How long it is simulated, in ms.
pub const END: usize = 300;

/// What a task's script says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Run(usize),
    Sleep(usize),
    Take(usize),
    Give(usize),
}

/// What a task is at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    Running,
    Asleep,
    /// In the queue of a lock.
    Waiting(usize),
}

/// A stretch of a task's life.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: usize,
    to: usize,
    is: Is,
    owner: usize,
    /// Who let the lock go; none: still waiting at the end.
    waker: Option<usize>,
}

#[derive(Debug)]
struct Task {
    script: Vec<Op>,
    at: usize,
    is: Is,
    since: usize,
    until: usize,
    owner: usize,
    past: Vec<Stretch>,
}

/// The host: what every task was, and who held which lock, in each ms.
#[derive(Debug)]
pub struct SimulatedHost {
    tasks: Vec<Task>,
    holder: Vec<Option<usize>>,
    queue: Vec<Vec<usize>>,
    /// `[ms][task]`.
    pub was: Vec<Vec<Is>>,
    /// `[ms][lock]`.
    pub held: Vec<Vec<Option<usize>>>,
    got: Vec<(usize, usize, usize)>,
}

/// Scripts: two to six tasks that take and give up to four locks in any order. Nobody holds a lock for no time.
pub fn scripts() -> impl Strategy<Value = Vec<Vec<Op>>> {
    let op = prop_oneof![
        (1..12usize).prop_map(|ms| vec![Op::Run(ms)]),
        (1..12usize).prop_map(|ms| vec![Op::Sleep(ms)]),
        (0..4usize).prop_map(|lock| vec![Op::Take(lock), Op::Run(1)]),
        (0..4usize).prop_map(|lock| vec![Op::Give(lock)]),
    ];
    let script = proptest::collection::vec(op, 1..12).prop_map(|ops| {
        let mut ops: Vec<Op> = ops.concat();
        ops.push(Op::Run(1));
        ops
    });
    proptest::collection::vec(script, 2..7)
}

impl SimulatedHost {
    /// Let these scripts run, over and over, until the end.
    pub fn of(scripts: Vec<Vec<Op>>) -> Self {
        let task =
            |script| Task { script, at: 0, is: Is::Running, since: 0, until: 0, owner: 0, past: vec![] };
        let mut host = SimulatedHost {
            tasks: scripts.into_iter().map(task).collect(),
            holder: vec![None; 4],
            queue: vec![vec![]; 4],
            was: vec![],
            held: vec![],
            got: vec![],
        };
        for now in 0..END {
            // Whoever was given a lock by a later task goes on at once, too.
            for _ in 0..2 {
                for task in 0..host.tasks.len() {
                    host.step(task, now);
                }
            }
            host.was.push(host.tasks.iter().map(|task| task.is).collect());
            host.held.push(host.holder.clone());
        }
        for task in 0..host.tasks.len() {
            host.close(task, END, None);
        }
        host
    }

    fn step(&mut self, task: usize, now: usize) {
        while !matches!(self.tasks[task].is, Is::Waiting(_)) && self.tasks[task].until <= now {
            let t = &mut self.tasks[task];
            let op = t.script[t.at % t.script.len()];
            t.at += 1;
            match op {
                Op::Run(ms) => self.becomes(task, now, Is::Running, now + ms),
                Op::Sleep(ms) => self.becomes(task, now, Is::Asleep, now + ms),
                Op::Take(lock) if self.holder[lock].is_none() => self.holder[lock] = Some(task),
                Op::Take(lock) if self.holder[lock] == Some(task) => {}
                Op::Take(lock) => {
                    self.queue[lock].push(task);
                    self.becomes(task, now, Is::Waiting(lock), usize::MAX);
                    self.tasks[task].owner = self.holder[lock].unwrap();
                }
                Op::Give(lock) if self.holder[lock] == Some(task) => self.give(task, lock, now),
                Op::Give(_) => {}
            }
        }
    }

    /// To the first in the queue.
    fn give(&mut self, task: usize, lock: usize, now: usize) {
        self.holder[lock] = (!self.queue[lock].is_empty()).then(|| self.queue[lock].remove(0));
        if let Some(next) = self.holder[lock] {
            self.close(next, now, Some(task));
            let t = &mut self.tasks[next];
            (t.is, t.since, t.until) = (Is::Running, now, now);
            self.got.push((lock, now, next));
        }
    }

    fn becomes(&mut self, task: usize, now: usize, is: Is, until: usize) {
        self.close(task, now, None);
        let t = &mut self.tasks[task];
        (t.is, t.since, t.until) = (is, now, until);
    }

    fn close(&mut self, task: usize, now: usize, waker: Option<usize>) {
        let t = &mut self.tasks[task];
        if t.since < now {
            t.past.push(Stretch { from: t.since, to: now, is: t.is, owner: t.owner, waker });
        }
    }

    /// What a tracer tells of it. Task 0 is thread 1, and so on; names are letters.
    pub fn traced(&self) -> Host {
        let mut host = Host::window(END as u64);
        for (task, t) in self.tasks.iter().enumerate() {
            let does: Vec<Does> = t.past.iter().map(Stretch::reported).collect();
            host.task(pid(task), name(task), 0, &does);
        }
        for (lock, at, task) in &self.got {
            host.got(*lock as u64 + 1, *at as u64, pid(*task));
        }
        host
    }
}

impl Stretch {
    fn reported(&self) -> Does {
        let ms = (self.to - self.from) as u64;
        match self.is {
            Is::Running => Does::Runs(ms),
            Is::Asleep => Does::Waits(ms, Wait { on: "nanosleep", ..Wait::default() }),
            Is::Waiting(lock) => {
                let wait = locked(lock as u64 + 1, pid(self.owner), self.waker.map_or(0, pid));
                Does::Waits(ms, Wait { open: self.waker.is_none(), ..wait })
            }
        }
    }
}

pub fn pid(task: usize) -> u32 {
    task as u32 + 1
}

pub fn name(task: usize) -> &'static str {
    ["a", "b", "c", "d", "e", "f"][task]
}
