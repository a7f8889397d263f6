//! Spinning for CPUs that were asked is waiting for these CPUs: whose answer it was, and why it came late.

use std::collections::BTreeMap;

use whyslow_model::Recording;
use whyslow_model::wait::{Detail, Reason, WaitTarget};

use super::facts::Graph;
use super::node::{Key, Node, Sort};
use super::split::split_many;
use crate::hashing::Table;
use crate::irq::latency::Reasons;
use crate::stacks::doing::asks_cpus;

/// What one thread waited for: a CPU in some state.
type Of = (u32, Option<u32>);

/// Late answers of CPUs, by the thread that waited for them.
pub(super) struct IpiWaits<'r> {
    reasons: Reasons<'r>,
    /// Time, number, the longest and the function that most of it was for.
    by_pid: Table<u32, BTreeMap<Of, Late<'r>>>,
    /// Time that samples saw each of them ask.
    spun: Table<u32, u64>,
}

#[derive(Default)]
struct Late<'r> {
    ns: u64,
    count: u64,
    worst: u64,
    function: (u64, &'r str),
}

impl<'r> IpiWaits<'r> {
    /// Of this recording.
    pub fn of(rec: &'r Recording) -> Self {
        let mut by_pid: Table<u32, BTreeMap<Of, Late<'r>>> = Table::default();
        for call in rec.tables.cross_calls.iter().flatten().filter(|call| call.pid != 0) {
            let late = by_pid.entry(call.pid).or_default().entry((call.cpu, call.state)).or_default();
            late.ns = late.ns.saturating_add(call.paid_ns);
            late.count = late.count.saturating_add(call.count);
            late.worst = late.worst.max(call.worst_ns);
            late.function = late.function.max((call.paid_ns, &call.function));
        }
        let mut spun: Table<u32, u64> = Table::default();
        for sample in rec.tables.samples.iter().flatten() {
            if by_pid.contains_key(&sample.pid) && asks_cpus(sample) {
                let ns = spun.entry(sample.pid).or_default();
                *ns = ns.saturating_add(sample.ns);
            }
        }
        IpiWaits { reasons: Reasons::of(rec), by_pid, spun }
    }

    /// `ns` of thread `pid` that it spun, by CPU: parts that add up to it. Nothing: no CPU was seen to be late to it.
    pub fn parts(&self, graph: &Graph<'_>, pid: u32, ns: u64) -> Vec<Node> {
        let Some(late) = self.by_pid.get(&pid) else { return Vec::new() };
        let reported = late.values().fold(0u64, |sum, late| sum.saturating_add(late.ns));
        let in_time = self.spun.get(&pid).copied().unwrap_or(0).saturating_sub(reported);
        let mut weights: Vec<u64> = late.values().map(|late| late.ns).collect();
        weights.push(in_time);
        let parts = split_many(ns, &weights);
        let nobody = graph.no_one();
        let node = |what: Detail, ns| {
            let key = Key {
                sort: Sort::WakeupLatency,
                reason: Reason::WakeupLatency,
                who: nobody.key,
                what: graph.details.id(what),
            };
            Node::leaf(key, 0, ns)
        };
        let mut nodes: Vec<Node> = Vec::new();
        for (((cpu, state), late), part) in late.iter().zip(&parts) {
            let why = self.reasons.words(*cpu, *state);
            let function = late.function.1.to_owned();
            let mut leaf = node(Detail::WakeupLatency { why, function }, *part);
            leaf.function = Some(graph.names.id(late.function.1));
            (leaf.count, leaf.worst) = (late.count, late.worst);
            nodes.push(leaf);
        }
        let rest = parts.last().copied().filter(|_| parts.len() > nodes.len()).unwrap_or(0);
        nodes.push(node(WaitTarget::PromptCpus.into(), rest));
        nodes
    }
}
