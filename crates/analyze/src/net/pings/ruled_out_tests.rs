use whyslow_model::ping::{Leg, PingHow};
use whyslow_model::stall::Stall;

use super::super::account;
use super::super::simulator::{Dice, MS, Receiver, recording};
use super::*;
use whyslow_model::Recording;

/// Stalls of 60 to 90 ms of one of so many queues, asked by TCP from 16 ports.
fn stalling(queues: u16) -> Recording {
    let mut receiver =
        Receiver::every(5 * MS, 10_000 * MS).stalling(&mut Dice(7), (60 * MS, 90 * MS), (500 * MS, 900 * MS));
    (receiver.ports, receiver.queues) = (16, queues);
    let mut rec = recording(receiver.interval, receiver.window, receiver.rows(&mut Dice(8)));
    rec.meta.pinged.as_mut().expect("a host was asked").how = PingHow::Tcp.word().to_owned();
    rec
}

fn told(rec: &Recording) -> Vec<String> {
    account(&Evidence::of(rec)).expect("a host was asked").ruled_out.into_iter().map(|not| not.what).collect()
}

#[test]
fn ports_that_do_not_stall_rule_out_the_whole() {
    assert_eq!(told(&stalling(1)), Vec::<String>::new(), "the target may have one queue");
    assert_eq!(
        told(&stalling(4)),
        ["a target that stands still as a whole, and a path that all requests take"]
    );
}

/// Late answers waited there, and the others took no longer than usual.
#[test]
fn the_times_of_the_target_rule_out_the_rest() {
    let with = |leg: fn(u64) -> Leg| {
        let mut rec = stalling(1);
        rec.meta.pinged.as_mut().expect("a host was asked").how = PingHow::Udp.word().to_owned();
        for row in rec.tables.pings.iter_mut().flatten() {
            let delay = row.answered_ns.unwrap_or_default().saturating_sub(row.sent_ns);
            row.leg = Some(Box::new(leg(delay)));
        }
        told(&rec)
    };
    assert_eq!(
        with(|delay| Leg { there_ns: delay / 2, stay_ns: delay / 3 }),
        Vec::<String>::new(),
        "no place has most"
    );
    assert_eq!(
        with(|delay| Leg { there_ns: delay, stay_ns: 0 }),
        ["the way back, and the work of the target's server"]
    );
    assert_eq!(with(|delay| Leg { there_ns: 0, stay_ns: delay }), ["the network between the two hosts"]);
    assert_eq!(with(|_| Leg::default()), ["the way to the target, and the work of its server"]);
}

#[test]
fn this_host_is_ruled_out_only_where_all_its_waits_were_seen() {
    let here = "packets that wait for their CPU on this host".to_owned();
    let mut rec = stalling(1);
    assert!(!told(&rec).contains(&here), "not watched");
    rec.tables.stalls = Some(vec![]);
    assert!(!told(&rec).contains(&here), "no gaps, no CPUs");
    (rec.tables.gaps, rec.tables.cpus, rec.tables.tasks) = (Some(vec![]), Some(vec![]), Some(vec![]));
    (rec.tables.spans, rec.tables.runs) = (Some(vec![]), Some(vec![]));
    assert!(told(&rec).contains(&here), "{:?}", told(&rec));
    // Whatever they waited for, and whenever.
    for kind in ["long-poll", "queue"] {
        let stall = Stall {
            cpu: 1,
            at_ns: 700 * MS,
            ns: 9 * MS,
            kind: kind.into(),
            waits: 1,
            worst_ns: 9 * MS,
            ..Stall::default()
        };
        rec.tables.stalls = Some(vec![stall]);
        assert!(!told(&rec).contains(&here), "{kind}");
    }
}

#[test]
fn nothing_is_ruled_out_where_no_answer_was_late() {
    let rows = Receiver::every(5 * MS, 1000 * MS).rows(&mut Dice(1));
    assert_eq!(told(&recording(5 * MS, 1000 * MS, rows)), Vec::<String>::new());
}
