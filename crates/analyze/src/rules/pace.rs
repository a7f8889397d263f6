//! Whether a task's own sleeps make up for its waits: one that keeps a pace sleeps less after a long wait, one that rests so long
//! between two requests sleeps as ever.

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
/// Sleeps after long waits that are shorter by less than this part of those waits do not make up for them.
const MADE_UP: f64 = 0.2;

/// Who sleeps for this part of the time between a long wait and what it does next, though that time is not half as long as the wait, is late
/// and does not hurry.
const UNHURRIED: f64 = 0.2;

/// Sleeps after a long wait, and the others.
#[derive(Debug, Clone, Copy, Default)]
struct Sleeps {
    after: (u64, f64),
    other: (u64, f64),
    /// Long waits: how many, how long together.
    waits: (u64, f64),
    /// How long they were together since the last sleep, and that with the sleep after it.
    unrested: f64,
    pairs: slope::Pairs,
    /// The last one ended for nothing.
    goes_on: bool,
    /// It waited long, and has not slept since.
    waited: bool,
    /// Its last wait was the refusal of a lock: the next one goes on with it.
    refused: bool,
    /// Its last sleep, with the one before it if the window cut that.
    nap: u64,
    nap_was_cut: bool,
    /// The last wait for what is asked about that has a row; and the time since, with what it slept of that.
    last: f64,
    gap: (f64, f64),
    /// Such waits, and those after which it did not hurry, though it was late.
    told: u64,
    unhurried: u64,
    /// Of what it slept stacks say that some was of its own accord.
    rests: bool,
    /// ... or rows do.
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

    /// Such a time goes on. Of sleeps that are too short for a row only the sum is known.
    fn goes_on(&mut self, ns: u64, slept_ns: u64) {
        self.gap.0 += ns as f64;
        self.gap.1 += slept_ns as f64;
    }

    /// It ends with such a wait, or with the next part of it.
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

    /// `is_next`: it has not slept between the last one and this.
    fn napped(&mut self, ns: u64, is_cut: bool, is_next: bool) {
        self.nap = if self.nap_was_cut && is_next { self.nap.saturating_add(ns) } else { ns };
        self.nap_was_cut = is_cut;
    }

    /// A sleep is told as a refusal from the second on, and the one just before that came after a refusal, too.
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
        // Of a task that keeps a pace the sleeps without a wait before them are the longest: none makes up for more than that.
        match (mean(self.after), mean(self.other)) {
            (after, Some(other)) if other - after.unwrap_or(0.0) < MADE_UP * wait => true,
            (Some(_), Some(_)) => false,
            _ => self.pairs.is_flat(MADE_UP) || self.does_not_hurry(),
        }
    }

    /// No rest of its was seen.
    fn has_no_rest(&self) -> bool {
        self.waits.0 > 0 && !self.rested && !self.rests
    }

    /// Its rests are too short for rows, and it takes them though it is late.
    fn does_not_hurry(&self) -> bool {
        self.rests && self.unhurried >= ENOUGH && self.unhurried * 2 >= self.told
    }
}

/// How a task sleeps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Its sleeps do not make up for what it waited.
    pub is_none: bool,
    /// Sleeps that may have been for what it is asked about, and that the window cut: whether it had asked is not known of those.
    pub cut_ns: u64,
    /// Sleeps that an answer ended for which it was seen to have asked: a client does not rest so.
    pub answered_ns: u64,
    /// It takes rests that are too short for rows, though it is late.
    pub unhurried: bool,
    /// It was not seen to rest: what it slept beside waits that have rows is waits that are too short for one.
    pub has_no_rest: bool,
    /// Of a client that asks before each of its waits for answers that have rows: how long it slept in waits that are too short for one, by
    /// stacks of its sleeps, and of how many sleeps those tell. How much may be left over is the caller's bound (`one_end.rs`, `UNSEEN`).
    pub short: Option<Short>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Short {
    pub ns: u64,
    /// Sleeps for what is asked about, by their stacks.
    pub alike_ns: u64,
}

/// Answers, as far as they were asked for, and those of which that was not seen.
#[derive(Debug, Clone, Default)]
struct Answers {
    sockets: BTreeSet<u64>,
    asked: (u64, u64),
    other_ns: u64,
    others: u64,
    /// It had asked when its wait began, which then ended for nothing: the next one goes on with it.
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

/// Threads that were seen to sleep of their own accord, by the stacks of their sleeps. A long wait that comes after short sleeps stands for
/// them: those that are seen so are few.
const RESTS: f64 = 0.001;

/// What a thread's sleeps were by their stacks, which stand for those that are too short for rows, too.
#[derive(Debug, Clone, Copy, Default)]
struct Stacked {
    /// Of its own accord.
    naps_ns: u64,
    /// For what is asked about.
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

/// Of these tasks, how they sleep between waits for such a reason.
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
        let is_sleep = row.state == State::Sleep && kind.class == Class::Voluntary;
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
