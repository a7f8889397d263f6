//! Whether the chain is told: its threads, their order, the time of each hop, what the foot did.

use serde_json::Value;
use whyslow_faults::ladder::{Foot, Kind, Rung};
use whyslow_faults::rounds::Trouble;

use crate::cell::Verb;
use crate::climb::Climbed;

/// A chain that whyslow told of this ladder.
struct Way<'d> {
    value: &'d Value,
    /// The position of its first waiter.
    top: usize,
    /// The hop of each position from `top` on.
    hops: Vec<&'d Value>,
}

impl Way<'_> {
    fn time_s(&self) -> f64 {
        self.value["time_s"].as_f64().unwrap_or(0.0)
    }

    fn lost_s(&self, hop: usize) -> f64 {
        self.hops.get(hop).and_then(|hop| hop["lost_s"].as_f64()).unwrap_or(0.0)
    }

    /// From the foot down: the words of what it waited for or did.
    fn end(&self) -> Vec<&str> {
        let hops = self.value["hops"].as_array().map_or(&[][..], Vec::as_slice);
        let foot = self.hops.last().and_then(|foot| hops.iter().position(|hop| std::ptr::eq(hop, *foot)));
        hops[foot.unwrap_or(0)..].iter().filter_map(|hop| hop["edge"].as_str()).collect()
    }
}

/// Whyslow told it right.
pub fn judge(climbed: &Climbed) -> Result<(), Trouble> {
    let first = first_told(climbed);
    let ways = ways(climbed, first);
    let trouble = |what: String| -> Trouble { format!("{what}\n{climbed}\n{}", summary(climbed)).into() };
    let Some(main) = ways.iter().max_by(|a, b| a.lost_s(0).total_cmp(&b.lost_s(0))) else {
        let names = climbed.told.names[first..].join(" < ");
        return Err(trouble(format!("no chain {names}")));
    };
    if climbed.verb == Verb::Run && climbed.look.document["wall"]["wall_s"].as_f64().is_none() {
        return Err(trouble("no wall time".to_owned()));
    }
    for position in main.top..climbed.plan.len() {
        let bounds = climbed.told.hop(main.top, position, climbed.window);
        let told = main.lost_s(position - main.top);
        if !bounds.hold(told) {
            return Err(trouble(format!("hop {position}: {told:.4} s, by its own clock {bounds}")));
        }
    }
    let most = climbed.told.chain(main.top, climbed.window);
    let all: f64 = ways.iter().filter(|way| way.top == main.top).map(Way::time_s).sum();
    if !most.hold(all.max(most.least)) {
        return Err(trouble(format!("its ways add up to {all:.4} s, by its own clock {most}")));
    }
    if !ways.iter().any(|way| ends_right(climbed, &way.end())) {
        let ends: Vec<Vec<&str>> = ways.iter().map(Way::end).collect();
        return Err(trouble(format!("{:?} at the foot is told as {ends:?}", climbed.plan.foot)));
    }
    Ok(())
}

/// On a whole host a chain begins where somebody waits for a lock; of a followed process, at the top.
fn first_told(climbed: &Climbed) -> usize {
    let is_lock = |rung: &Rung| !matches!(rung, Rung::Pipe | Rung::Unix | Rung::Page);
    match climbed.verb {
        Verb::Run | Verb::Attach => 0,
        Verb::Chains => climbed.plan.rungs.iter().position(is_lock).unwrap_or(0),
    }
}

/// The chains that begin at this position, or above it, and go down to the foot in the right order.
fn ways(climbed: &Climbed, first: usize) -> Vec<Way<'_>> {
    let chains = climbed.look.document["chains"].as_array();
    chains.into_iter().flatten().filter_map(|chain| way(climbed, first, chain)).collect()
}

fn way<'d>(climbed: &Climbed, first: usize, chain: &'d Value) -> Option<Way<'d>> {
    let tasks = chain["tasks"].as_array()?;
    let all = chain["hops"].as_array()?;
    let has = |hop: usize, position: usize| {
        let of_hop = tasks.get(hop).and_then(Value::as_array);
        of_hop.into_iter().flatten().any(|task| {
            task[0].as_u64() == climbed.told.tids.get(position).map(|tid| u64::from(*tid))
                && task[1].as_str() == climbed.told.names.get(position).map(String::as_str)
        })
    };
    let top = (0..=first).find(|position| has(0, *position))?;
    let (mut hops, mut at) = (Vec::new(), 0);
    for position in top..climbed.plan.len() {
        // A goroutine is made runnable by who unlocks; its own thread is then woken by any thread of Go's scheduler.
        while climbed.kind == Kind::Go && at < all.len() && !has(at, position) {
            at += 1;
        }
        if !has(at, position) {
            return None;
        }
        hops.push(all.get(at)?);
        at += 1;
    }
    Some(Way { value: chain, top, hops })
}

/// What the foot did, as whyslow may call it. A foot that computes may have to wait for its CPU on a host that others use.
fn ends_right(climbed: &Climbed, end: &[&str]) -> bool {
    let is = |words: &[&str]| end.iter().any(|word| words.contains(word));
    match (climbed.plan.foot, climbed.plan.rungs.last()) {
        (Foot::Sleep, _) => is(&["timer", "sleep"]),
        (Foot::Burn, _) | (Foot::Rung, Some(Rung::AddressSpace { .. })) => is(&["running", "runnable"]),
        (Foot::Disk, _) => is(&["block-io", "throttle", "throttled"]),
        (Foot::Quota, _) => is(&["quota", "throttled"]),
        (Foot::GracePeriod, _) | (Foot::Rung, _) => is(&["rcu"]),
    }
}

/// The chains in which the ladder's tasks are, one a line.
pub fn summary(climbed: &Climbed) -> String {
    let chains = climbed.look.document["chains"].as_array();
    let ours = chains.into_iter().flatten().filter(|chain| names_any(chain, &climbed.told.tids));
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
    format!("{} {} ({}) {}", text("who"), text("edge"), text("waits_for"), hop["lost_s"])
}

/// Whether a chain names one of these threads, in a hop or at its end.
pub fn names_any(chain: &Value, tids: &[u32]) -> bool {
    let is_one = |pid: Option<u64>| pid.is_some_and(|pid| tids.iter().any(|tid| u64::from(*tid) == pid));
    let tasks = chain["tasks"].as_array().into_iter().flatten().filter_map(Value::as_array).flatten();
    let leaf = &chain["leaf"];
    let at_end = leaf["kind"] == "task" && is_one(leaf["id"].as_str().and_then(|id| id.parse().ok()));
    at_end || tasks.into_iter().any(|task| is_one(task[0].as_u64()))
}
