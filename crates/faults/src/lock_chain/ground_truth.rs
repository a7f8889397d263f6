//! The truth of a lock chain, by its threads' own clock: which thread waited for which thread, in which order and for how long.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{Link, Plan};
use crate::clock::Span;
use crate::ledger::Ledger;
use crate::thresholds::slack_s;

/// What a thread records, with the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note {
    /// It begins to wait; the leaf begins to act.
    Wants = 1,
    /// It has got what it wanted; the leaf has acted.
    Got = 2,
    /// CPU time in between, stored in place of the moment.
    Cpu = 3,
    /// Time in between in which it was ready and had no CPU, stored the same way.
    Ready = 4,
    /// What it wanted arrived between two of its polls.
    Unseen = 5,
}

impl Note {
    pub fn code(self, round: usize) -> u64 {
        (round as u64) << 8 | self as u64
    }
}

/// One round that all threads completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Each thread's wait, by position; the last entry is the action of the leaf.
    pub waits: Vec<Span>,
    /// Time of each wait in which the thread was ready for a CPU, where the leaf may have kept the CPU from it; otherwise 0.
    pub ready: Vec<Duration>,
    /// Whether what the thread waited for arrived between two of its polls: then the sender ended no wait.
    pub unseen: Vec<bool>,
    /// CPU time of the leaf in the round.
    pub leaf_cpu: Duration,
}

/// If a thread was ready for a CPU for more than this part of a round, it waited for a CPU, not for the next thread: a leaf that computes
/// in the kernel may keep the CPU that a waiter needs to begin its wait.
const BROKEN: f64 = 0.5;

impl Round {
    /// The time in which all threads waited and the leaf acted: the part of the first thread's wait that the whole chain explains.
    #[must_use]
    pub fn together(&self) -> Span {
        self.from(0)
    }

    /// The same for the chain that begins at this position.
    #[must_use]
    pub fn from(&self, position: usize) -> Span {
        let waits = self.waits.get(position..).unwrap_or(&[]);
        let from = waits.iter().map(|wait| wait.from).max().unwrap_or(0);
        let to = waits.iter().map(|wait| wait.to).min().unwrap_or(0);
        Span { from, to: to.max(from) }
    }

    /// Whether a thread from this position on, except the leaf, waited for a CPU instead, or it is not visible which thread ended its wait.
    #[must_use]
    pub fn is_broken(&self, position: usize) -> bool {
        if self.unseen.iter().skip(position).any(|unseen| *unseen) {
            return true;
        }
        let all = self.from(position).length().as_secs_f64();
        let waiters = self.ready.len().saturating_sub(1);
        self.ready[..waiters].iter().skip(position).any(|ready| ready.as_secs_f64() > BROKEN * all)
    }

    /// Each thread began to wait after the one below it had. The ends of the waits say less: the kernel releases a lock before the system
    /// call that held it returns, and on a busy host the thread records that much later.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.waits.windows(2).all(|two| two[0].from >= two[1].from)
    }
}

/// Bounds of a time that whyslow should report: from the rounds that are wholly in the window, and from the parts of all rounds in the
/// window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// At least.
    pub least: f64,
    /// At most.
    pub most: f64,
    /// Rounds that took part.
    pub rounds: usize,
}

impl Bounds {
    /// Whether a time in seconds is within these bounds, give or take `thresholds::slack_s`.
    #[must_use]
    pub fn hold(&self, seconds: f64) -> bool {
        self.meet(seconds, seconds)
    }

    /// The same for a time that is reported as bounds: true if some time within them is.
    #[must_use]
    pub fn meet(&self, least: f64, most: f64) -> bool {
        most >= self.least - slack_s(self.least) && least <= self.most + slack_s(self.most)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4}..{:.4} s in {} rounds", self.least, self.most, self.rounds)
    }
}

/// All records of a lock chain's threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its whole rounds.
    pub rounds: Vec<Round>,
    /// Thread ids, by position.
    pub tids: Vec<u32>,
    /// Names, by position.
    pub names: Vec<String>,
}

impl Told {
    /// Read the records so far.
    #[must_use]
    pub fn read(ledger: &Ledger, plan: &Plan, tids: &[u32]) -> Self {
        let slots = plan.slots();
        let notes: Vec<BTreeMap<u64, u64>> = slots
            .iter()
            .map(|slot| ledger.notes(*slot).into_iter().map(|(at, what)| (what, at)).collect())
            .collect();
        // The leaf is in one long system call over addresses, which some kernels do not preempt.
        let keeps_its_cpu = matches!(plan.links.last(), Some(Link::AddressSpace { .. }));
        let round = |round: usize| {
            let wait = |notes: &BTreeMap<u64, u64>| {
                let at = |note: Note| notes.get(&note.code(round)).copied();
                Some(Span { from: at(Note::Wants)?, to: at(Note::Got)? })
            };
            let waits = notes.iter().map(wait).collect::<Option<Vec<_>>>()?;
            let ready = |notes: &BTreeMap<u64, u64>| {
                let ns = notes.get(&Note::Ready.code(round)).filter(|_| keeps_its_cpu);
                Duration::from_nanos(ns.copied().unwrap_or(0))
            };
            let cpu = notes.last()?.get(&Note::Cpu.code(round)).copied()?;
            let ready = notes.iter().map(ready).collect();
            let unseen = notes.iter().map(|notes| notes.contains_key(&Note::Unseen.code(round))).collect();
            Some(Round { waits, ready, unseen, leaf_cpu: Duration::from_nanos(cpu) })
        };
        Told {
            rounds: (0..plan.rounds.len()).map_while(round).collect(),
            tids: slots.iter().filter_map(|slot| tids.get(*slot).copied()).collect(),
            names: plan.names.clone(),
        }
    }

    fn bounds(&self, top: usize, window: Span, span: impl Fn(&Round) -> [Span; 2]) -> Bounds {
        let mut bounds = Bounds { least: 0.0, most: 0.0, rounds: 0 };
        for round in &self.rounds {
            let [least, most] = span(round);
            if most.from >= window.from && most.to <= window.to {
                bounds.least += if round.is_broken(top) { 0.0 } else { least.length().as_secs_f64() };
                bounds.rounds += 1;
            }
            let inside = Span { from: most.from.max(window.from), to: most.to.min(window.to) };
            bounds.most += inside.length().as_secs_f64();
        }
        bounds
    }

    /// Time explained by the chain from this position to the leaf.
    #[must_use]
    pub fn chain(&self, position: usize, window: Span) -> Bounds {
        self.bounds(position, window, |round| [round.from(position), round.from(position)])
    }

    /// Bounds of one hop in the chain from `top`: at least the time in which all below `top` waited, at most the hop's own wait.
    #[must_use]
    pub fn hop(&self, top: usize, position: usize, window: Span) -> Bounds {
        self.bounds(top, window, |round| {
            let all = round.from(top);
            [all, round.waits.get(position).copied().unwrap_or(all)]
        })
    }

    /// Lengths of the waits at this position in seconds, for those wholly in the window.
    #[must_use]
    pub fn waits(&self, position: usize, window: Span) -> Vec<f64> {
        let waits = self.rounds.iter().filter_map(|round| round.waits.get(position));
        let inside = waits.filter(|wait| wait.from >= window.from && wait.to <= window.to);
        inside.map(|wait| wait.length().as_secs_f64()).collect()
    }

    /// Share of its action that the leaf was on a CPU.
    #[must_use]
    pub fn leaf_on_cpu(&self) -> f64 {
        let acted = |round: &Round| round.waits.last().map_or(0.0, |wait| wait.length().as_secs_f64());
        let cpu: f64 = self.rounds.iter().map(|round| round.leaf_cpu.as_secs_f64()).sum();
        cpu / self.rounds.iter().map(acted).sum::<f64>().max(1e-9)
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, tid)) in self.names.iter().zip(&self.tids).enumerate() {
            let waits = self.waits(position, Span { from: 0, to: u64::MAX });
            let longest = waits.iter().copied().fold(0.0, f64::max);
            let what = if position + 1 == self.names.len() { "acted" } else { "waited" };
            writeln!(
                f,
                "    {position} {name} ({tid}) {what} {} times, {:.4} s, at most {longest:.4} s",
                waits.len(),
                waits.iter().sum::<f64>()
            )?;
        }
        write!(f, "    the leaf was on a CPU for {:.0} % of its time", self.leaf_on_cpu() * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(from: u64, to: u64) -> Span {
        Span { from: from * 1_000_000, to: to * 1_000_000 }
    }

    fn reported() -> Told {
        let round = |at: u64| Round {
            waits: vec![ms(at + 2, at + 52), ms(at + 1, at + 51), ms(at, at + 50)],
            ready: vec![Duration::ZERO; 3],
            unseen: vec![false; 3],
            leaf_cpu: Duration::from_millis(5),
        };
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        Told { rounds: vec![round(0), round(100), round(200)], tids: vec![1, 2, 3], names }
    }

    #[test]
    fn a_chain_explains_the_time_in_which_all_wait() {
        let reported = reported();
        assert!(reported.rounds.iter().all(Round::is_in_order));
        assert_eq!(reported.rounds[0].together(), ms(2, 50));
        let whole = reported.chain(0, ms(0, 1_000));
        assert!((whole.least - 0.144).abs() < 1e-9 && whole.least == whole.most && whole.rounds == 3);
        assert!((reported.leaf_on_cpu() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn rounds_that_the_window_cuts_may_be_reported_or_not() {
        let cut = reported().chain(0, ms(20, 220));
        assert!(
            (cut.least - 0.048).abs() < 1e-9 && (cut.most - (0.030 + 0.048 + 0.018)).abs() < 1e-9,
            "{cut}"
        );
        assert!(cut.hold(0.044) && cut.hold(0.100) && !cut.hold(0.042) && !cut.hold(0.107));
    }

    #[test]
    fn a_round_in_which_a_waiter_had_no_cpu_may_be_reported_or_not() {
        let mut broken = reported();
        broken.rounds[1].ready[1] = Duration::from_millis(30);
        broken.rounds[2].ready = vec![Duration::from_millis(4), Duration::ZERO, Duration::from_millis(40)];
        for bounds in [broken.chain(0, ms(0, 1_000)), broken.chain(1, ms(0, 1_000))] {
            assert!((bounds.most - 1.5 * bounds.least).abs() < 1e-9, "{bounds}");
        }
        let of_the_leaf = broken.chain(2, ms(0, 1_000));
        assert!(of_the_leaf.most == of_the_leaf.least, "{of_the_leaf}");
    }

    #[test]
    fn a_round_of_which_a_word_came_between_two_looks_may_be_reported_or_not() {
        let mut broken = reported();
        broken.rounds[1].unseen[1] = true;
        for (position, times) in [(0, 1.5), (1, 1.5), (2, 1.0)] {
            let bounds = broken.chain(position, ms(0, 1_000));
            assert!((bounds.most - times * bounds.least).abs() < 1e-9, "{bounds}");
        }
    }

    #[test]
    fn a_hop_lies_between_the_chain_and_its_own_wait() {
        let hop = reported().hop(0, 1, ms(0, 1_000));
        assert!((hop.least - 0.144).abs() < 1e-9 && (hop.most - 0.150).abs() < 1e-9);
        assert_eq!(reported().waits(0, ms(50, 1_000)).len(), 2);
    }
}
