use whyslow_model::stall::{Stall, StallSeen};
use whyslow_model::table::{Cpu, Poll};
use whyslow_model::{Kind, Recording};

use super::*;
use crate::irq::latency::fixture;

const MS: u64 = 1_000_000;
const RULES: [&str; 8] = [
    "hrtimer_interrupt",
    "asm_sysvec_apic_timer_interrupt",
    "ipt_do_table",
    "nf_hook_slow",
    "process_backlog",
    "net_rx_action",
    "handle_softirqs",
    "run_ksoftirqd",
];

/// The receive softirq has CPU 1 for 95 % of the time, and of 1,000 packets so many come through the queue of the CPU.
fn busy(by_queue: u64, stalls: Vec<Stall>) -> Recording {
    let mut rec = fixture::host();
    let ns = rec.meta.window_ns * 95 / 100;
    let softirqs = vec![("TIMER".into(), 99 * MS, 1), ("NET_RX".into(), ns, 5)];
    rec.tables.cpus = Some(vec![Cpu { cpu: 1, softirqs, ..Cpu::default() }, Cpu::default()]);
    rec.tables.polls =
        Some(vec![Poll { cpu: 1, packets: 1000, backlog_packets: by_queue, ..Poll::default() }]);
    (rec.tables.stalls, rec.tables.gaps, rec.tables.tasks) = (Some(stalls), Some(vec![]), Some(vec![]));
    rec
}

fn seen(count: u32, softirq: bool, frames: &[&str]) -> StallSeen {
    let kernel = frames.iter().map(|frame| (*frame).to_owned()).collect();
    StallSeen {
        count,
        pid: 20,
        tgid: 20,
        comm: "ksoftirqd/1".into(),
        softirq,
        kernel,
        ..StallSeen::default()
    }
}

/// So many waits of 8 ms, and one of 14 ms, each behind the one before.
fn waits(count: u32, ticks: Vec<StallSeen>) -> Stall {
    let end = seen(1, true, &RULES[4..]);
    Stall {
        cpu: 1,
        at_ns: 900 * MS,
        ns: (u64::from(count) * 8 + 14) * MS,
        kind: StallKind::Queued.word().to_owned(),
        waits: count + 1,
        worst_ns: 14 * MS,
        seen: ticks.into_iter().chain([end]).collect(),
    }
}

fn told(rec: &Recording) -> Vec<Finding> {
    check(&Evidence::of(rec)).unwrap()
}

#[test]
fn fires_when_packets_wait_behind_each_other() {
    let rec = busy(1000, vec![waits(90, vec![seen(90, true, &RULES)])]);
    let [found] = &told(&rec)[..] else { panic!("{:?}", told(&rec)) };
    assert_eq!(
        found.title,
        "packets came to CPU 1 faster than it handled them: for 734 ms they waited behind each other in its queue, 8 ms on average, worst \
         14 ms; no task kept the CPU, its time went mostly to ipt_do_table in a softirq"
    );
    assert_eq!((found.kind, found.lost), (Kind::Cause, Some(Duration::from_millis(734))));
    let culprit = found.culprit.as_ref().unwrap();
    assert_eq!((culprit.kind, culprit.function.as_deref()), (SubjectKind::Kernel, Some("ipt_do_table")));
    let advice: Vec<&str> = found.fixes.iter().map(|fix| fix.text.as_str()).collect();
    assert!(advice[0].starts_with("spread the packets over more CPUs"), "{advice:?}");
    assert!(advice[1].starts_with("let the softirq do less for each packet (ipset"), "{advice:?}");
    assert_eq!(advice.len(), 3);
    // On one CPU there is nothing to spread them to.
    let mut one = rec;
    one.meta.cpus = 1;
    assert!(told(&one)[0].fixes[0].text.starts_with("let the softirq do less"));
}

#[test]
fn is_quiet_where_the_queue_was_watched_and_no_packet_waited_for_long() {
    let rec = busy(1000, vec![]);
    assert_eq!(told(&rec), []);
    assert!(rules_out(&Evidence::of(&rec)).unwrap().is_some());
    let mut few = busy(1000, vec![waits(1, vec![seen(4, true, &RULES)])]);
    few.meta.window_ns = 10_000 * MS;
    assert_eq!(told(&few), []);
    assert_eq!(
        rules_out(&Evidence::of(&few)).unwrap().unwrap().evidence,
        "packets waited for their CPU for 14 ms at most"
    );
}

#[test]
fn cannot_tell_where_packets_wait_in_the_ring_of_a_device() {
    for by_queue in [0, 800] {
        let rec = busy(by_queue, vec![]);
        assert_eq!(
            check(&Evidence::of(&rec)).unwrap_err().to_string(),
            "cannot tell how long packets waited in the queues of CPU 1: its receive softirq ran for 95 % of the time"
        );
        assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
    }
    // What was seen is told beside it.
    let both = told(&busy(800, vec![waits(90, vec![seen(90, true, &RULES)])]));
    assert_eq!(both.iter().map(|one| one.kind).collect::<Vec<_>>(), [Kind::Cause, Kind::CannotTell]);
    // A softirq that rests leaves no queue.
    let mut rests = busy(0, vec![]);
    rests.tables.cpus.as_mut().unwrap()[0].softirqs[1].1 = rests.meta.window_ns * 7 / 10;
    assert!(told(&rests).is_empty() && rules_out(&Evidence::of(&rests)).unwrap().is_some());
}

#[test]
fn cannot_tell_where_polls_were_not_seen() {
    for what in ["long polls of packets", Probe::PacketStalls.word()] {
        let mut rec = busy(1000, vec![]);
        rec.missing.push(Missing::skipped(what, "a CPU had too many softirqs to check each").into());
        assert!(check(&Evidence::of(&rec)).is_err(), "{what}");
    }
    let mut unknown = busy(1000, vec![]);
    unknown.tables.polls = None;
    assert!(check(&Evidence::of(&unknown)).is_err());
}

#[test]
fn cannot_tell_by_ticks_of_threads_or_without_any() {
    let why = |ticks| check(&Evidence::of(&busy(1000, vec![waits(90, ticks)]))).unwrap_err().to_string();
    let thread = seen(60, false, &RULES[..2]);
    assert!(
        why(vec![seen(40, true, &RULES), thread])
            .ends_with("but softirqs and threads ran there in turn: this CPU is full")
    );
    assert!(why(vec![]).ends_with("91 times, but no tick of this CPU came meanwhile"), "{}", why(vec![]));
}
