//! A spinner of this crate: pairs of threads; one waits and works, the other (the giver) keeps it waiting.
//!
//! The giver reads the CPU clock of the waiter, and ends the wait when the waiter has spent the planned CPU time: each wait costs the same
//! CPU time, however busy the host is. The giver has a higher priority than other tasks; otherwise a full host would extend the waits.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::account::Pen;
use super::plan::Plan;
use super::waits::Gift;
use crate::ledger::{Fact, Ledger, Word};
use crate::spec::Spec;
use crate::{Draw, sys, work};

struct Pair {
    asked: AtomicU32,
    gift: Box<dyn Gift>,
}

static PAIRS: OnceLock<Vec<Pair>> = OnceLock::new();

/// Shortest interval at which a giver reads the clock.
const LOOK_US: u64 = 100;
/// Longest wait, as a multiple of its CPU time: a thread that yields on a full host gets almost no CPU time.
const LASTS: u64 = 40;

/// Shared state of the threads, made before they start.
pub fn prepare(plan: &Plan) -> io::Result<()> {
    let pairs = (0..plan.pairs)
        .map(|_| Ok(Pair { asked: AtomicU32::new(0), gift: plan.wait.gift()? }))
        .collect::<io::Result<Vec<_>>>()?;
    PAIRS.set(pairs).map_err(|_| io::Error::other("prepared twice"))
}

/// One thread: say "ready", wait for the start, then play its part until the harness stops it.
pub fn run(spec: &Spec, plan: &Plan, ledger: &Ledger, slot: usize, ready: impl FnOnce()) -> io::Result<()> {
    if slot > 0 {
        sys::set_name(if plan.waits(slot) { &plan.waiter } else { &plan.giver });
    }
    if !plan.waits(slot) {
        sys::be_prompt()?;
    }
    let pair = PAIRS.get().and_then(|pairs| pairs.get(slot / 2)).ok_or(io::ErrorKind::NotFound)?;
    ready();
    let going = || ledger.word(Word::Stop).load(Ordering::Relaxed) == 0;
    if plan.waits(slot) {
        wait_and_work(spec, plan, pair, Pen::begin(ledger, slot), going);
    } else {
        give(plan, pair, ledger.fact(plan.partner(slot), Fact::Tid).load(Ordering::Acquire), going);
    }
    Ok(())
}

fn wait_and_work(spec: &Spec, plan: &Plan, pair: &Pair, mut pen: Pen<'_>, going: impl Fn() -> bool) {
    let mut draw = Draw::with(sys::thread_id());
    let mut round = 0_u32;
    let mut before = sys::cpu_ns();
    while going() {
        round = round.wrapping_add(1);
        pair.asked.store(round, Ordering::Release);
        sys::futex::wake_one(&pair.asked, false);
        pair.gift.wait(round);
        let waited = sys::cpu_ns();
        work::turn((plan.work_us as f64 * draw.real(0.5, 1.5) * spec.turns_per_us) as u64);
        if plan.rest_us > 0 {
            sys::sleep_us((plan.rest_us as f64 * draw.real(0.5, 1.5)) as u64);
        }
        let worked = sys::cpu_ns();
        pen.add(waited.saturating_sub(before), worked.saturating_sub(waited));
        before = worked;
    }
}

fn give(plan: &Plan, pair: &Pair, waiter: u64, going: impl Fn() -> bool) {
    let mut draw = Draw::with(waiter);
    let mut round = 0;
    pair.gift.keep();
    while going() {
        sys::futex::wait(&pair.asked, round, false);
        let asked = pair.asked.load(Ordering::Acquire);
        if asked == round {
            continue;
        }
        round = asked;
        let spin_ns = (plan.spin_us as f64 * draw.real(0.5, 1.5) * 1e3) as u64;
        let (until, last) = (sys::cpu_ns_of(waiter) + spin_ns, sys::monotonic_ns() + LASTS * spin_ns);
        while let left @ 1.. = until.saturating_sub(sys::cpu_ns_of(waiter))
            && sys::monotonic_ns() < last
        {
            sys::sleep_us((left / 1000).max(LOOK_US));
        }
        pair.gift.give(round);
    }
}
