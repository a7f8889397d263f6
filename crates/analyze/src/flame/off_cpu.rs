//! What waited, from the timelines' own stacks: each stack is as wide as the waiting it stands for; waiting for which no
//! stack was taken is a frame of its own.

use std::collections::BTreeMap;

use whyslow_model::timeline::{Context, Span, State};
use whyslow_model::{Recording, table};

use super::{Line, Scope, fit, share, sum};
use crate::kinds::{self, Class, Stacks};

/// Waiting of one thread in one state.
#[derive(Default)]
struct Waiting {
    comm: String,
    /// All of it, by the timeline.
    ns: u64,
    /// What stacks stand for.
    lines: Vec<Line>,
}

pub(super) fn lines(recording: &Recording, scope: &Scope<'_>) -> Vec<Line> {
    let Some(spans) = &recording.tables.spans else { return from_sums(recording, scope) };
    let stacks = Stacks::of(recording.tables.stacks.as_deref().unwrap_or_default());
    let mut all: BTreeMap<(u32, State), Waiting> = BTreeMap::new();
    for span in spans.iter().filter(|span| scope.has(span.pid)) {
        add(&mut all, span, scope, &stacks);
    }
    all.into_iter().flat_map(|((_, state), waiting)| waiting.told(state, scope)).collect()
}

fn add(all: &mut BTreeMap<(u32, State), Waiting>, span: &Span, scope: &Scope<'_>, stacks: &Stacks<'_>) {
    let mut wait = |state: State, within: (u64, u64), ns: u64, line: Option<Line>| {
        let (part, whole) = scope.overlap(within.0, within.1);
        let cut = |ns: u64| share(ns, part.into(), whole.into());
        let waiting = all.entry((span.pid, state)).or_default();
        waiting.comm.clone_from(&span.comm);
        waiting.ns = waiting.ns.saturating_add(cut(ns));
        waiting.lines.extend(line.map(|(frames, ns)| (frames, cut(ns))));
    };
    let (mixed, mix) = ((span.from_ns, span.at_ns), &span.mixed);
    wait(State::Runnable, mixed, mix.runnable_ns, None);
    wait(State::Io, mixed, mix.io_ns, None);
    wait(State::Blocked, mixed, mix.blocked_ns, None);
    wait(State::Sleep, mixed, mix.sleep_ns, None);
    let kind = kinds::of(span, stacks);
    let (own, ready) = ((span.at_ns, span.woken_ns), (span.woken_ns, span.to_ns));
    let own_ns = span.woken_ns.saturating_sub(span.at_ns);
    let ready_ns = span.to_ns.saturating_sub(span.woken_ns);
    let sleeps = matches!(span.state, State::Io | State::Blocked | State::Sleep);
    if sleeps && counts(scope, span.state, kind.class) {
        let line = (frames(span, stacks, &kind.waits_for), span.stands_ns.max(own_ns));
        wait(span.state, own, own_ns, Some(line));
    }
    if sleeps || span.state == State::Runnable {
        let stands = if sleeps { ready_ns } else { span.stands_ns.max(ready_ns) };
        wait(State::Runnable, ready, ready_ns, Some((frames(span, stacks, &cpu(span)), stands)));
    }
}

/// On a whole host only waits that are losses are told; of watched threads all.
fn counts(scope: &Scope<'_>, state: State, class: Class) -> bool {
    match (scope, class) {
        (Scope::Host { .. }, Class::Handed | Class::Voluntary) => false,
        (Scope::Host { .. }, Class::Unknown) => state != State::Sleep,
        _ => true,
    }
}

fn cpu(span: &Span) -> String {
    format!("CPU {}", span.cpu)
}

/// "comm;kernel frames, outermost first;-- waits for X --;who ended it".
fn frames(span: &Span, stacks: &Stacks<'_>, waits_for: &str) -> Vec<String> {
    let mut frames = vec![span.comm.clone()];
    frames.extend(stacks.kernel(span.stack).iter().rev().cloned());
    frames.push(format!("-- waits for {waits_for} --"));
    let waker = span.waker.iter().find(|waker| waker.context == Context::Task && waker.pid != 0);
    frames.extend(waker.map(|waker| waker.comm.clone()));
    frames
}

impl Waiting {
    /// The stacks, no wider than the waiting; what they do not stand for as one frame.
    fn told(self, state: State, scope: &Scope<'_>) -> Vec<Line> {
        let told = sum(&self.lines);
        if told > self.ns {
            return fit(self.lines, self.ns);
        }
        let mut lines = self.lines;
        // Which of a host's short sleeps are losses, nobody can tell without a stack.
        if state != State::Sleep || !matches!(scope, Scope::Host { .. }) {
            lines.push((vec![self.comm, format!("short waits ({})", words(state))], self.ns - told));
        }
        lines.retain(|(_, ns)| *ns > 0);
        lines
    }
}

fn words(state: State) -> &'static str {
    match state {
        State::Runnable => "ready for a CPU",
        State::Io => "disk",
        State::Blocked => "blocked",
        _ => "sleep",
    }
}

/// From the sums by stack, where there are no timelines.
fn from_sums(recording: &Recording, scope: &Scope<'_>) -> Vec<Line> {
    let is_loss = |wait: &&table::Wait| wait.state != "sleep" || !matches!(scope, Scope::Host { .. });
    let rows = recording.tables.waits.iter().flatten().filter(|wait| scope.has(wait.pid)).filter(is_loss);
    rows.filter(|wait| wait.ns > 0)
        .map(|wait| (std::iter::once(&wait.comm).chain(wait.kernel.iter().rev()).cloned().collect(), wait.ns))
        .collect()
}
