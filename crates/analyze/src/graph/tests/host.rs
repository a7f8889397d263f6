//! Hosts for tests: tasks told segment by segment. Times are in ms, kernel frames say what a wait was for.

use whyslow_model::Recording;
use whyslow_model::chain::Part;
use whyslow_model::table::{Sample, Task};
use whyslow_model::timeline::{
    Command, Context, Hold, HoldSeen, LockKind, LockWait, Span, Stack, State, Waker, Watched,
};
use whyslow_model::wait::{Reason, WaitTarget, Who};

use crate::graph::facts::Graph;
use crate::graph::node::{Node, Sort};
use crate::wait_reasons::{Class, Stacks, WaitKind, joined_thread, retried};

pub const MS: u64 = 1_000_000;

/// What waits are for, by the innermost frame: (frame, reason, words, class, state).
const WAITS: [(&str, Reason, &str, Class, State); 10] = [
    ("mutex_lock", Reason::Lock, "a mutex", Class::Lock, State::Blocked),
    ("futex_wait", Reason::Futex, "a futex", Class::Lock, State::Sleep),
    ("do_wait", Reason::Child, "a child to end", Class::Dependency, State::Sleep),
    ("flush_work", Reason::Work, "a work item", Class::Dependency, State::Blocked),
    ("pipe_read", Reason::Pipe, "a pipe", Class::Idle, State::Sleep),
    ("ep_poll", Reason::Epoll, "events", Class::Idle, State::Sleep),
    ("nanosleep", Reason::Timer, "its own sleep", Class::Timer, State::Sleep),
    ("io_schedule", Reason::BlockIo, "vda", Class::Device, State::Io),
    ("schedule", Reason::Unknown, "something", Class::Unknown, State::Blocked),
    ("pause", Reason::Signal, "a signal", Class::Idle, State::Sleep),
];

/// Classifies the waits of these hosts.
pub fn classify(span: &Span, stacks: &Stacks<'_>) -> WaitKind {
    if joined_thread(span, stacks).is_some() {
        return WaitKind {
            reason: WaitTarget::ThreadEnd.reason(),
            detail: WaitTarget::ThreadEnd.into(),
            class: Class::Dependency,
        };
    }
    let frame = stacks.kernel(span.stack).first().map_or("schedule", |frame| frame);
    let known = WAITS.iter().find(|wait| wait.0 == frame).unwrap_or(&WAITS[8]);
    let detail = match known.0 {
        "nanosleep" => WaitTarget::OwnSleep.into(),
        "ep_poll" if span.syscall.is_some() => WaitTarget::EpollEvents.into(),
        _ => known.2.into(),
    };
    retried(span, WaitKind { reason: known.1, detail, class: known.3 })
}

/// What a task does next.
#[derive(Debug, Clone)]
pub enum Does {
    Runs(u64),
    /// For a CPU.
    Ready(u64),
    /// In short waits of a state.
    Short(State, u64),
    Waits(u64, Wait),
}

/// A wait.
#[derive(Debug, Clone, Default)]
pub struct Wait {
    /// The innermost frame.
    pub on: &'static str,
    pub waker: Option<Waker>,
    pub lock: Option<LockWait>,
    pub sampled_wait_ns: u64,
    pub open: bool,
    pub syscall: Option<u32>,
    pub args: [u64; 4],
}

/// A wait that a task ends.
pub fn woken_by(on: &'static str, pid: u32) -> Wait {
    Wait { on, waker: Some(waker(pid, Context::Task)), ..Wait::default() }
}

/// A wait that an interrupt ends, while `pid` runs.
pub fn interrupted(on: &'static str, pid: u32, stack: Option<u32>) -> Wait {
    Wait { on, waker: Some(Waker { stack, ..waker(pid, Context::Softirq) }), ..Wait::default() }
}

/// A wait for a kernel mutex that `owner` has when the wait begins, and `waker` lets go.
pub fn locked(address: u64, owner: u32, waker: u32) -> Wait {
    let lock = LockWait { address, kind: LockKind::Mutex, write: true, owner, ..LockWait::default() };
    Wait { lock: Some(lock), ..woken_by("mutex_lock", waker) }
}

fn waker(pid: u32, context: Context) -> Waker {
    Waker { pid, tgid: pid, comm: format!("t{pid}"), context, ..Waker::default() }
}

/// A host in the making.
#[derive(Debug, Default)]
pub struct Host {
    pub rec: Recording,
    pub spans: Vec<Span>,
}

impl Host {
    /// A window of so many ms.
    pub fn window(ms: u64) -> Self {
        let mut host = Host::default();
        host.rec.meta.window_ns = ms * MS;
        host.rec.tables.stacks = Some(
            (0u32..)
                .zip(WAITS)
                .map(|(id, w)| Stack { id, kernel: vec![w.0.into(), "entry".into()], user: vec![] })
                .collect(),
        );
        host
    }

    /// A task that does this from `from` on; the name is `t<pid>` unless told.
    pub fn task(&mut self, pid: u32, comm: &str, from: u64, does: &[Does]) -> &mut Self {
        let task = Task { pid, tgid: pid, ppid: 1, comm: comm.to_owned(), born: from > 0, ..Task::default() };
        self.rec.tables.tasks.get_or_insert_default().push(task);
        let mut now = from * MS;
        let mut span = row(pid, comm, now);
        let mut does = does.iter().peekable();
        while let Some(next) = does.next() {
            match next {
                Does::Runs(ms) => span.mixed.running_ns += ms * MS,
                Does::Short(State::Io, ms) => span.mixed.io_ns += ms * MS,
                Does::Short(State::Blocked, ms) => span.mixed.blocked_ns += ms * MS,
                Does::Short(_, ms) => span.mixed.sleep_ns += ms * MS,
                Does::Ready(ms) => {
                    span.state = State::Runnable;
                    (span.at_ns, span.woken_ns, span.to_ns) = (now, now, now + ms * MS);
                }
                Does::Waits(ms, wait) => {
                    waits(&mut span, now, now + ms * MS, wait);
                    if let Some(Does::Ready(more)) = does.next_if(|next| matches!(next, Does::Ready(_))) {
                        span.to_ns += more * MS;
                    }
                }
            }
            now = match next {
                Does::Runs(ms) | Does::Short(_, ms) => now + ms * MS,
                _ => span.to_ns,
            };
            if span.state != State::None {
                self.spans.push(std::mem::replace(&mut span, row(pid, comm, now)));
            }
        }
        (span.at_ns, span.woken_ns, span.to_ns) = (now, now, now);
        if span.from_ns < now {
            self.spans.push(span);
        }
        self
    }

    /// The last row of the last task ended it.
    pub fn ends(&mut self) -> &mut Self {
        self.spans.last_mut().unwrap().ended = true;
        self
    }

    /// Somebody was seen to have got a lock.
    pub fn got(&mut self, lock: u64, at: u64, pid: u32) -> &mut Self {
        let hold = Hold { lock, at_ns: at * MS, pid, seen: HoldSeen::Acquired, ..Hold::default() };
        self.rec.tables.holds.get_or_insert_default().push(hold);
        self
    }

    /// What a task was seen to do on a CPU.
    pub fn sampled(&mut self, pid: u32, function: &str) -> &mut Self {
        let kernel = vec![function.to_owned()];
        let sample = Sample { pid, count: 1, ns: MS, kernel, ..Sample::default() };
        self.rec.tables.samples.get_or_insert_default().push(sample);
        self
    }

    /// A command that is the whole window long.
    pub fn watch(&mut self, pid: u32) -> &mut Self {
        let command =
            Command { argv: vec!["cmd".into()], pid, to_ns: self.rec.meta.window_ns, ..Command::default() };
        let pids = vec![pid];
        self.rec.meta.watched = Some(Watched { pids, command: Some(command), ..Watched::default() });
        self
    }

    /// As recorded.
    pub fn done(&mut self) -> &Recording {
        self.rec.tables.spans = Some(self.spans.clone());
        &self.rec
    }

    pub fn graph(&mut self) -> Graph<'_> {
        let graph = Graph::of(self.done(), classify).unwrap();
        graph.fuel.set(10_000_000);
        graph
    }
}

fn row(pid: u32, comm: &str, from_ns: u64) -> Span {
    Span { pid, tgid: pid, comm: comm.to_owned(), from_ns, ..Span::default() }
}

fn waits(span: &mut Span, from: u64, to: u64, wait: &Wait) {
    let known = WAITS.iter().position(|known| known.0 == wait.on).unwrap_or(8);
    span.state = WAITS[known].4;
    span.stack = u32::try_from(known).ok();
    (span.at_ns, span.woken_ns, span.to_ns) = (from, to, to);
    span.waker = wait.waker.clone().filter(|_| !wait.open);
    span.lock = wait.lock.clone().map(|lock| LockWait { since_ns: from.max(lock.since_ns), ..lock });
    span.sampled_wait_ns = (to - from) + wait.sampled_wait_ns;
    span.open = wait.open;
    (span.syscall, span.args) = (wait.syscall, wait.args);
}

/// Leaves of a tree: (who, word, ms), sorted, alike ones summed.
pub fn leaves(graph: &Graph<'_>, nodes: &[Node]) -> Vec<(String, String, u64)> {
    let mut out: std::collections::BTreeMap<(String, String), u64> = Default::default();
    let mut todo: Vec<&Node> = nodes.iter().collect();
    while let Some(node) = todo.pop() {
        if node.parts.is_empty() || node.key.sort == Sort::Ran {
            let who = graph.names.who(node.shown).to_string();
            *out.entry((who, node.key.reason.word().to_owned())).or_default() += node.ns;
        } else {
            todo.extend(node.parts.iter());
        }
    }
    out.into_iter().map(|((who, word), ns)| (who, word, ns / MS)).collect()
}

/// Panics unless every node's parts add up to it.
pub fn adds_up(nodes: &[Node], whole: u64) {
    assert_eq!(nodes.iter().map(|node| node.ns).sum::<u64>(), whole);
    for node in nodes.iter().filter(|node| !node.parts.is_empty()) {
        adds_up(&node.parts, node.ns);
        assert_eq!(node.unsaid, node.parts.iter().map(|part| part.unsaid).sum::<u64>());
    }
    assert!(nodes.iter().all(|node| node.unsaid <= node.ns));
}

/// A part in a few words: whose it was, and what.
pub fn said(part: &Part) -> String {
    match part.who {
        Who::Nobody => part.detail.to_string(),
        _ => format!("{}: {}", part.who, part.detail),
    }
}
