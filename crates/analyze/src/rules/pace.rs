//! Whether a task's own sleeps make up for its waits. A task that keeps a pace sleeps less after a long wait. A task that rests for a
//! fixed time between two requests sleeps as long as ever.
//!
//! A rest is a sleep of the task's own accord. A row is one sleep or wait in the timeline; shorter ones have no row, only a sum.

mod slope;

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::timeline::{Span, Stack, State};
use whyslow_model::wait::Reason;

use crate::Evidence;
use crate::graph::CHAIN_THRESHOLD;
use crate::stacks::symbol;
use crate::wait_reasons::{
    self, Class, Stacks, TICK, asks_each_time, comes_each_time, is_answer, is_woken_for_nothing, socket,
    task_behind,
};

/// With fewer sleeps of either sort there is no mean.
const ENOUGH: u64 = 3;
/// Sleeps after long waits make up for these only if they are shorter by this part of the waits or more.
const MADE_UP: f64 = 0.2;

/// A task is late if the time between a long wait and the next one is less than half as long as the first wait. A late task that sleeps for
/// this part of that time does not hurry.
const UNHURRIED: f64 = 0.2;

/// A task's sleeps: those after a long wait, and the others.
#[derive(Debug, Clone, Copy, Default)]
struct Sleeps {
    after: (u64, f64),
    other: (u64, f64),
    /// Long waits: their number, and their sum.
    waits: (u64, f64),
    /// The sum of the waits since the last sleep.
    unrested: f64,
    /// Such sums, each with the sleep after it.
    pairs: slope::Pairs,
    /// The last wait ended for nothing, so the next one continues it.
    goes_on: bool,
    /// The task waited long, and has not slept since.
    waited: bool,
    /// The last wait was the refusal of a lock, so the next one continues it.
    refused: bool,
    /// The last sleep; with the sleep before it, if the window cut that one.
    nap: u64,
    nap_was_cut: bool,
    /// The last wait for the reason in question that has a row.
    last: f64,
    /// The time since that wait, and the part of it that the task slept.
    gap: (f64, f64),
    /// Such waits.
    told: u64,
    /// Such waits after which the task was late and did not hurry.
    unhurried: u64,
    /// Stacks show that the task slept of its own accord for some time.
    rests: bool,
    /// Rows show that the task slept of its own accord.
    rested: bool,
}

impl Sleeps {
    fn waited(&mut self, ns: f64, goes_on: bool) {
        self.unrested += ns;
        if goes_on && self.waited {
            self.waits.1 += ns;
            return;
        }
        if self.waited {
            self.slept(0.0);
        }
        self.waited = true;
        self.waits = (self.waits.0 + 1, self.waits.1 + ns);
    }

    /// The time since the last wait goes on. Of sleeps that are too short for a row only the sum is known.
    fn goes_on(&mut self, ns: u64, slept_ns: u64) {
        self.gap.0 += ns as f64;
        self.gap.1 += slept_ns as f64;
    }

    /// The time since the last wait ends with another such wait, or with the next part of the same wait.
    fn waits_again(&mut self, ns: u64, goes_on: bool) {
        if goes_on {
            self.last += ns as f64;
            self.gap = (0.0, 0.0);
            return;
        }
        let (gap, slept) = std::mem::take(&mut self.gap);
        let is_late = gap < self.last / 2.0;
        self.unhurried += u64::from(is_late && slept > 0.0 && slept >= UNHURRIED * gap);
        self.told += u64::from(self.last > 0.0);
        self.last = ns as f64;
    }

    /// `is_next`: the task has not slept between the last sleep and this one.
    fn napped(&mut self, ns: u64, is_cut: bool, is_next: bool) {
        self.nap = if self.nap_was_cut && is_next { self.nap.saturating_add(ns) } else { ns };
        self.nap_was_cut = is_cut;
    }

    /// A row says that a sleep follows a refusal only from the second refusal on. So the sleep just before it followed a refusal, too.
    fn unseen_refusal(&mut self, is_refusal: bool) -> u64 {
        let nap = std::mem::take(&mut self.nap);
        self.nap_was_cut = false;
        if is_refusal && !self.refused { nap } else { 0 }
    }

    fn slept(&mut self, ns: f64) {
        self.rested |= ns > 0.0;
        if ns > 0.0 && self.unrested > 0.0 {
            self.pairs.note(std::mem::take(&mut self.unrested), ns);
        }
        let sort = if self.waited { &mut self.after } else { &mut self.other };
        *sort = (sort.0 + 1, sort.1 + ns);
        self.waited = false;
    }

    fn are_as_ever(&self) -> bool {
        let mean = |(count, ns): (u64, f64)| if count >= ENOUGH { Some(ns / count as f64) } else { None };
        let wait = self.waits.1 / self.waits.0.max(1) as f64;
        // A task that keeps a pace sleeps longest where no wait came before. No sleep can make up for more than that.
        match (mean(self.after), mean(self.other)) {
            (after, Some(other)) if other - after.unwrap_or(0.0) < MADE_UP * wait => true,
            (Some(_), Some(_)) => false,
            _ => self.pairs.is_flat(MADE_UP) || self.does_not_hurry(),
        }
    }

    /// The task was not seen to rest.
    fn has_no_rest(&self) -> bool {
        self.waits.0 > 0 && !self.rested && !self.rests
    }

    /// The task's rests are too short for rows, and it takes them although it is late.
    fn does_not_hurry(&self) -> bool {
        self.rests && self.unhurried >= ENOUGH && self.unhurried * 2 >= self.told
    }
}

/// How a task sleeps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// The task's sleeps do not make up for its waits.
    pub is_none: bool,
    /// Sleeps that the window cut, and that may have been waits for the reason in question. It is not known whether the task had sent a request
    /// before them.
    pub cut_ns: u64,
    /// Sleeps that an answer to a known request ended: they are no rests of a client.
    pub answered_ns: u64,
    /// The task takes rests that are too short for rows, although it is late.
    pub unhurried: bool,
    /// The task was not seen to rest: its sleeps without a row are waits that are too short for a row.
    pub has_no_rest: bool,
    /// For a client that sends a request before each wait that has a row: how long it slept in waits that are too short for a row, and how long in
    /// such waits by the stacks of its sleeps. The caller sets the bound for the rest (`one_end.rs`, `UNSEEN`).
    pub short: Option<Short>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Short {
    pub ns: u64,
    /// Sleeps for the reason in question, by their stacks.
    pub alike_ns: u64,
}

/// Waits that an answer ended: those with a known request, and those without one.
#[derive(Debug, Clone, Default)]
struct Answers {
    sockets: BTreeSet<u64>,
    asked: (u64, u64),
    other_ns: u64,
    others: u64,
    /// The task had sent its request when a wait began, and that wait ended for nothing. The next wait continues it.
    goes_on: bool,
}

impl Answers {
    fn ended_for_nothing(&mut self, ns: u64) {
        self.asked.1 = self.asked.1.saturating_add(ns);
        self.goes_on = true;
    }

    fn note(&mut self, row: &Span, ns: u64) {
        let sent = task_behind(row).and_then(|waker| waker.delivery.as_ref()?.sent_before_ns);
        self.sockets.extend(socket(row));
        let had_asked = std::mem::take(&mut self.goes_on) || row.asked;
        if had_asked || sent.is_some_and(|before| before <= ns.saturating_add(TICK)) {
            self.asked = (self.asked.0 + 1, self.asked.1.saturating_add(ns));
        } else {
            (self.others, self.other_ns) = (self.others + 1, self.other_ns.saturating_add(ns));
        }
    }

    fn all_were_asked(&self) -> bool {
        self.asked.0 > 0 && self.others == 0
    }

    fn asked_ns(&self) -> u64 {
        let all = self.asked.0.saturating_add(self.others);
        let each_time = asks_each_time(self.asked.0, all) || comes_each_time(self.sockets.len() as u64, all);
        if each_time { self.asked.1.saturating_add(self.other_ns) } else { self.asked.1 }
    }
}

/// The least share of the window that a thread's stacks must show as rests. It is small: a long wait that comes after short sleeps is sampled in
/// their place.
const RESTS: f64 = 0.001;

/// A thread's sleeps by their stacks. The stacks also stand for sleeps that are too short for rows.
#[derive(Debug, Clone, Copy, Default)]
struct Stacked {
    /// Sleeps of its own accord.
    naps_ns: u64,
    /// Sleeps for the reason in question.
    alike_ns: u64,
}

fn stacked(ev: &Evidence<'_>, pids: &BTreeSet<u32>, reason: Reason) -> BTreeMap<u32, Stacked> {
    const NAPS: [&str; 2] = ["do_nanosleep", "hrtimer_nanosleep"];
    let mut all: BTreeMap<u32, Stacked> = BTreeMap::new();
    for wait in ev.waits().unwrap_or_default().iter().filter(|wait| pids.contains(&wait.pid)) {
        let stack = [Stack { id: 0, kernel: wait.kernel.clone(), user: Vec::new() }];
        let row = Span { stack: Some(0), state: State::Sleep, ..Span::default() };
        let sum = all.entry(wait.pid).or_default();
        if wait.kernel.iter().any(|frame| NAPS.contains(&symbol(frame))) {
            sum.naps_ns = sum.naps_ns.saturating_add(wait.ns);
        } else if wait.state == "sleep" && wait_reasons::of(&row, &Stacks::of(&stack)).reason == reason {
            sum.alike_ns = sum.alike_ns.saturating_add(wait.ns);
        }
    }
    all
}

/// How each of these tasks sleeps between waits for this reason.
pub(super) fn paces(ev: &Evidence<'_>, pids: &BTreeSet<u32>, reason: Reason) -> BTreeMap<u32, Pace> {
    let stacks = ev.stacks();
    let mut rows: Vec<&Span> = ev.spans().unwrap_or_default().iter().collect();
    rows.retain(|row| pids.contains(&row.pid));
    rows.sort_by_key(|row| (row.pid, row.at_ns));
    let mut all: BTreeMap<u32, (Sleeps, Answers, u64)> = BTreeMap::new();
    let mut short: BTreeMap<u32, u64> = BTreeMap::new();
    for row in rows {
        let (sleeps, answers, cut_ns) = all.entry(row.pid).or_default();
        let short = short.entry(row.pid).or_default();
        *short = short.saturating_add(row.mixed.sleep_ns);
        sleeps.goes_on(row.at_ns.saturating_sub(row.from_ns), row.mixed.sleep_ns);
        let ns = row.woken_ns.saturating_sub(row.at_ns);
        if ns == 0 {
            sleeps.goes_on(row.to_ns.saturating_sub(row.at_ns), 0);
            continue;
        }
        let kind = wait_reasons::of(row, stacks);
        let is_it = row.state == State::Sleep && kind.reason == reason;
        if is_it && (row.open || row.at_ns == 0) {
            *cut_ns = cut_ns.saturating_add(ns);
        } else if is_it && is_woken_for_nothing(row) {
            answers.ended_for_nothing(ns);
        } else if is_it && task_behind(row).is_some_and(|waker| is_answer(row, waker)) {
            answers.note(row, ns);
        }
        let goes_on = row.refused && sleeps.refused || std::mem::take(&mut sleeps.goes_on);
        sleeps.goes_on = is_woken_for_nothing(row);
        let is_sleep = row.state == State::Sleep && kind.class == Class::Timer;
        match is_sleep {
            true => sleeps.napped(ns, row.at_ns == 0, row.mixed.sleep_ns == 0),
            false => {
                let is_next = row.refused && row.mixed.sleep_ns == 0;
                *cut_ns = cut_ns.saturating_add(sleeps.unseen_refusal(is_next));
            }
        }
        sleeps.refused = row.refused;
        if is_sleep {
            sleeps.slept(ns as f64);
            sleeps.goes_on(ns, ns);
            continue;
        }
        if kind.reason == reason {
            sleeps.waits_again(ns, goes_on);
        } else {
            sleeps.goes_on(ns, 0);
        }
        if u128::from(ns) >= CHAIN_THRESHOLD.as_nanos() {
            sleeps.waited(ns as f64, goes_on);
        }
    }
    let stacked = stacked(ev, pids, reason);
    let least = RESTS * ev.window().as_nanos() as f64;
    let pace = |(pid, (sleeps, answers, cut_ns)): (u32, (Sleeps, Answers, u64))| {
        let Stacked { naps_ns, alike_ns } = stacked.get(&pid).copied().unwrap_or_default();
        let sleeps = Sleeps { rests: naps_ns > 0 && naps_ns as f64 >= least, ..sleeps };
        let (is_none, unhurried) = (sleeps.are_as_ever(), sleeps.does_not_hurry());
        let has_no_rest = sleeps.has_no_rest();
        let answered_ns = answers.asked_ns();
        let ns = short.get(&pid).copied().unwrap_or_default();
        let short = (reason == Reason::Socket && answers.all_were_asked()).then_some(Short { ns, alike_ns });
        (pid, Pace { is_none, unhurried, has_no_rest, cut_ns, answered_ns, short })
    };
    all.into_iter().map(pace).collect()
}

#[cfg(test)]
mod tests;
