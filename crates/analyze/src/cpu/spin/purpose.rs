//! The purpose of a loop: does it work, or does it wait for another thread?
//!
//! A loop that only waits does the same in each turn as long as no other thread writes to memory: it stores nothing, and all that
//! it carries from turn to turn stays the same, except counters that only its own end depends on. The code itself shows this; nothing
//! is guessed from where time goes. A checksum, a sum over an array and a search along a list each carry a value
//! that is computed from its old value.

use std::collections::BTreeMap;

use super::loops::{Loop, decides};
use super::step::{Effect, FLAGS, Flow, Places, Step};

/// What a loop is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The loop itself tells the CPU that it waits (PAUSE; YIELD, ISB or WFE).
    Pauses,
    /// It reads the same memory again and again until another thread changes it.
    Polls,
    /// The same, with a limited number of turns.
    PollsCounted,
    /// It reads a clock until a set time.
    Clock,
    /// It does nothing, forever.
    Empty,
    /// It may do work; the reason to think so.
    Works(&'static str),
}

/// The value of one place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Value {
    /// The value follows from what these places held when the turn began.
    from: Places,
    /// The value is what this one register or slot held, plus a constant.
    step: Option<u32>,
    /// The value depends on memory that other threads may write to, or on a clock.
    outside: bool,
    /// The value depends on a clock.
    clock: bool,
}

type Values = BTreeMap<u32, Value>;

/// What a loop is for.
#[must_use]
pub fn purpose(around: &Loop) -> Purpose {
    if around.steps.iter().any(|step| step.effect == Effect::Pause) {
        return Purpose::Pauses;
    }
    let work = around.steps.iter().find_map(|step| match step.effect {
        Effect::Work(what) => Some(what),
        _ => None,
    });
    if let Some(what) = work {
        return Purpose::Works(what);
    }
    let written = around.steps.iter().fold(0, |all, step| all | step.writes);
    if around.steps.iter().any(|step| step.frame & written != 0) {
        return Purpose::Works("it moves its stack frame");
    }
    Turn::of(around, written).judge(around)
}

/// One turn of the loop, from its start to the jump back.
struct Turn {
    written: Places,
    last: Values,
    /// The places from which addresses and stored values follow.
    addressed: Places,
    stored: Places,
    /// The values that decide whether there is one more turn.
    decisions: Vec<Value>,
}

fn bits(places: Places) -> impl Iterator<Item = u32> {
    (0..64).filter(move |bit| places >> bit & 1 == 1)
}

/// Both parts of a register count as one.
fn owner(place: u32) -> u32 {
    if place < 32 { place & 15 } else { place }
}

fn held(values: &Values, place: u32) -> Value {
    let begin = Value { from: 1 << place, step: Some(owner(place)), ..Value::default() };
    values.get(&place).copied().unwrap_or(begin)
}

/// The values of all these places, together.
fn all(values: &Values, places: Places) -> Value {
    bits(places).map(|place| held(values, place)).fold(Value::default(), |a, b| Value {
        from: a.from | b.from,
        step: None,
        outside: a.outside | b.outside,
        clock: a.clock | b.clock,
    })
}

fn merged(a: &Values, b: &Values) -> Values {
    let places: std::collections::BTreeSet<u32> = a.keys().chain(b.keys()).copied().collect();
    let one = |place: u32| {
        let (a, b) = (held(a, place), held(b, place));
        let step = a.step.filter(|step| b.step == Some(*step));
        let (outside, clock) = (a.outside | b.outside, a.clock | b.clock);
        (place, Value { from: a.from | b.from, step, outside, clock })
    };
    places.into_iter().map(one).collect()
}

impl Turn {
    fn of(around: &Loop, written: Places) -> Turn {
        let mut turn = Turn { written, last: Values::new(), addressed: 0, stored: 0, decisions: Vec::new() };
        let mut arriving: BTreeMap<usize, Values> = BTreeMap::from([(around.start(), Values::new())]);
        // All code after an inner branch depends on what the branch depends on.
        let mut branched = Value::default();
        for step in &around.steps {
            let Some(mut values) = arriving.remove(&step.at) else { continue };
            turn.note(around, step, &values, &mut branched);
            after(step, &mut values, written, branched);
            for next in [step.goes_on().then_some(step.next), step.target()].into_iter().flatten() {
                if next > step.at {
                    let there = arriving.get(&next).map_or_else(|| values.clone(), |v| merged(v, &values));
                    arriving.insert(next, there);
                } else if next == around.start() {
                    turn.last =
                        if turn.last.is_empty() { values.clone() } else { merged(&turn.last, &values) };
                }
            }
        }
        turn
    }

    fn note(&mut self, around: &Loop, step: &Step, values: &Values, branched: &mut Value) {
        self.addressed |= all(values, step.address).from;
        if let Effect::Exchange { stored } = step.effect {
            self.stored |= all(values, stored).from;
        }
        if let Flow::Branch(_) = step.flow {
            let mut on = all(values, step.reads);
            on.outside |= step.loads || is_unwritten_slot(step, self.written);
            if decides(around, step) || step.target() == Some(around.start()) {
                self.decisions.push(on);
            } else {
                branched.from |= on.from;
                branched.outside |= on.outside;
                branched.clock |= on.clock;
            }
        }
    }

    fn judge(&self, around: &Loop) -> Purpose {
        let general = self.written & !FLAGS;
        let now = |place: u32| held(&self.last, place);
        let is_counter = |place: u32| {
            let value = now(place);
            value.step == Some(owner(place)) && bits(value.from).all(|from| owner(from) == owner(place))
        };
        let counters = bits(general).filter(|place| is_counter(*place)).fold(0, |a, p| a | 1 << p);
        let carried = self.carried(general & !counters);
        if carried & general != 0 {
            return Purpose::Works("it carries a result from turn to turn");
        }
        let uses = bits(general & !counters).map(now).filter(|value| value.step.is_none());
        let used = uses.fold(self.addressed, |a, value| a | value.from);
        if used & counters != 0 {
            return Purpose::Works("it counts, and uses the count");
        }
        if self.stored & general != 0 {
            return Purpose::Works("it stores what it has computed");
        }
        let clock = around.steps.iter().any(|step| step.effect == Effect::Clock);
        let outside = self.decisions.iter().any(|on| on.outside && on.from & counters == 0);
        match (clock, outside, counters != 0) {
            (true, ..) if self.decisions.iter().any(|on| on.clock) => Purpose::Clock,
            // The kernel's vDSO reads the time like this: it repeats only if the kernel changed the time meanwhile.
            (true, ..) => Purpose::Works("it reads a clock, and does not wait for it"),
            (_, true, false) => Purpose::Polls,
            (_, true, true) => Purpose::PollsCounted,
            (_, false, true) => Purpose::Works("it counts"),
            (_, false, false) if self.decisions.is_empty() => Purpose::Empty,
            (_, false, false) => Purpose::Works("its end is not seen"),
        }
    }

    /// Places whose value in the next turn follows, over any number of turns, from their own value.
    fn carried(&self, of: Places) -> Places {
        let mut left = of | FLAGS & self.written;
        // Remove places that follow from none of those left, until none is removed: cycles stay, and what follows from them.
        loop {
            let settled = bits(left).filter(|place| held(&self.last, *place).from & left == 0);
            let settled = settled.fold(0, |a, place| a | 1 << place);
            if settled == 0 {
                return left;
            }
            left &= !settled;
        }
    }
}

/// A slot of the stack frame that the loop does not write: another thread may write to it.
fn is_unwritten_slot(step: &Step, written: Places) -> bool {
    step.frame != 0 && step.reads & !0xffff_ffff & !FLAGS & !written != 0
}

/// The values of all places after a step.
fn after(step: &Step, values: &mut Values, written: Places, branched: Value) {
    let of = match step.effect {
        Effect::Step { from } => {
            let mut steps = bits(from).map(|place| held(values, place).step);
            let first = steps.next().flatten();
            let step = first.filter(|first| steps.all(|other| other == Some(*first)));
            Value { step, ..all(values, from) }
        }
        Effect::Exchange { .. } => Value { outside: true, ..all(values, step.address) },
        Effect::Clock => Value { outside: true, clock: true, ..Value::default() },
        _ => all(values, step.reads),
    };
    let outside = of.outside || step.loads || is_unwritten_slot(step, written);
    let (outside, clock) = (outside || branched.outside, of.clock || branched.clock);
    let value = Value { from: of.from | branched.from, outside, clock, ..of };
    for place in bits(step.writes) {
        let step = if 1 << place == FLAGS { None } else { value.step };
        values.insert(place, Value { step, ..value });
    }
}
