//! The innermost loop around an address, from the code alone.

use std::collections::{BTreeMap, BTreeSet};

use super::step::{Effect, Flow, Step};

/// Instructions of one window of code, decoded on demand.
pub struct Code<F> {
    decode: F,
    length: usize,
    known: BTreeMap<usize, Option<Step>>,
}

/// A loop: its instructions, in order of address. Each can be reached from the first one, and leads back to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loop {
    /// The instructions of the cycle.
    pub steps: Vec<Step>,
}

impl Loop {
    /// The address of its first instruction.
    #[must_use]
    pub fn start(&self) -> usize {
        self.steps.first().map_or(0, |step| step.at)
    }

    /// The address behind its last instruction.
    #[must_use]
    pub fn end(&self) -> usize {
        self.steps.last().map_or(0, |step| step.next)
    }

    fn length(&self) -> usize {
        self.end().saturating_sub(self.start())
    }
}

impl<F: FnMut(usize) -> Option<Step>> Code<F> {
    /// A window of `length` bytes; `decode` returns the instruction at an offset.
    pub fn new(length: usize, decode: F) -> Self {
        Code { decode, length, known: BTreeMap::new() }
    }

    fn step(&mut self, at: usize) -> Option<Step> {
        let decode = &mut self.decode;
        *self.known.entry(at).or_insert_with(|| decode(at))
    }

    /// The innermost loop that holds the instruction at `at`.
    ///
    /// The search looks for jumps back after `at`: a sample's address is the begin of an instruction, and all code behind it
    /// can be decoded. A loop counts only if decoding from its own start reaches this instruction, too.
    ///
    /// A pause in an inner loop belongs to that inner loop: in the outer one it is an instruction like others.
    pub fn around(&mut self, at: usize) -> Option<Loop> {
        let mut found = self.innermost(at)?;
        for at in 0..found.steps.len() {
            let pause = found.steps.get(at).filter(|step| step.effect == Effect::Pause).map(|step| step.at);
            let Some(inner) = pause.and_then(|pause| self.innermost(pause)) else { continue };
            if inner.length() < found.length()
                && let Some(step) = found.steps.get_mut(at)
            {
                step.effect = Effect::Compute;
            }
        }
        Some(found)
    }

    fn innermost(&mut self, at: usize) -> Option<Loop> {
        let mut ends: Vec<(usize, usize)> = Vec::new();
        let mut next = at;
        while let Some(step) = self.step(next) {
            if let Some(start) = step.target().filter(|target| *target <= at) {
                ends.push((start, step.at));
            }
            next = step.next;
        }
        ends.sort_by_key(|(start, end)| (end.saturating_sub(*start), *end));
        ends.into_iter().find_map(|(start, end)| {
            let found = self.cycle(start, end)?;
            found.steps.iter().any(|step| step.at == at).then_some(found)
        })
    }

    /// The instructions between `start` and the jump back at `end` that are on a way from one to the other.
    fn cycle(&mut self, start: usize, end: usize) -> Option<Loop> {
        let mut steps = Vec::new();
        let mut at = start;
        while at <= end && at < self.length {
            let step = self.step(at)?;
            at = step.next;
            steps.push(step);
        }
        if steps.last()?.at != end {
            return None; // the jump back is not where decoding from the start has an instruction
        }
        let forward = reached(&steps, start, end);
        // Code without a way to the end (searched backwards from the end) leaves the loop.
        let mut lead = BTreeSet::from([end]);
        for step in steps.iter().rev() {
            if follow(step).into_iter().flatten().any(|next| next > step.at && lead.contains(&next)) {
                lead.insert(step.at);
            }
        }
        steps.retain(|step| forward.contains(&step.at) && lead.contains(&step.at));
        (steps.first()?.at == start).then_some(Loop { steps })
    }
}

fn follow(step: &Step) -> [Option<usize>; 2] {
    [step.goes_on().then_some(step.next), step.target()]
}

/// The instructions that can be reached from `start` without going back.
fn reached(steps: &[Step], start: usize, end: usize) -> BTreeSet<usize> {
    let mut seen = BTreeSet::from([start]);
    for step in steps {
        if seen.contains(&step.at) && step.at != end {
            seen.extend(follow(step).into_iter().flatten().filter(|next| *next > step.at));
        }
    }
    seen
}

/// Whether a step can leave the loop, and stay in it: such a step decides how long the loop lasts.
#[must_use]
pub fn decides(inside: &Loop, step: &Step) -> bool {
    let Flow::Branch(target) = step.flow else { return false };
    let within = |at: Option<usize>| at.is_some_and(|at| inside.steps.iter().any(|other| other.at == at));
    !(within(target) && within(Some(step.next)))
}
