//! The graph against a simulated host whose truth is known moment by moment.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::host::{Does, Host, MS, Wait, adds_up, leaves, locked};
use super::simulator::{END, Is, SimulatedHost, name, pid, scripts};
use crate::graph::chains;
use crate::graph::walk::Walk;

/// Whose doing each ms of a task's life is: (who, word) -> ms.
fn truth(simulated: &SimulatedHost, task: usize) -> BTreeMap<(String, String), u64> {
    let mut all = BTreeMap::new();
    for now in 0..END {
        let (mut at, mut seen) = (task, vec![]);
        let leaf = loop {
            if seen.contains(&at) {
                break (String::new(), "cycle".to_owned());
            }
            seen.push(at);
            match simulated.was[now][at] {
                Is::Running => break (name(at).to_owned(), "running".to_owned()),
                Is::Asleep => break (name(at).to_owned(), "timer".to_owned()),
                Is::Waiting(lock) => at = simulated.held[now][lock].unwrap(),
            }
        };
        *all.entry(leaf).or_default() += 1;
    }
    all
}

/// What the graph says of the same.
fn said(host: &mut Host, task: usize) -> BTreeMap<(String, String), u64> {
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), pid(task), 0, END as u64 * MS, None);
    adds_up(&parts, END as u64 * MS);
    let mut all = BTreeMap::new();
    for (who, word, ms) in leaves(&graph, &parts) {
        let who = if word == "cycle" || word == "unexplained" { String::new() } else { who };
        *all.entry((who, word)).or_default() += ms;
    }
    all
}

proptest! {
    #[test]
    fn every_moment_is_booked_on_who_was_at_the_end_of_the_chain(scripts in scripts()) {
        let simulated = SimulatedHost::of(scripts);
        let mut host = simulated.traced();
        for task in 0..simulated.was[0].len() {
            prop_assert_eq!(said(&mut host, task), truth(&simulated, task), "{:#?}", simulated);
        }
    }

    #[test]
    fn lost_rows_become_unexplained_and_never_anothers_blame(scripts in scripts(), lost: [u16; 5]) {
        let simulated = SimulatedHost::of(scripts);
        let mut host = simulated.traced();
        for at in lost {
            let rows = host.spans.len();
            host.spans.remove(usize::from(at) % rows);
            if rows == 1 {
                return Ok(());
            }
        }
        for task in 0..simulated.was[0].len() {
            let truth = truth(&simulated, task);
            for (leaf, ms) in said(&mut host, task) {
                let most = truth.get(&leaf).copied().unwrap_or(0);
                prop_assert!(leaf.1 == "unexplained" || ms <= most, "{task}: {leaf:?} {ms} > {most}\n{simulated:#?}");
            }
        }
    }

    #[test]
    fn a_lock_chain_of_any_length_is_reported_in_order_with_its_times(
        links in proptest::collection::vec((1..8u64, 1..5u64), 1..8),
        hold in 60..120u64,
        slept: bool,
    ) {
        // The last one takes its lock first; each of the others comes a little later and goes on a little longer.
        let mut host = Host::window(400);
        let count = links.len();
        let comes = |link: usize| links[link..].iter().map(|(later, _)| later).sum::<u64>();
        let leaves = |link: usize| hold + links[link..].iter().map(|(_, longer)| longer).sum::<u64>();
        let mut want = vec![];
        for link in 0..count {
            // It is woken when the one below lets go, and goes on for a little before it does so itself.
            let woken = leaves(link + 1);
            let wait = woken - comes(link);
            let below = link as u32 + 2;
            let lock = locked(u64::from(below), below, below);
            host.task(link as u32 + 1, &format!("link{}", ["a", "b", "c", "d", "e", "f", "g"][link]), 0, &[
                Does::Runs(comes(link)), Does::Waits(wait, lock), Does::Runs(400 - woken),
            ]);
            want.push(wait);
        }
        let does = if slept {
            vec![Does::Waits(hold, Wait { on: "nanosleep", ..Wait::default() }), Does::Runs(400 - hold)]
        } else {
            vec![Does::Runs(400)]
        };
        host.task(count as u32 + 1, "last", 0, &does);
        let graph = host.graph();
        let chain = &chains::chains(&graph)[0];
        prop_assert_eq!(chain.hops.len(), count + 1, "{:#?}", chain);
        for (hop, wait) in chain.hops.iter().zip(&want) {
            prop_assert_eq!(hop.worst.unwrap().as_millis(), u128::from(*wait));
        }
        prop_assert_eq!(chain.hops[0].lost.as_millis(), u128::from(want[0]));
        prop_assert_eq!(chain.leaf.name.as_str(), "last");
        prop_assert_eq!(chain.hops[count].reason.word(), if slept { "timer" } else { "running" });
        let pids: Vec<u32> = chain.tasks.iter().map(|tasks| tasks[0].0).collect();
        prop_assert_eq!(pids, (1..count as u32 + 2).collect::<Vec<_>>());
    }
}
