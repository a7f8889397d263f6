//! Stand-ins for whyslow before the judge of each cell: one that did not observe passes no cell, one that reports the truth passes all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::lock_chain::{Leaf, Link, LinkKind, Plan, Round, Told, Way, Wire};
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::{self, Sight};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::stand_in::{self, StandIn, Subject};
use whyslow_faults::wrong::Sort;
use whyslow_faults::{Draw, Span};

use crate::CELLS;
use crate::cell::{Cell, Verb};
use crate::climb::Climbed;
use crate::judge::{Watched, judge};
use crate::quiet::{Quiet, Whose};

const INNOCENT: u32 = 99;
const MS: u64 = 1_000_000;
const WINDOW: Span = Span { from: 1_000 * MS, to: 4_000 * MS };

fn look(document: Value, status: i32) -> Arc<Look> {
    let asked = Some(Span { from: 500 * MS, to: 4_500 * MS });
    let used = Some(Duration::from_millis(250));
    Arc::new(Look {
        document,
        window: WINDOW,
        status: Some(status),
        kept: PathBuf::from("x.json"),
        asked,
        used,
    })
}

fn links(kind: LinkKind) -> Vec<Link> {
    match kind {
        LinkKind::Futex => vec![Link::Futex; 2],
        LinkKind::Pi => vec![Link::Pi; 2],
        LinkKind::Pthread => vec![Link::Pthread; 2],
        LinkKind::Std => vec![Link::Std; 2],
        LinkKind::Go => vec![Link::Go; 2],
        LinkKind::Pipe => vec![Link::Pipe; 2],
        LinkKind::Unix => vec![Link::Unix; 2],
        LinkKind::Tcp => vec![Link::Peer { wire: Wire::Tcp, by: Way::Read }; 2],
        LinkKind::Udp => vec![Link::Peer { wire: Wire::Udp, by: Way::Poll }; 2],
        LinkKind::Peers => vec![Link::Peer { wire: Wire::Event, by: Way::Epoll }, Link::Futex],
        LinkKind::File => vec![Link::File { read: true }, Link::Page],
        LinkKind::Directory => vec![Link::Directory, Link::Page],
        LinkKind::PipeLock => vec![Link::PipeLock, Link::Page],
        LinkKind::AddressSpace => vec![Link::Futex, Link::AddressSpace { read: false }],
        LinkKind::Cgroups => vec![Link::Futex, Link::Cgroups],
        LinkKind::Mixed => vec![Link::Pipe, Link::Std, Link::File { read: false }, Link::Page],
    }
}

/// A lock chain that came about: six rounds of 60 ms; all threads wait together for 48 ms and more of each.
fn climbed(kind: LinkKind, verb: Verb, asked: report_checks::Verb, tid: u32, look: Arc<Look>) -> Climbed {
    let links = links(kind);
    let n = links.len() + 1;
    let names: Vec<String> = (0..n).map(|at| format!("w{tid}p{at}")).collect();
    let round = |at: u64| Round {
        waits: (0..n as u64)
            .map(|up| n as u64 - 1 - up)
            .map(|up| Span { from: (at + up) * MS, to: (at + up + 60) * MS })
            .collect(),
        ready: vec![Duration::ZERO; n],
        unseen: vec![false; n],
        leaf_cpu: Duration::from_millis(60),
    };
    let plan = Plan {
        positions: (0..n).collect(),
        names: names.clone(),
        links,
        leaf: kind.feet()[0],
        rounds: vec![60_000; 6],
        every_us: 200_000,
        step_us: 1_000,
        rests: 1,
        rest_name: "rest".to_owned(),
        healthy: false,
        apart: false,
        dir: PathBuf::new(),
        leaf_joins: Vec::new(),
        homes: Vec::new(),
    };
    let rounds = (0..6).map(|at| round(1_100 + at * 200)).collect();
    let reported = Told { rounds, tids: (0..n as u32).map(|at| tid + at).collect(), names };
    let window = if verb == Verb::Run { Span { from: 0, to: u64::MAX } } else { WINDOW };
    Climbed { verb, asked, kind, plan, reported, look, window, said: "drawn".to_owned() }
}

/// The verb, as its documented exit status depends on it.
fn asked(cell: Cell) -> report_checks::Verb {
    match cell {
        Cell::Chain(Verb::Run, _) | Cell::Crowd(_) => report_checks::Verb::Run,
        Cell::Chain(Verb::Attach, _) | Cell::Locks(_) => report_checks::Verb::Looked,
        Cell::Chain(Verb::Chains, _) | Cell::Healthy(_) | Cell::Two | Cell::Idle | Cell::Compile(_) => {
            report_checks::Verb::Chains
        }
    }
}

fn healthy(kind: LinkKind) -> Told {
    let mut reported =
        climbed(kind, Verb::Chains, report_checks::Verb::Chains, 10, look(json!({}), 0)).reported;
    for wait in reported.rounds.iter_mut().flat_map(|round| &mut round.waits) {
        wait.to = wait.from + MS / 10;
    }
    reported
}

fn sample(cell: Cell, look: Arc<Look>) -> Watched {
    let verb = asked(cell);
    let lock_chain = |kind, by, tid| climbed(kind, by, verb, tid, look.clone());
    let quiet = |whose, sight| {
        let (innocents, look, said) = (vec![INNOCENT], look.clone(), "drawn".to_owned());
        Watched::Quiet(Quiet { whose, disturbed: None, sight, innocents, look, said })
    };
    let compilers = Sight { group: "/cc".to_owned(), used: Duration::from_secs(3) };
    match cell {
        Cell::Chain(by, kind) => Watched::LockChains(vec![lock_chain(kind, by, 10)]),
        Cell::Crowd(kind) => Watched::LockChains(vec![lock_chain(kind, Verb::Run, 10)]),
        Cell::Locks(kind) => Watched::Locks(lock_chain(kind, Verb::Chains, 10)),
        Cell::Two => Watched::LockChains(vec![
            lock_chain(LinkKind::Futex, Verb::Chains, 10),
            lock_chain(LinkKind::File, Verb::Chains, 20),
        ]),
        Cell::Healthy(kind) => quiet(Whose::Healthy(healthy(kind)), None),
        Cell::Idle => quiet(Whose::Anybodys, None),
        Cell::Compile(_) => quiet(Whose::Compilers, Some(compilers)),
    }
}

fn chain(of: &Climbed, top: usize) -> Value {
    let last = of.plan.len() - 1;
    let edge = |at: usize| match (of.plan.leaf, of.plan.links.last()) {
        _ if at < last => "futex",
        (Leaf::Link, Some(Link::Cgroups)) => "rcu",
        (Leaf::Link, _) => "running",
        _ => "timer",
    };
    let hop = |at: usize| json!({"reason": edge(at), "who": of.reported.names[at], "waits_for": "x", "lost_s": 0.36});
    let all: Vec<usize> = (top..=last).collect();
    let task = |at: &usize| json!([[of.reported.tids[*at], of.reported.names[*at]]]);
    json!({"time_s": 0.35, "count": 6, "worst_s": 0.06, "hops": all.iter().map(|at| hop(*at)).collect::<Vec<_>>(),
        "tasks": all.iter().map(task).collect::<Vec<_>>(), "leaf": {"kind": "kernel", "id": "x", "name": "x"}})
}

/// A chain that ends at this position because the waker there was not seen.
fn broken_chain(of: &Climbed, at: usize, time_s: f64) -> Value {
    let mut broken = chain(of, 0);
    broken["time_s"] = json!(time_s);
    let (hops, tasks) =
        (broken["hops"].as_array().unwrap().clone(), broken["tasks"].as_array().unwrap().clone());
    let nobody = json!({"reason": "unexplained", "who": "", "detail": {"thing": "waker-not-seen"}});
    broken["hops"] = hops[..=at].iter().cloned().chain([nobody]).collect();
    broken["tasks"] = tasks[..=at].iter().cloned().chain([json!([])]).collect();
    broken
}

#[test]
fn of_few_rounds_one_may_be_unseen_and_no_more() {
    for (seen, at, right) in [(0.30, 0, true), (0.30, 1, true), (0.18, 0, false), (0.18, 1, false)] {
        let of = |document| {
            climbed(LinkKind::Futex, Verb::Attach, report_checks::Verb::Looked, 10, look(document, 0))
        };
        let known = of(json!({}));
        let mut whole = chain(&known, 0);
        whole["time_s"] = json!(seen);
        whole["hops"].as_array_mut().unwrap().iter_mut().for_each(|hop| hop["lost_s"] = json!(seen));
        let alone = of(json!({ "chains": [whole.clone()] }));
        let broken = broken_chain(&known, at, 0.36 - seen);
        let told = of(json!({ "chains": [whole, broken] }));
        assert_eq!(crate::chains::judge(&told).is_ok(), right, "{seen}, {at}");
        assert!(
            crate::chains::judge(&alone).is_err(),
            "{seen}: a wait that is not reported at all is not excused"
        );
    }
}

fn locks(of: &Climbed) -> Vec<Value> {
    let lock = |(at, link): (usize, &Link)| {
        let read = matches!(link, Link::File { read: true } | Link::AddressSpace { read: true });
        let waits = json!({"count": 6, "total_s": 0.36, "worst_s": 0.06});
        let none = json!({"count": 0, "total_s": 0.0, "worst_s": 0.0});
        let [read, write] = if read { [&waits, &none] } else { [&none, &waits] };
        json!({"name": "x", "read": read, "write": write, "holders": [{"pid": of.reported.tids[at + 1]}]})
    };
    of.plan.links.iter().enumerate().filter(|(_, link)| link.is_of_kernel()).map(lock).collect()
}

/// The document of a whyslow that observed the host.
fn truthful(cell: Cell) -> (Value, i32) {
    let mut document = stand_in::whole();
    document["ruled_out"] =
        json!([{"what": "a CPU quota", "evidence": "e"}, {"what": "an affinity mask", "evidence": "e"}]);
    document["account"]["by_cgroup"] = json!([{"id": "/cc", "tasks": 9, "cpu_s": 3.0}]);
    let mut status = 0;
    match sample(cell, look(json!({}), 0)) {
        Watched::LockChains(all) => {
            // For goroutines each waiter's time is reported separately.
            document["chains"] = all.iter().map(|one| chain(one, 0)).collect();
            document["wall"] = json!({"wall_s": 3.0});
            status = i32::from(asked(cell) == report_checks::Verb::Chains);
        }
        Watched::Locks(climbed) => document["locks"] = json!(locks(&climbed)),
        Watched::Quiet(_) => {}
    }
    (document, status)
}

fn subjects(watched: &Watched) -> Vec<Subject> {
    let tids: Vec<u32> = match watched {
        Watched::LockChains(all) => all.iter().flat_map(|one| one.reported.tids.clone()).collect(),
        Watched::Locks(one) => one.reported.tids.clone(),
        Watched::Quiet(Quiet { whose: Whose::Healthy(reported), .. }) => reported.tids.clone(),
        Watched::Quiet(_) => vec![50],
    };
    let mut all: Vec<Subject> =
        tids.iter().map(|tid| Subject::task(*tid, &format!("w10p{}", tid - 10))).collect();
    all.extend([Subject::group("/cc"), Subject::cpu(0), Subject::task(INNOCENT, "test")]);
    all
}

#[test]
fn no_stand_in_passes_any_cell_and_the_truth_passes_all() {
    for cell in CELLS {
        let of = subjects(&sample(*cell, look(json!({}), 0)));
        for which in StandIn::ALL {
            let (document, status) = which.says(asked(*cell), &of, 0.36);
            let verdict = judge(&sample(*cell, look(document, status)));
            assert!(matches!(verdict, Verdict::Wrong(_)), "{which:?} passes {cell}: {verdict:?}");
        }
        let (document, status) = truthful(*cell);
        assert_eq!(judge(&sample(*cell, look(document, status))), Verdict::Passed, "{cell}");
    }
}

/// An honest document with an accuser's findings, or with none.
#[test]
fn sighted_accuser_fails_every_cell_and_silence_passes_only_quiet_ones() {
    for cell in CELLS {
        let of = subjects(&sample(*cell, look(json!({}), 0)));
        let (honest, _) = truthful(*cell);
        let accuser = StandIn::Accuser.says(asked(*cell), &of, 0.36);
        let mut document = honest.clone();
        for name in ["chains", "locks", "wall", "findings"] {
            document[name] = accuser.0[name].clone();
        }
        let is_quiet = matches!(cell, Cell::Healthy(_) | Cell::Idle | Cell::Compile(_));
        let sort = judge(&sample(*cell, look(document, accuser.1))).sort();
        assert!(if is_quiet { sort == Some(Sort::False) } else { sort.is_some() }, "{cell}: {sort:?}");
        let mut silent = honest;
        silent.as_object_mut().unwrap().retain(|name, _| name != "chains" && name != "locks");
        let verdict = judge(&sample(*cell, look(silent, 0)));
        assert_eq!(verdict == Verdict::Passed, is_quiet, "{cell}: {verdict:?}");
        assert_eq!(verdict.sort(), (!is_quiet).then_some(Sort::Missed), "{cell}: {verdict:?}");
    }
}

#[test]
fn chain_of_an_idle_thread_is_judged_false() {
    let cell = Cell::Chain(Verb::Attach, LinkKind::Tcp);
    let (mut document, status) = truthful(cell);
    let of = climbed(LinkKind::Tcp, Verb::Attach, report_checks::Verb::Looked, 10, look(json!({}), 0));
    let mut more = chain(&of, 0);
    more["tasks"] = json!([[[99, "rest"]]]);
    document["chains"].as_array_mut().unwrap().push(more);
    assert_eq!(judge(&sample(cell, look(document, status))).sort(), Some(Sort::False));
}

#[test]
fn a_chain_of_a_healthy_lock_chain_is_void_by_its_waiters_clock_alone() {
    let mut draw = Draw::with(7);
    let kind = draw.pick(&LinkKind::ALL);
    let (mut document, _) = truthful(Cell::Healthy(kind));
    let lock_chain = climbed(kind, Verb::Chains, report_checks::Verb::Chains, 10, look(json!({}), 0));
    document["chains"] = json!([chain(&lock_chain, 0)]);
    let quiet = |reported: Told, disturbed: Option<String>| {
        let Watched::Quiet(quiet) = sample(Cell::Healthy(kind), look(document.clone(), 1)) else { panic!() };
        judge(&Watched::Quiet(Quiet { whose: Whose::Healthy(reported), disturbed, ..quiet }))
    };
    let busy = Some("others".to_owned());
    assert!(matches!(quiet(healthy(kind), busy.clone()), Verdict::Wrong(_)));
    assert!(matches!(quiet(lock_chain.reported.clone(), busy), Verdict::Again(_)));
    assert!(matches!(quiet(lock_chain.reported, None), Verdict::Again(_)));
}
