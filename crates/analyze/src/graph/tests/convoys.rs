//! Locks that go from hand to hand.

use super::host::{Does, Host, MS, adds_up, leaves, locked};
use crate::graph::chains;
use crate::graph::walk::Walk;
use Does::{Runs, Waits};
use whyslow_model::wait::Note;

/// Five tasks want one mutex at once; each has it for 20 ms.
fn convoy() -> Host {
    let mut host = Host::window(200);
    host.task(1, "w1", 0, &[Runs(200)]);
    for pid in 2..6u32 {
        let waits = u64::from(pid - 1) * 20;
        host.task(pid, &format!("w{pid}"), 0, &[Waits(waits, locked(7, 1, pid - 1)), Runs(200 - waits)]);
    }
    host
}

#[test]
fn each_holder_has_its_own_share_of_the_last_ones_wait() {
    let mut host = convoy();
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), 5, 0, 200 * MS, None);
    adds_up(&parts, 200 * MS);
    let all: Vec<_> = leaves(&graph, &parts).into_iter().map(|(who, _, ms)| (who, ms)).collect();
    let mut want: Vec<(String, u64)> = [("w1", 20), ("w2", 20), ("w3", 20), ("w4", 20), ("w5", 120)]
        .map(|(who, ms)| (who.to_owned(), ms))
        .to_vec();
    // Alike names are one node, called by the folded name; the waiter's own time stands apart.
    want = vec![("w*".to_owned(), 80), want.pop().unwrap()];
    assert_eq!(all, want);
}

#[test]
fn it_is_one_chain_that_is_called_a_convoy() {
    let chains = chains::chains(&convoy().graph());
    assert_eq!(chains.len(), 1, "{chains:#?}");
    assert_eq!((chains[0].count, chains[0].time.as_millis()), (4, 20 + 40 + 60 + 80));
    assert_eq!(chains[0].notes, [Note::Convoy]);
    assert_eq!(chains[0].hops[0].who.comm(), "w*");
    assert_eq!(chains[0].tasks[0].len(), 4);
}
