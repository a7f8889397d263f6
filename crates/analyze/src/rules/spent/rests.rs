//! The part of a task's sleeps that may have been time to spare.

use std::collections::BTreeMap;

use whyslow_model::table::Task;
use whyslow_model::timeline::{Span, Stack, State};

use crate::Evidence;
use crate::wait_reasons::{self, Class, Stacks};

/// The tasks, without the sleeps in which they waited for another task. Stacks show some of these sleeps: waits for a child's end, for a lock. Rows
/// show the others: waits for the answer to a request, of a thread that works for most of its time. Without these sleeps a task's cycles no longer
/// show whether its other sleeps make up for anything.
pub(super) fn of(ev: &Evidence<'_>, tasks: &[&Task]) -> Vec<Task> {
    let mut needed: BTreeMap<u32, u64> = BTreeMap::new();
    let is_asked = |pid: u32| tasks.iter().any(|task| task.pid == pid);
    let sleeps = ev.waits().unwrap_or_default().iter().filter(|wait| wait.state == "sleep");
    for wait in sleeps.filter(|wait| is_asked(wait.pid)) {
        let stack = [Stack { id: 0, kernel: wait.kernel.clone(), user: Vec::new() }];
        let row = Span { stack: Some(0), state: State::Sleep, ..Span::default() };
        let class = wait_reasons::of(&row, &Stacks::of(&stack)).class;
        if matches!(class, Class::Dependency | Class::Lock | Class::Device | Class::Limit) {
            let sum = needed.entry(wait.pid).or_default();
            *sum = sum.saturating_add(wait.ns);
        }
    }
    // A task that rests for longer may get its work in the answers to its own requests.
    let works = |task: &Task| task.sleep_ns < task.lived_ns / 4;
    let at_work = |pid: u32| tasks.iter().any(|task| task.pid == pid && works(task));
    for span in ev.spans().unwrap_or_default().iter().filter(|span| at_work(span.pid)) {
        if span.state == State::Sleep && wait_reasons::is_until_answer(span) {
            let own = span.woken_ns.saturating_sub(span.at_ns);
            let sum = needed.entry(span.pid).or_default();
            *sum = sum.saturating_add(own.max(span.sampled_wait_ns));
        }
    }
    let without = |task: &&Task| {
        let needed = needed.get(&task.pid).copied().unwrap_or_default();
        let cycles = if needed > 0 { 0 } else { task.cycles };
        Task { sleep_ns: task.sleep_ns.saturating_sub(needed), cycles, ..(**task).clone() }
    };
    tasks.iter().map(without).collect()
}
