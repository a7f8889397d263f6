//! The words of chains, wall time, locks and calls. After a change on purpose, copy what the test prints.

use std::time::Duration;

use crate::sample::{self, waits};
use whyslow_model::blocked::BlockedAccount;
use whyslow_model::chain::{CallAccount, Chain, LockAccount, Part, SlowCallAccount, WallAccount};
use whyslow_model::ping::*;
use whyslow_model::wait::WaitTarget;
use whyslow_model::work::WorkAccount;
use whyslow_model::{Account, Culprit, Document, Hop, Missing, MissingNote, Probe, Share, SubjectKind};
use whyslow_report::safe::{columns, is_unsafe};
use whyslow_report::{Style, blocked, chains, jobs, json, json_line, locks, pings, stalls, text, work};

const SHORT: Style = Style { colour: false, verbose: false, columns: None };
const LONG: Style = Style { colour: false, verbose: true, columns: None };

fn same(got: &str, golden: &str) {
    crate::same(got, golden);
    a_page(got);
}

fn a_page(text: &str) {
    for line in text.lines() {
        assert!(columns(line) <= 80, "{} columns: {line:?}", columns(line));
        assert!(!line.chars().any(is_unsafe), "{line:?}");
    }
}

#[test]
fn a_command_gets_its_wall_time_explained() {
    same(&text(&waits::watched(), &SHORT), "watched.txt");
}

#[test]
fn verbose_unfolds_small_parts_and_lists_threads() {
    same(&text(&waits::watched(), &LONG), "watched_verbose.txt");
}

#[test]
fn each_chain_reads_like_a_sentence() {
    let doc = Document { chains: waits::chains(), ..sample::empty() };
    same(&chains(&doc, &SHORT), "chains.txt");
}

#[test]
fn each_end_of_a_chain_has_its_words() {
    let doc = Document { chains: crate::ends::all(), ..sample::empty() };
    same(&chains(&doc, &SHORT), "ends.txt");
}

#[test]
fn the_example_in_docs_chains_is_what_is_printed() {
    let doc = Document { chains: waits::chains().into_iter().take(1).collect(), ..sample::empty() };
    let page = chains(&doc, &SHORT);
    let (_, example) = page.split_once("\n1. ").unwrap();
    let (example, _) = example.split_once("\n\n").unwrap();
    let page = include_str!("../../../../docs/chains.md");
    assert!(page.contains(&format!("```\n1. {example}\n```")), "docs/chains.md should show:\n1. {example}");
}

#[test]
fn each_lock_tells_who_waited_where_and_who_held_it() {
    let doc = Document { locks: waits::locks(), ..sample::empty() };
    same(&locks(&doc, &SHORT), "locks.txt");
}

#[test]
fn work_that_is_put_off_is_told_with_what_it_waited_for() {
    let doc = Document { works: waits::works(), grace_periods: waits::grace_periods(), ..sample::empty() };
    same(&work(&doc, &SHORT), "work.txt");
    same(&work(&doc, &LONG), "work_verbose.txt");
    let only_rcu = Document { works: vec![], ..doc };
    let told = work(&only_rcu, &SHORT);
    assert!(told.contains("\nkern_unmount in free_ipc waited 4.7 s for RCU grace periods"), "{told}");
    let quiet = work(&sample::empty(), &SHORT);
    assert!(quiet.contains("\nNo work item ran, and no thread waited for RCU.\n"), "{quiet}");
    let blind = work(&sample::unseen(), &SHORT);
    assert!(blind.contains("\nCould not look: BPF programs are refused;"), "{blind}");
}

#[test]
fn jobs_are_told_by_phase_with_what_they_make() {
    let doc = Document { jobs: waits::jobs(), churn: waits::churn(), ..sample::empty() };
    same(&jobs(&doc, &SHORT), "jobs.txt");
    let only_churn = jobs(&Document { jobs: Vec::new(), ..doc }, &SHORT);
    assert!(
        only_churn.contains("\nNo process ended three jobs.\n") && only_churn.contains("cgroups made"),
        "{only_churn}"
    );
    let blind = MissingNote::from(Missing::skipped(Probe::FailedCalls.word(), "too many threads"));
    let uncounted = jobs(&Document { missing: vec![blind], ..sample::empty() }, &SHORT);
    assert!(uncounted.contains("that are made were not all"), "{uncounted}");
    let quiet = jobs(&sample::empty(), &SHORT);
    assert!(
        quiet.contains("\nNo process ended three jobs, and none made a cgroup or a namespace.\n"),
        "{quiet}"
    );
    let blind = jobs(&sample::unseen(), &SHORT);
    assert!(blind.contains("\nCould not look: BPF programs are refused;"), "{blind}");
}

#[test]
fn tasks_in_d_state_are_told_with_the_holders_behind_them() {
    let all = sample::blocked::blocked();
    let doc = Document { blocked: Some(all.clone()), ..sample::empty() };
    same(&blocked(&doc, &SHORT), "blocked.txt");
    let none = BlockedAccount { passes: 1, ..BlockedAccount::default() };
    let quiet = blocked(&Document { blocked: Some(none), ..sample::empty() }, &SHORT);
    assert!(quiet.contains("\nNo task waited in D state in 1 pass over all tasks.\n"), "{quiet}");
    let older = blocked(&sample::empty(), &SHORT);
    assert!(older.contains("\nTasks in D state were not sampled.\n"), "{older}");
    let blind = blocked(&sample::unseen(), &SHORT);
    assert!(blind.contains("\nCould not look: BPF programs are refused;"), "{blind}");
}

#[test]
fn stall_names_its_cpu_culprit_call_file_and_stack() {
    let doc = Document { stalls: waits::stalls(), ..sample::empty() };
    same(&stalls(&doc, &SHORT), "stalls.txt");
    let quiet = stalls(&sample::empty(), &SHORT);
    assert!(quiet.contains("\nNo packet waited for its CPU for 5 ms or more.\n"), "{quiet}");
    let blind = stalls(&sample::unseen(), &SHORT);
    assert!(blind.contains("\nCould not look: BPF programs are refused;"), "{blind}");
}

#[test]
fn answers_tell_times_stalls_and_what_explains_them() {
    let of = |account: PingAccount| Document { pings: Some(account), ..sample::empty() };
    same(&pings(&of(waits::pings()), &SHORT), "pings.txt");
    let says = |account: PingAccount, words: &str| {
        let said = pings(&of(account), &SHORT).replace('\n', " ");
        assert!(said.contains(words), "{said}");
    };
    let prompt = PingAccount {
        late: 0,
        lost: 0,
        alone: 0,
        stalls: Vec::new(),
        places: Vec::new(),
        ports: None,
        explained: Vec::new(),
        ..waits::pings()
    };
    says(prompt.clone(), "cache7 answered in 52 us, worst 96 ms, and did not stall. ");
    says(PingAccount { lost: 4, ..prompt.clone() }, "; 4 of 998 requests lost, one by one. ");
    says(
        PingAccount { answered: 7, ..prompt.clone() },
        "cannot tell whether it stalled: 7 answers are too few. ",
    );
    says(
        PingAccount { left_out: 200, ..prompt.clone() },
        "whether it stalled: 204 requests had no chance of an answer. ",
    );
    says(
        PingAccount { late: 9, alone: 9, ..prompt.clone() },
        "9 answers of 990 came late, one by one (jitter, ",
    );
    let silence = PingStall { length: Duration::from_secs(1), lost: 100, ..PingStall::default() };
    says(
        PingAccount { stalls: vec![silence], ..prompt.clone() },
        "cache7 gave no answer in 1 stall, the longest 1.0 s. ",
    );
    // A time without any answer is not explained by late ones.
    says(
        PingAccount { late: 11, ..waits::pings() },
        "Answers of cache7 stalled: 11 of 990 came late, in 3 stalls",
    );
    let mut own = PingAccount { late: 11, ..waits::pings() };
    own.stalls.retain(|stall| stall.late > 0);
    says(
        own,
        "This host kept 11 of 990 answers of cache7 waiting, in 2 stalls, the longest 96 ms; 6 of 998 requests lost. ",
    );
    let silent = PingAccount { answered: 0, times: None, ..prompt };
    says(silent.clone(), "cache7 gave no answer to 998 requests. ");
    says(
        PingAccount { sent: 0, ..silent },
        "This host sent no request to cache7: EPERM (a firewall or a route of this host). ",
    );
    let blind = PingAccount { unwatched: Some("packet stalls: not recorded".into()), ..waits::pings() };
    let said = pings(&of(blind), &SHORT);
    assert!(said.contains("cannot tell whether late answers waited on this host"), "{said}");
    // `report` of a recording that holds nothing else.
    let alone = Document { account: Account::default(), ..of(waits::pings()) };
    assert_eq!(text(&alone, &SHORT), pings(&alone, &SHORT));
}

#[test]
fn sides_of_late_answers_are_told_in_words() {
    let said = |change: &dyn Fn(&mut PingAccount)| {
        let mut account = waits::pings();
        change(&mut account);
        let doc = Document { pings: Some(account), ..sample::empty() };
        pings(&doc, &SHORT).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (place, words) in [
        (
            Some(Where::There),
            "the longest 96 ms; they waited before the target's kernel took the request; 6 of 998",
        ),
        (Some(Where::Target), "the longest 96 ms; they waited at the target's server; 6 of 998"),
        (
            Some(Where::Back),
            "the longest 96 ms; they waited behind the answer of the target's server; 6 of 998",
        ),
        (None, "the longest 96 ms; 6 of 998 requests lost. No answer came by icmp."),
    ] {
        let said = said(&|pings| pings.places = vec![PingPlace { place, late: 15 }]);
        assert!(said.contains(words), "{said}");
    }
    let held = |held: PortsHeld, how: &str, icmp: (u64, u64)| {
        let change = |pings: &mut PingAccount| {
            let ports = pings.ports.expect("the sample has some");
            let (icmp_late, icmp_in_time) = icmp;
            pings.ports = Some(PingPorts { held, icmp_late, icmp_in_time, ..ports });
            (pings.how, pings.places, pings.explained) = (how.to_owned(), vec![], vec![]);
        };
        said(&change)
    };
    for (verdict, how, icmp, words) in [
        (
            PortsHeld::All,
            "tcp",
            (3, 0),
            "of ICMP 3 came late, and 0 in time: the target as a whole, a path that all take, this host, or a device",
        ),
        (
            PortsHeld::All,
            "tcp",
            (0, 3),
            "of ICMP 0 came late, and 3 in time: a receive queue stalls that ICMP does not use",
        ),
        (PortsHeld::All, "udp", (0, 0), "many devices spread UDP by addresses alone; ask by --tcp PORT"),
        (
            PortsHeld::Some,
            "tcp",
            (0, 0),
            "in time: one receive queue stalls, one of several paths, or one of several servers",
        ),
        (PortsHeld::Same, "tcp", (0, 0), "in time, the same ports in each stall: one receive queue stalls"),
        (
            PortsHeld::Changing,
            "tcp",
            (0, 0),
            "other ports in each stall: receive queues stall in turn, or paths",
        ),
        (PortsHeld::Unknown, "udp", (0, 0), "too few to tell whether one receive queue stalls, or all"),
    ] {
        let said = held(verdict, how, icmp);
        assert!(said.contains(words), "{said}");
    }
    // Nearly all waited at the server, or on this host: ports accuse nothing else.
    let known = |change: &dyn Fn(&mut PingAccount)| {
        let said = said(&|pings| {
            (pings.places, pings.explained) = (vec![], vec![]);
            change(pings);
        });
        !said.contains("one receive queue stalls") && said.contains("in time, the same ports in each stall")
    };
    assert!(known(&|pings| pings.places = vec![PingPlace { place: Some(Where::Target), late: 15 }]));
    assert!(known(&|pings| (pings.late, pings.explained) = (11, waits::pings().explained)));
    assert!(!known(&|_| ()));
    let one = said(&|pings| (pings.ports, pings.how) = (None, "icmp".to_owned()));
    assert!(one.contains("ICMP has no ports (add --tcp PORT)"), "{one}");
}

#[test]
fn nothing_seen_is_said_in_a_sentence() {
    let said = chains(&sample::empty(), &SHORT);
    assert!(said.contains("\nNo chain found: no task is known to have kept others waiting.\n"), "{said}");
    let said = locks(&sample::empty(), &SHORT);
    assert!(
        said.contains("\nNo task was seen waiting for a kernel lock (uncontended holds are not seen).\n")
    );
    let nothing = WallAccount { of: "true".into(), ..WallAccount::default() };
    let said = text(&Document { wall: Some(nothing), ..sample::empty() }, &SHORT);
    assert!(said.contains("\ntrue took 0 s; where it went is not known.\n"), "{said}");
    assert!(
        said.contains("\nwall 0 s, CPU 0 s, off-CPU 0 s; how much is unexplained is not known\n"),
        "{said}"
    );
    a_page(&said);
}

#[test]
fn an_exam_without_a_cause_names_the_longest_waits_and_all_with_v() {
    let doc = Document { chains: waits::chains(), ..sample::empty() };
    let short = text(&doc, &SHORT);
    assert!(short.contains("\nwaited   runguard (3 threads) waited 3.2 s"), "{short}");
    assert!(short.contains("\n         dd (55) waited 800 ms") && !short.contains("curl (55)"), "{short}");
    assert!(text(&doc, &LONG).contains("\n6. web (2 threads) was ready"), "{}", text(&doc, &LONG));
    assert!(!text(&sample::empty(), &LONG).contains("Chains"));
}

#[test]
fn many_threads_spend_their_time_and_a_command_takes_it() {
    let of = |of: &str, is_sum| WallAccount { of: of.into(), is_sum, ..waits::wall() };
    let said = |wall| text(&Document { wall: Some(wall), ..sample::empty() }, &SHORT);
    assert!(
        said(of("threads of nginx.service", true))
            .contains("\nthreads of nginx.service spent 12.3 s: 62 % rustc:")
    );
    assert!(said(of("cargo build", false)).contains("\ncargo build took 12.3 s: 62 % rustc: user code"));
    let all_said = WallAccount { unexplained: Duration::ZERO, ..waits::wall() };
    assert!(said(all_said).contains("off-CPU 3.1 s; nothing is unexplained\n"));
}

#[test]
fn ten_thousand_chains_are_a_page_of_twenty() {
    let one = waits::chains().remove(0);
    let doc = Document { chains: vec![one; 10_000], ..sample::empty() };
    let short = chains(&doc, &SHORT);
    assert!(short.contains("\nand 9980 more (-v lists them)\n"), "{short}");
    let long = chains(&doc, &LONG);
    assert!(long.contains("\n10000. runguard"));
    a_page(&long);
}

/// A number that makes no sense.
fn absurd(doc: &mut Document) {
    let most = Duration::MAX;
    let part = Part {
        time: most,
        share: Some(Share::of(1e300, 1e-300)),
        count: Some(u64::MAX),
        worst: Some(most),
        ..waits::part("running", "user code", 1.0, Vec::new())
    };
    let mut deep = part.clone();
    for _ in 0..200 {
        deep = Part { parts: vec![deep, part.clone()], ..part.clone() };
    }
    doc.wall = Some(WallAccount {
        wall: most,
        cpu: most,
        off_cpu: most,
        unexplained: most,
        parts: vec![deep],
        ..waits::wall()
    });
    for chain in &mut doc.chains {
        (chain.time, chain.worst, chain.count) = (most, most, u64::MAX);
        for hop in &mut chain.hops {
            (hop.lost, hop.worst, hop.count, hop.per_call) = (most, Some(most), Some(u64::MAX), Some(most));
        }
    }
    for lock in &mut doc.locks {
        (lock.read.count, lock.read.total, lock.read.worst) = (u64::MAX, most, most);
        (lock.write.count, lock.write.total, lock.write.worst) = (u64::MAX, most, most);
    }
    for call in &mut doc.calls {
        (call.files, call.count, call.errors) = (u64::MAX, u64::MAX, u64::MAX);
        (call.time, call.worst, call.running, call.runnable) = (most, most, most, most);
    }
    for call in &mut doc.slow_calls {
        (call.at, call.time, call.pid) = (most, most, u32::MAX);
    }
}

#[test]
fn numbers_that_make_no_sense_keep_to_the_page() {
    let mut doc = waits::watched();
    absurd(&mut doc);
    for style in [SHORT, LONG] {
        a_page(&text(&doc, &style));
        a_page(&chains(&doc, &style));
        a_page(&locks(&doc, &style));
        a_page(&work(&doc, &style));
    }
}

#[test]
fn nothing_at_all_keeps_to_the_page() {
    let leaf = Culprit::new(SubjectKind::Kernel, "", "");
    let (time, worst) = (Duration::ZERO, Duration::ZERO);
    let none = Chain { time, count: 0, worst, hops: Vec::new(), tasks: Vec::new(), leaf, notes: Vec::new() };
    let mut bare = none.clone();
    bare.hops = vec![Hop::default(), waits::hop("running", "x", "running", "", 0.0)];
    bare.hops.push(Hop::default());
    let doc = Document {
        wall: Some(WallAccount { parts: vec![Part::default()], ..WallAccount::default() }),
        chains: vec![none, bare],
        locks: vec![LockAccount::default()],
        works: vec![WorkAccount::default()],
        calls: vec![CallAccount::default()],
        slow_calls: vec![SlowCallAccount::default()],
        ..sample::empty()
    };
    for style in [SHORT, LONG] {
        a_page(&text(&doc, &style));
        a_page(&chains(&doc, &style));
        a_page(&locks(&doc, &style));
        a_page(&work(&doc, &style));
    }
}

#[test]
fn one_line_of_json_holds_the_same_document() {
    let doc = waits::watched();
    let line = json_line(&doc);
    assert!(line.starts_with("{\"schema\"") && line.ends_with("}\n") && line.lines().count() == 1, "{line}");
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&line), read(&json(&doc)));
}

/// That the holder of its lock was not seen does not hide what it waited for.
#[test]
fn a_wait_whose_end_was_not_seen_is_named_by_what_it_was_for() {
    let unseen = waits::part("unexplained", WaitTarget::HolderNotSeen, 12.3, vec![]);
    let waited = waits::part("lock", "percpu rwsem s_writers", 12.3, vec![unseen]);
    let touch = Part { who: waits::called("touch"), ..waited };
    let wall = WallAccount {
        of: "touch x".into(),
        parts: vec![touch],
        wall: sample::s(12.3),
        ..WallAccount::default()
    };
    let page = text(&Document { wall: Some(wall), ..sample::empty() }, &SHORT);
    assert!(page.contains("touch x took 12.3 s: 100 % touch: waiting for percpu rwsem s_writers."), "{page}");
}

/// What we did is told apart from what it did, where it is much.
#[test]
fn a_command_that_looking_slowed_is_told_so_on_top() {
    let page = |own: f64| {
        let parts = vec![
            waits::part("running", WaitTarget::OwnTracing, own, vec![]),
            waits::part("running", "user code", 12.3 - own, vec![]),
        ];
        let running = waits::part("running", "", 12.3, parts);
        let wall = WallAccount {
            of: "dd".into(),
            parts: vec![running],
            wall: sample::s(12.3),
            ..WallAccount::default()
        };
        text(&Document { wall: Some(wall), ..sample::empty() }, &SHORT).replace('\n', " ")
    };
    let slowed = page(6.15);
    let told = "dd took 12.3 s: 50 % user code. Looking slowed it: 50 % of that was whyslow's own tracing.";
    assert!(slowed.contains(told), "{slowed}");
    let hardly = page(1.0);
    assert!(hardly.contains("dd took 12.3 s: 92 % user code, 8 % whyslow's own tracing."), "{hardly}");
}
