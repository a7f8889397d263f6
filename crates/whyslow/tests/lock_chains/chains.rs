//! Whether the chain is reported: its threads, their order, the time of each hop, the action of the leaf.

use std::collections::HashMap;

use serde_json::Value;
use whyslow_faults::Wrong;
use whyslow_faults::lock_chain::{Leaf, Link, LinkKind};

use crate::cell::Verb;
use crate::climb::Climbed;
use crate::goroutines;

/// A reported chain of this lock chain.
pub struct Way<'d> {
    value: &'d Value,
    /// The position of its first waiter.
    pub top: usize,
    /// The positions that it names, from `top` to the leaf; all of them, except for a Go lock chain.
    pub positions: Vec<usize>,
    /// The hop of each of them.
    hops: Vec<&'d Value>,
}

impl Way<'_> {
    pub fn time_s(&self) -> f64 {
        self.value["time_s"].as_f64().unwrap_or(0.0)
    }

    pub fn lost_s(&self, hop: usize) -> f64 {
        self.hops.get(hop).and_then(|hop| hop["lost_s"].as_f64()).unwrap_or(0.0)
    }

    /// The key of its first hops, which another way may share.
    pub fn begin(&self, hop: usize) -> Vec<(&str, &str, usize)> {
        let hops = self.hops.iter().take(hop + 1).zip(&self.positions);
        hops.map(|(hop, position)| {
            (hop["reason"].as_str().unwrap_or(""), hop["waits_for"].as_str().unwrap_or(""), *position)
        })
        .collect()
    }

    /// From the leaf down: the words for what it waited for or did.
    pub fn end(&self) -> Vec<&str> {
        let hops = self.value["hops"].as_array().map_or(&[][..], Vec::as_slice);
        let leaf = self.hops.last().and_then(|leaf| hops.iter().position(|hop| std::ptr::eq(hop, *leaf)));
        hops[leaf.unwrap_or(0)..].iter().filter_map(|hop| hop["reason"].as_str()).collect()
    }
}

/// Whether whyslow reported it correctly.
pub fn judge(climbed: &Climbed) -> Result<(), Wrong> {
    if climbed.kind == LinkKind::Go {
        return goroutines::judge(climbed);
    }
    let first = first_reported(climbed);
    let ways = ways(climbed, first);
    let trouble = |what: String| -> String { format!("{what}\n{climbed}\n{}", summary(climbed)) };
    let Some(main) = ways.iter().max_by(|a, b| a.lost_s(0).total_cmp(&b.lost_s(0))) else {
        let names = climbed.reported.names[first..].join(" < ");
        return Err(trouble(format!("no chain {names}")).into());
    };
    if climbed.verb == Verb::Run && climbed.look.document["wall"]["wall_s"].as_f64().is_none() {
        return Err(trouble("no wall time".to_owned()).into());
    }
    let ways: Vec<&Way<'_>> = ways.iter().filter(|way| way.top == main.top).collect();
    for (hop, position) in main.positions.iter().enumerate() {
        let mut bounds = climbed.reported.hop(main.top, *position, climbed.window);
        // For a leaf that computes, its time ready for a CPU is another way, and only the largest ways are reported.
        if position + 1 == climbed.plan.len() && ends_right(climbed, &["running"]) {
            bounds.least *= climbed.reported.leaf_on_cpu();
        }
        let (least, most) = time_of_hop(&ways, hop);
        let most = most + unseen(climbed, main.top).min(A_ROUND * bounds.least);
        if !bounds.meet(least, most) {
            let what = format!("hop {position}: {least:.4} to {most:.4} s, by its own clock {bounds}");
            return Err(Wrong::inexact(trouble(what)));
        }
    }
    let most = climbed.reported.chain(main.top, climbed.window);
    let all: f64 = ways.iter().map(|way| way.time_s()).sum();
    // Less than the whole: the smaller ways are not reported.
    if !most.meet(all, f64::INFINITY) {
        return Err(Wrong::inexact(trouble(format!(
            "its ways add up to {all:.4} s, by its own clock {most}"
        ))));
    }
    if !ways.iter().any(|way| ends_right(climbed, &way.end())) {
        let ends: Vec<Vec<&str>> = ways.iter().map(|way| way.end()).collect();
        let what = format!("{:?} at the leaf is reported as {ends:?}", climbed.plan.leaf);
        return Err(Wrong::inexact(trouble(what)));
    }
    Ok(())
}

/// One of a few rounds: hosts that hide tasks from tracing sometimes hide a waker, and then the whole round has no known waker.
const A_ROUND: f64 = 0.2;

/// Time of chains that begin at this thread, go down in the right order, and end because a waker was not seen: their lower hops are not
/// reported.
fn unseen(climbed: &Climbed, top: usize) -> f64 {
    let chains = climbed.look.document["chains"].as_array();
    let of_one = |chain: &&Value| {
        let (hops, tasks) = (chain["hops"].as_array(), chain["tasks"].as_array());
        let last = hops.and_then(|hops| hops.last()).filter(|last| last["reason"] == "unexplained");
        let is_unseen = last.is_some_and(|last| last["detail"]["thing"] == "waker-not-seen");
        let tid = |hop: &Value| hop[0][0].as_u64();
        let all: Vec<Option<u64>> = tasks.into_iter().flatten().map(tid).filter(Option::is_some).collect();
        let right = climbed.reported.tids.get(top..).unwrap_or_default();
        let right = right.iter().map(|tid| Some(u64::from(*tid)));
        is_unseen && !all.is_empty() && all.iter().copied().zip(right).all(|(a, b)| a == b)
    };
    let times = chains.into_iter().flatten().filter(of_one).filter_map(|chain| chain["time_s"].as_f64());
    times.sum()
}

/// Of the seconds in which each such thread rests.
const LITTLE_S: f64 = 0.1;

/// A chain of an idle thread, or one that passes through an idle thread.
pub fn of_one_that_rests(climbed: &Climbed) -> Option<&Value> {
    let chains = climbed.look.document["chains"].as_array();
    let rests = |task: &Value| task[1].as_str() == Some(&climbed.plan.rest_name);
    let has_one = |chain: &&Value| {
        // Time ready for a CPU is another matter; so is a single wait of which a part was not seen, one for each of several similar
        // threads.
        let threads = chain["tasks"][0].as_array().map_or(1, |tasks| tasks.len().max(1));
        let each = chain["time_s"].as_f64().map(|time| time / threads as f64);
        if chain["hops"][0]["reason"] == "runnable" || each < Some(LITTLE_S) {
            return false;
        }
        let tasks = chain["tasks"].as_array().into_iter().flatten().filter_map(Value::as_array);
        tasks.flatten().any(rests)
    };
    chains.into_iter().flatten().find(has_one)
}

/// Time of a hop, at least and at most. The leaf may do several things (it computed, and waited for a CPU), each of which is a way of its
/// own; only the largest ways of each wait are reported. Ways with the same first hops report the same waits of these hops.
fn time_of_hop(ways: &[&Way<'_>], hop: usize) -> (f64, f64) {
    let mut alike: HashMap<_, (f64, f64)> = HashMap::new();
    for way in ways {
        let (longest, sum) = alike.entry(way.begin(hop)).or_default();
        *longest = longest.max(way.lost_s(hop));
        *sum += way.lost_s(hop);
    }
    alike.values().fold((0.0, 0.0), |(least, most), (longest, sum)| (least + longest, most + sum))
}

/// On a whole host a chain begins where a thread waits for a lock; for a followed process, at the top.
fn first_reported(climbed: &Climbed) -> usize {
    let is_lock = |link: &Link| !link.is_sent() && *link != Link::Page;
    match climbed.verb {
        Verb::Run | Verb::Attach => 0,
        Verb::Chains => climbed.plan.links.iter().position(is_lock).unwrap_or(0),
    }
}

/// The chains that begin at this position or above it, and go down to the leaf in the right order.
pub fn ways(climbed: &Climbed, first: usize) -> Vec<Way<'_>> {
    let chains = climbed.look.document["chains"].as_array();
    chains.into_iter().flatten().filter_map(|chain| way(climbed, first, chain)).collect()
}

fn way<'d>(climbed: &Climbed, first: usize, chain: &'d Value) -> Option<Way<'d>> {
    let tasks = chain["tasks"].as_array()?;
    let all = chain["hops"].as_array()?;
    let has = |hop: usize, position: usize| {
        let of_hop = tasks.get(hop).and_then(Value::as_array);
        of_hop.into_iter().flatten().any(|task| {
            task[0].as_u64() == climbed.reported.tids.get(position).map(|tid| u64::from(*tid))
                && task[1].as_str() == climbed.reported.names.get(position).map(String::as_str)
        })
    };
    let top = (0..=first).find(|position| has(0, *position))?;
    let (mut hops, mut positions) = (Vec::new(), Vec::new());
    for (hop, value) in all.iter().enumerate() {
        let below = positions.last().map_or(top, |last| last + 1);
        match (below..climbed.plan.len()).find(|position| has(hop, *position)) {
            Some(position) if position == below || climbed.kind == LinkKind::Go => {
                hops.push(value);
                positions.push(position);
            }
            // A thread of Go's scheduler comes between two of them.
            None if climbed.kind == LinkKind::Go => {}
            _ => break,
        }
    }
    let whole = positions.last() == Some(&(climbed.plan.len() - 1));
    whole.then_some(Way { value: chain, top, positions, hops })
}

/// The words that whyslow may use for the leaf's action. A leaf that computes may have to wait for its CPU on a host with other load.
pub fn ends_right(climbed: &Climbed, end: &[&str]) -> bool {
    let is = |words: &[&str]| end.iter().any(|word| words.contains(word));
    match (climbed.plan.leaf, climbed.plan.links.last()) {
        (Leaf::Sleep, _) => is(&["timer", "sleep"]),
        (Leaf::Burn, _) | (Leaf::Link, Some(Link::AddressSpace { .. })) => is(&["running", "runnable"]),
        (Leaf::Stopped, _) => is(&["stopped"]),
        (Leaf::Disk, _) => is(&["block-io", "throttle", "throttled"]),
        (Leaf::Quota, _) => is(&["quota", "throttled"]),
        (Leaf::GracePeriod, _) | (Leaf::Link, _) => is(&["rcu"]),
    }
}

/// The chains that contain tasks of the lock chain, one per line.
pub fn summary(climbed: &Climbed) -> String {
    let chains = climbed.look.document["chains"].as_array();
    let ours = chains.into_iter().flatten().filter(|chain| names_any(chain, &climbed.reported.tids));
    let line = |chain: &Value| {
        let hops: Vec<String> = chain["hops"].as_array().into_iter().flatten().map(hop).collect();
        let count = chain["count"].as_u64().unwrap_or(0);
        format!("    {} x{count}: {}", chain["time_s"], hops.join(" < "))
    };
    let lines: Vec<String> = ours.map(line).take(12).collect();
    format!("  chains of its tasks:\n{}", lines.join("\n"))
}

fn hop(hop: &Value) -> String {
    let text = |name: &str| hop[name].as_str().unwrap_or("").to_owned();
    format!("{} {} ({}) {}", text("who"), text("reason"), text("waits_for"), hop["lost_s"])
}

/// Whether a chain names one of these threads, in a hop or at its end.
pub fn names_any(chain: &Value, tids: &[u32]) -> bool {
    let is_one = |pid: Option<u64>| pid.is_some_and(|pid| tids.iter().any(|tid| u64::from(*tid) == pid));
    let tasks = chain["tasks"].as_array().into_iter().flatten().filter_map(Value::as_array).flatten();
    let leaf = &chain["leaf"];
    let at_end = leaf["kind"] == "task" && is_one(leaf["id"].as_str().and_then(|id| id.parse().ok()));
    at_end || tasks.into_iter().any(|task| is_one(task[0].as_u64()))
}
