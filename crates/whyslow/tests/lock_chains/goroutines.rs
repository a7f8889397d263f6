//! What the kernel, and thus whyslow, can know about a lock chain of goroutines.
//!
//! A thread that unlocks a Go mutex makes a goroutine runnable, in memory. A thread of Go's scheduler, which the unlocking thread has
//! woken, wakes the thread that the goroutine is locked to; one scheduler thread serves all links: the kernel sees that path, but not which
//! other threads waited in between. If no thread of the scheduler was idle, a thread that checks every 10 ms (sysmon) passes the wake-up
//! on: then the kernel sees a timer at the end of the wait, and does not see the leaf. How many waits end that way depends on Go and the
//! load; more waits do so further up the chain.
//!
//! So the document must report all of each waiter's time, and almost none of it as the action of another program: Go's threads pass
//! wake-ups on. The time reported down to the leaf must not exceed the clocks of the named threads, and must be a large part of the time of
//! the waiter that is reported best.

use std::collections::HashMap;

use serde_json::Value;
use whyslow_faults::Wrong;
use whyslow_faults::lock_chain::Leaf;

use crate::cell::Verb;
use crate::chains::{Way, ends_right, summary, ways};
use crate::climb::Climbed;

/// The name of Go's own threads.
const GOS: &str = "lock_chain-go";
/// Least share of the time of the best reported waiter that leads to the leaf. Small ends are not reported, and on a full host a leaf has
/// several ends.
const OF_A_SLEEP: f64 = 0.75;
const OF_A_DISK: f64 = 0.5;
/// While a leaf computes, sysmon checks all the time, and its timer may end any round. A grace period may be shorter than the time for
/// which a thread of Go's scheduler waits for a CPU before it passes the wake-up on.
const OF_OTHERS: f64 = 0.1;

/// Whether whyslow reported what can be known about this lock chain.
pub fn judge(climbed: &Climbed) -> Result<(), Wrong> {
    let trouble = |what: String| -> String { format!("{what}\n{climbed}\n{}", summary(climbed)) };
    if climbed.verb == Verb::Run && climbed.look.document["wall"]["wall_s"].as_f64().is_none() {
        return Err(trouble("no wall time".to_owned()).into());
    }
    let waiters = climbed.plan.len() - 1;
    let mut best = 0.0_f64;
    for position in 0..waiters {
        let inexact = |what: String| Wrong::inexact(trouble(what));
        is_inside(climbed, position).map_err(|wrong| wrong.told(trouble))?;
        best = best.max(to_the_leaf(climbed, position).map_err(inexact)?);
    }
    let least = match climbed.plan.leaf {
        Leaf::Sleep => OF_A_SLEEP,
        Leaf::Disk => OF_A_DISK,
        _ => OF_OTHERS,
    };
    if best < least {
        let what = format!("of no waiter more than {best:.2} of its time is reported down to the leaf");
        return Err(Wrong::missed(trouble(what)));
    }
    Ok(())
}

/// Checks that all of this waiter's time is reported, and none of it as the action of another program.
fn is_inside(climbed: &Climbed, position: usize) -> Result<(), Wrong> {
    let own = climbed.reported.hop(position, position, climbed.window);
    let seconds = |value: &Value| value.as_f64().unwrap_or(0.0);
    let (mut all, mut outside) = (0.0, 0.0);
    for chain in climbed.look.document["chains"].as_array().into_iter().flatten() {
        let hops = chain["hops"].as_array().map_or(&[][..], Vec::as_slice);
        let is_its = |at: usize| names(chain, at).any(|name| name == climbed.reported.names[position]);
        // A chain that is the lower end of another one is not reported again.
        let Some((at, hop)) =
            hops.iter().enumerate().find(|(at, hop)| hop["reason"] == "futex" && is_its(*at))
        else {
            continue;
        };
        all += seconds(&hop["lost_s"]);
        outside += if at == 0 && leads_out(climbed, chain, hops) { seconds(&chain["time_s"]) } else { 0.0 };
    }
    let what = || {
        format!(
            "position {position}: {all:.4} s reported, {outside:.4} s of it as the action of others, by its own clock {own}"
        )
    };
    if outside > (own.most * 0.10).max(0.005) {
        return Err(Wrong::accused(what()));
    }
    match own.meet(0.0, all) {
        true => Ok(()),
        false if all > 0.0 => Err(Wrong::inexact(what())),
        false => Err(Wrong::missed(what())),
    }
}

/// Whether a chain continues to a thread of another program, other than through the leaf or a wait for a CPU.
fn leads_out(climbed: &Climbed, chain: &Value, hops: &[Value]) -> bool {
    let leaf = climbed.reported.names.last();
    for (at, hop) in hops.iter().enumerate() {
        if names(chain, at).any(|name| name != GOS && !climbed.reported.names.iter().any(|own| own == name)) {
            return true;
        }
        if hop["reason"] == "runnable" || names(chain, at).any(|name| leaf.is_some_and(|leaf| leaf == name)) {
            return false;
        }
    }
    false
}

fn names(chain: &Value, hop: usize) -> impl Iterator<Item = &str> {
    let tasks = chain["tasks"][hop].as_array().map_or(&[][..], Vec::as_slice);
    tasks.iter().filter_map(|task| task[1].as_str())
}

/// The part of this waiter's time that is reported down to the leaf, if all of that was correct.
fn to_the_leaf(climbed: &Climbed, position: usize) -> Result<f64, String> {
    let ways = ways(climbed, position);
    let ways: Vec<&Way<'_>> = ways.iter().filter(|way| way.top == position).collect();
    for way in &ways {
        for (hop, link) in way.positions.iter().enumerate() {
            let (own, reported) = (climbed.reported.hop(position, *link, climbed.window), way.lost_s(hop));
            if !own.meet(reported, f64::INFINITY) {
                return Err(format!("{position}, hop {link}: {reported:.4} s, by its own clock {own}"));
            }
        }
    }
    let own = climbed.reported.hop(position, position, climbed.window);
    let all: f64 = ways.iter().map(|way| way.time_s()).sum();
    if !own.meet(all, f64::INFINITY) {
        return Err(format!("{position}: {all:.4} s down to the leaf, by its own clock {own}"));
    }
    if !ways.is_empty() && !ways.iter().any(|way| ends_right(climbed, &way.end())) {
        let ends: Vec<Vec<&str>> = ways.iter().map(|way| way.end()).collect();
        return Err(format!("{:?} at the leaf is reported as {ends:?}", climbed.plan.leaf));
    }
    // Ways with the same first hops report the same waits: the longest of them counts surely, whatever small ends it has.
    let mut surely: HashMap<_, f64> = HashMap::new();
    for way in &ways {
        let leaf = way.positions.len().saturating_sub(1);
        let longest = surely.entry(way.begin(leaf)).or_default();
        *longest = longest.max(way.lost_s(leaf));
    }
    Ok(all.max(surely.values().sum()) / own.least.max(1e-9))
}
