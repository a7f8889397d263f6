//! The work of each thread of a lock chain, round after round. Runs in the victim process.

use std::io;
use std::sync::atomic::Ordering;

use super::links::{self, Object, Objects, Taken};
use super::{Link, Plan, ground_truth::Note, leaf, pool};
use crate::ledger::{Fact, Ledger, Word};
use crate::spec::Spec;
use crate::sys::{self, ReadyClock};

/// How often a thread checks the progress of another thread: it sleeps in between, so that no unintended wait arises.
const LOOK_US: u64 = 300;
/// Pause of a healthy lock chain's threads between two visits.
const PACE_US: u64 = 1_000;
/// CPU time that they use while they hold something, in us.
const BRIEF_US: u64 = 5;

/// One thread on its link.
struct Climber<'a> {
    spec: &'a Spec,
    plan: &'a Plan,
    objects: &'a Objects,
    ledger: &'a Ledger,
    slots: Vec<usize>,
    position: usize,
    began: u64,
    ready: ReadyClock,
}

/// One thread: say "ready", wait for the start, climb until the rounds are over or the harness stops it.
pub fn run(spec: &Spec, plan: &Plan, ledger: &Ledger, slot: usize, ready: impl FnOnce()) -> io::Result<()> {
    let position = plan.positions[slot];
    sys::set_name(&plan.names[position]);
    if position + 1 == plan.len() {
        for procs in &plan.leaf_joins {
            std::fs::write(procs, "0")?;
        }
    }
    let objects = Objects::here()?;
    let mut leaf = leaf::ready(plan, position, spec.turns_per_us)?;
    pool::start(plan, position)?;
    ready();
    let began = ledger.word(Word::Go).load(Ordering::Acquire);
    let ready = ReadyClock::of_this_thread();
    let me = Climber { spec, plan, objects, ledger, slots: plan.slots(), position, began, ready };
    if plan.healthy {
        me.walk()?;
    } else {
        for round in 0..plan.rounds.len() {
            if !me.round(round, &mut leaf)? {
                break;
            }
        }
    }
    // If the chain consists of processes, the first is the command that others wait for: it ends last.
    while plan.apart && slot == 0 && sys::kernel::wait_for_child() {}
    Ok(())
}

impl Climber<'_> {
    fn slot(&self) -> usize {
        self.slots[self.position]
    }

    fn fact(&self, position: usize, fact: Fact) -> u64 {
        self.ledger.fact(self.slots[position], fact).load(Ordering::Acquire)
    }

    fn goes_on(&self) -> bool {
        self.ledger.word(Word::Stop).load(Ordering::Relaxed) == 0
    }

    /// False: the harness stopped the chain first.
    fn until(&self, come: impl Fn() -> bool) -> bool {
        while !come() {
            if !self.goes_on() {
                return false;
            }
            sys::sleep_us(LOOK_US);
        }
        true
    }

    fn is_leaf(&self) -> bool {
        self.position + 1 == self.plan.len()
    }

    /// The link between this thread and the one above it.
    fn above(&self) -> Option<(Link, &dyn Object)> {
        let index = self.position.checked_sub(1)?;
        Some((self.plan.links[index], self.objects.of(index)))
    }

    /// Wait for this thread's turn: the leaf comes first and the top last; each thread starts when the one below it waits.
    fn turn(&self, round: usize) -> bool {
        let due = self.began + round as u64 * self.plan.every_us * 1000;
        let after = (self.plan.len() - 1 - self.position) as u64 * self.plan.step_us * 1000;
        sys::sleep_until(due + after);
        let round = round as u64;
        if self.is_leaf() {
            return self.until(|| (0..self.plan.len()).all(|p| self.fact(p, Fact::Ended) >= round));
        }
        let below = self.position + 1;
        // The thread below waits or has waited: on a busy host its short round may be over when this thread's turn comes.
        let has_waited = || self.fact(below, Fact::Ended) > round;
        let waits = || below >= self.plan.links.len() || self.objects.of(below).is_wanted() || has_waited();
        self.until(|| self.fact(below, Fact::Began) > round && waits())
    }

    fn round(&self, round: usize, leaf: &mut leaf::Leaf) -> io::Result<bool> {
        if !self.turn(round) {
            return Ok(false);
        }
        let taken = match self.above() {
            Some((link, object)) if !link.is_of_kernel() => object.take()?,
            _ => Taken::Nothing,
        };
        let ready = self.ready.ns();
        self.say(Fact::Began, round);
        let cpu = sys::kernel::cpu_ns();
        self.note(Note::Wants, round, sys::monotonic_ns());
        if self.is_leaf() {
            leaf.act(self.objects.last(), self.plan.rounds[round])?;
        } else {
            self.want()?;
        }
        self.note(Note::Got, round, sys::monotonic_ns());
        self.note(Note::Cpu, round, sys::kernel::cpu_ns() - cpu);
        self.note(Note::Ready, round, self.ready.ns() - ready);
        if links::came_unseen() {
            self.note(Note::Unseen, round, 1);
        }
        if let Some((_, object)) = self.above() {
            self.until(|| object.is_wanted());
            object.give(taken)?;
        }
        if !self.is_leaf() {
            self.objects.of(self.position).rest()?;
        }
        self.say(Fact::Ended, round);
        Ok(true)
    }

    fn want(&self) -> io::Result<()> {
        let wanted = self.objects.of(self.position);
        match self.above() {
            Some((link, held)) if link.is_of_kernel() => held.enter(wanted),
            _ => wanted.want(),
        }
    }

    fn say(&self, fact: Fact, round: usize) {
        self.ledger.fact(self.slot(), fact).store(round as u64 + 1, Ordering::Release);
    }

    fn note(&self, what: Note, round: usize, at: u64) {
        self.ledger.note(self.slot(), at, what.code(round));
    }

    /// The same locks, taken one by one, and held for a short time only.
    fn walk(&self) -> io::Result<()> {
        let mut tick = 0;
        while self.goes_on() {
            tick += 1;
            sys::sleep_until(self.began + tick * PACE_US * 1000);
            if let Some((_, object)) = self.above() {
                object.briefly(&|| leaf::compute(self.spec.turns_per_us, BRIEF_US))?;
            }
            if !self.is_leaf() {
                self.objects.of(self.position).pass()?;
            }
        }
        // Once more, for a thread that may wait for it already.
        self.above().map_or(Ok(()), |(_, object)| object.briefly(&|| ()))
    }
}
