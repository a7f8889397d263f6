//! The head: from a recording to what it means. Pure: the same recording gives the same answer. No I/O, no clock.

#![forbid(unsafe_code)]

mod account;
mod blocked;
mod broods;
mod consistency;
pub mod cpu;
mod evidence;
pub mod focus;
pub mod graph;
mod growth;
mod hashing;
mod irq;
mod jobs;
pub mod locks;
mod memory;
pub mod names;
mod net;
pub mod parse;
mod process_names;
mod resources;
pub mod rules;
mod self_inflicted;
pub mod stacks;
mod stat_reads;
mod task_trees;
mod untraced;
pub mod wait_reasons;
mod works;

pub use blocked::blocked_picture;
pub use evidence::{Clocksource, CpuTime, Evidence, IdleState, Netns, Policy};
use whyslow_model::chain::Chain;
pub use whyslow_model::shell;
use whyslow_model::{Document, Missing, MissingNote, OwnCost, Recording, SCHEMA};

/// Ancestors of a process, and levels of cgroups, that are followed: the deepest trees have some tens, and torn rows can form a cycle.
const MAX_DEPTH: usize = 64;

/// Examine a recording: all rules, ranked, with the account of the window.
#[must_use]
pub fn examine(recording: &Recording) -> Document {
    examine_beside(recording, None)
}

/// As [`examine`], compared with an earlier recording of the same host, or of one like it.
#[must_use]
pub fn examine_beside(recording: &Recording, baseline: Option<&Recording>) -> Document {
    let ev = Evidence::of(recording).beside(baseline);
    let answers = rules::ask_all(&ev);
    let meta = &recording.meta;
    let (jobs, churn) = jobs::jobs(&ev);
    let mut document = Document {
        schema: SCHEMA,
        whyslow: meta.whyslow.clone(),
        host: meta.host.clone(),
        boot_id: meta.boot_id.clone(),
        kernel: meta.kernel.clone(),
        started_at: meta.started_at.clone(),
        window: recording.window(),
        findings: answers.findings,
        ruled_out: Vec::new(),
        contradictions: Vec::new(),
        account: account::of(&ev),
        resources: Vec::new(),
        wall: ev.graph().and_then(graph::WaitGraph::account).or_else(|| untraced::wall(recording)),
        chains: chains(&ev),
        locks: locks::with(recording, ev.stacks(), ev.on_cpu()),
        works: works::works(recording, ev.stacks()),
        jobs,
        churn,
        blocked: blocked::account(recording, ev.stacks()),
        grace_periods: works::grace_periods(recording, ev.stacks()),
        stalls: net::stalls::accounts(&ev),
        pings: net::pings::account(&ev),
        calls: stacks::calls::calls(recording),
        slow_calls: stacks::calls::slow_calls(recording),
        about: None,
        cpus: cpu::speed::rows(&ev),
        missing: missing(recording),
        own_cost: OwnCost {
            cpu: std::time::Duration::from_nanos(meta.own_cpu_ns),
            rss_bytes: meta.own_rss_bytes,
            bpf_s: meta.own_bpf_ns.map(|ns| ns as f64 / 1e9),
            blocked: own_waits(recording),
            lost_events: meta.lost_events.iter().map(|(_, n)| *n).fold(0, u64::saturating_add),
        },
    };
    document.resources = resources::of(&ev, &document.findings);
    consistency::reported(&mut document, answers.ruled_out);
    document
}

/// Time of our own threads in D state, but for I/O: what a look at a host whose locks are contended must not wait for.
fn own_waits(recording: &Recording) -> Option<std::time::Duration> {
    let tasks = recording.tables.tasks.as_deref()?;
    let ours = tasks.iter().filter(|task| recording.meta.is_own(task.pid, task.tgid) && !task.unseen);
    let waited: Vec<u64> = ours.map(|task| task.blocked_ns).collect();
    let sum = waited.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    (!waited.is_empty()).then_some(std::time::Duration::from_nanos(sum))
}

/// Chains of waits of the watched tasks, else of the whole host.
fn chains(ev: &Evidence<'_>) -> Vec<Chain> {
    match ev.recording().meta.watched {
        Some(_) => ev.graph().map(graph::WaitGraph::chains).unwrap_or_default(),
        None => ev.host_chains().iter().map(|reported| reported.chain.clone()).collect(),
    }
}

/// What could not be examined. A torn recording lacks more than its list says: that comes first.
fn missing(recording: &Recording) -> Vec<MissingNote> {
    let torn = recording.torn.iter().map(|why| Missing::broken("the rest of this recording", why).into());
    let in_part = evidence::losses::all_in_part(recording).map(MissingNote::from);
    torn.chain(recording.missing.iter().cloned()).chain(in_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whyslow_model::table::{Tables, Task};

    #[test]
    fn waits_of_whyslow_itself_are_its_cost_and_those_of_others_are_not() {
        let mut recording = Recording::default();
        assert_eq!(own_waits(&recording), None);
        recording.meta.own_pids = vec![7];
        let row = |pid, tgid, ms: u64| Task { pid, tgid, blocked_ns: ms * 1_000_000, ..Task::default() };
        recording.tables =
            Tables { tasks: Some(vec![row(7, 7, 2), row(8, 7, 3), row(9, 9, 500)]), ..Tables::default() };
        let cost = examine(&recording).own_cost;
        assert_eq!(cost.blocked, Some(std::time::Duration::from_millis(5)));
    }

    #[test]
    fn waits_of_whyslow_itself_that_were_not_seen_are_not_known() {
        let mut recording = Recording::default();
        recording.meta.own_pids = vec![7];
        let unseen = Task { pid: 7, tgid: 7, unseen: true, ..Task::default() };
        recording.tables.tasks = Some(vec![unseen]);
        assert_eq!(own_waits(&recording), None);
    }
}
