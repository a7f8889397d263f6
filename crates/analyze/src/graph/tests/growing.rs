//! Holders that have a lock the longer the more there is of something; those that always have it as long.

use whyslow_model::Hop;
use whyslow_model::churn::{Churn, ChurnKind, Population, Thing};

use super::host::{Does, Host, MS, locked};
use crate::graph::chains;
use Does::{Runs, Waits};

const TASKS: u32 = 3;

/// Three tasks have a lock in turn for so many ms each, and wait for it meanwhile. Beside them there are 100 cgroups, and `more` at the end, and
/// `remover` removes some.
fn in_turn(turns: &[u64], more: u64, remover: u32) -> Host {
    let window: u64 = turns.iter().sum();
    let mut host = Host::window(window);
    for pid in 1..=TASKS {
        let before = if pid == 1 { TASKS } else { pid - 1 };
        let (mut does, mut waited) = (Vec::new(), 0);
        for (ms, holder) in turns.iter().zip((1..=TASKS).cycle()) {
            if holder != pid {
                waited += ms;
                continue;
            }
            if waited > 0 {
                does.push(Waits(waited, locked(7, before, before)));
            }
            (waited, _) = (0, does.push(Runs(*ms)));
        }
        host.task(pid, &format!("worker{pid}"), 0, &does);
    }
    let row = |at: u64| Population {
        what: Thing::Cgroups.word().into(),
        at_ns: window * MS / 20 * at,
        count: 100 + more * at / 20,
    };
    host.rec.tables.populations = Some((0..=20).map(row).collect());
    let what = ChurnKind::CgroupRemoved.word().into();
    host.rec.tables.churn = Some(vec![Churn { tgid: remover, what, count: 5, ..Churn::default() }]);
    host
}

fn growing() -> Vec<u64> {
    (0..60).map(|turn| 10 + 2 * turn).collect()
}

/// The holder in the most expensive chain.
fn holder(host: &mut Host) -> Hop {
    let chains = chains::chains(&host.graph());
    chains.first().and_then(|chain| chain.hops.get(1)).cloned().expect("the waiters and a holder")
}

#[test]
fn a_holder_grows_with_cgroups_that_those_behind_it_remove_in_a_vicious_circle() {
    let hop = holder(&mut in_turn(&growing(), 900, 2));
    assert_eq!((hop.grows_with.as_deref(), hop.circle), (Some("1,000 cgroups"), true));
    let ms = hop.per_call.unwrap().as_millis();
    assert!((95..130).contains(&ms), "{ms}");
    let words = "growing with 1,000 cgroups: a vicious circle, because tasks that remove cgroups wait for it";
    assert_eq!(hop.growth().as_deref(), Some(words));
}

#[test]
fn where_others_remove_them_it_is_no_circle() {
    let hop = holder(&mut in_turn(&growing(), 900, 77));
    assert_eq!((hop.grows_with.as_deref(), hop.circle), (Some("1,000 cgroups"), false));
}

/// One of them is a child of the process at the top of the tree that removes some: another child may do that.
#[test]
fn a_waiting_child_of_what_removes_them_makes_no_circle() {
    let mut host = in_turn(&growing(), 900, 77);
    for task in host.rec.tables.tasks.iter_mut().flatten() {
        (task.born, task.ppid) = (true, 77);
    }
    let hop = holder(&mut host);
    assert_eq!((hop.grows_with.as_deref(), hop.circle), (Some("1,000 cgroups"), false));
}

#[test]
fn a_worker_whose_work_takes_cgroups_down_is_a_remover() {
    let mut host = in_turn(&growing(), 900, 77);
    for span in &mut host.spans {
        span.work = Some("css_killed_work_fn".into());
    }
    assert!(holder(&mut host).circle);
}

#[test]
fn steady_contention_is_no_circle_whatever_grows_beside_it() {
    let steady: Vec<u64> = (0..60).map(|turn| 60 + turn * 7 % 5).collect();
    let hop = holder(&mut in_turn(&steady, 900, 2));
    assert_eq!((hop.grows_with, hop.per_call, hop.circle), (None, None, false));
}

#[test]
fn holders_that_grow_beside_a_steady_count_grow_with_nothing_that_is_known() {
    let hop = holder(&mut in_turn(&growing(), 0, 2));
    assert_eq!((hop.grows_with, hop.circle), (None, false));
}

#[test]
fn few_turns_and_a_recording_without_counts_cannot_tell() {
    let hop = holder(&mut in_turn(&[100, 200, 300, 400, 500, 600, 700], 900, 2));
    assert_eq!((hop.grows_with, hop.circle), (None, false));
    let mut host = in_turn(&growing(), 900, 2);
    host.rec.tables.populations = None;
    assert_eq!(holder(&mut host).grows_with, None);
}
