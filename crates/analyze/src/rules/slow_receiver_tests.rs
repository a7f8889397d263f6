//! Hosts whose queues run over, for each reason, and hosts that only seem to have such queues.

use whyslow_model::Kind;
use whyslow_model::table::{Cpu, Poll, Run, Sample, Socket, Speed, Task, Wait};
use whyslow_model::timeline::{Span, Stack, State as Was, StateTimes};

use super::*;
use crate::cpu::speed::measured_tests::{WINDOW, speed};
use crate::evidence::fixture::Fixture;
use crate::rules;

const SECOND: u64 = 1_000_000_000;
const READER: u32 = 7;
const SENDER: u32 = 8;

fn counters(prune: u64, closed: u64) -> String {
    format!("TcpExt: PruneCalled TCPToZeroWindowAdv TCPTimeouts\nTcpExt: {prune} {closed} 0\n")
}

fn task(pid: u32, ran: u64, waited: u64, slept: u64) -> Task {
    Task {
        pid,
        tgid: pid,
        comm: if pid == READER { "sink" } else { "source" }.into(),
        lived_ns: WINDOW,
        exec_ns: ran,
        traced_ns: ran,
        run_delay_ns: waited,
        sleep_ns: slept,
        allowed: "1".into(),
        ..Task::default()
    }
}

fn sockets(full: u64, held_ns: u64) -> Vec<Socket> {
    let base = Socket { netns: 9, tcp: true, looks: 8, room_bytes: 32768, ..Socket::default() };
    let reader = Socket {
        tgid: READER,
        comm: "sink".into(),
        local: "10.0.0.2:80".into(),
        peer: "10.0.0.1:999".into(),
        full,
        closed: full,
        ..base.clone()
    };
    let sender = Socket {
        netns: 10,
        tgid: SENDER,
        comm: "source".into(),
        local: "10.0.0.1:999".into(),
        peer: "10.0.0.2:80".into(),
        held_ns,
        ..base
    };
    vec![reader, sender]
}

/// A window of ten seconds with this reader's thread, and with these rises of the counters.
fn host(reader: Task, prune: u64, closed: u64) -> Fixture {
    let softnet = |squeezed: u64| format!("0 0 0\n{squeezed:x} 0 {squeezed:x}\n");
    let polls = Poll {
        cpu: 1,
        packets: 20_000,
        time_stops: 230,
        time_packets: 23_000,
        budget: 300,
        limit_ns: 8_000_000,
        ..Poll::default()
    };
    let cpu = Cpu { cpu: 1, softirqs: vec![("NET_RX".into(), 820_000_000, 900)], ..Cpu::default() };
    Fixture::window(Duration::from_nanos(WINDOW))
        .start("netns/9/net/netstat", &counters(1000, 1000))
        .end("netns/9/net/netstat", &counters(1000 + prune, 1000 + closed))
        .start("netns/9/net/softnet_stat", &softnet(5))
        .end("netns/9/net/softnet_stat", &softnet(235))
        .with(|t| {
            t.tasks = Some(vec![reader, task(SENDER, SECOND, 0, 9 * SECOND)]);
            t.sockets = Some(sockets(7, 6 * SECOND));
            (t.polls, t.cpus) = (Some(vec![polls]), Some(vec![cpu]));
        })
}

fn computing() -> Task {
    task(READER, WINDOW * 97 / 100, 0, 0)
}

fn slow(host: Fixture) -> Fixture {
    let folder = "sys/devices/system/cpu/cpufreq/policy1";
    let file = |name: &str| format!("{folder}/{name}");
    let idle = "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n";
    let ran = "cpu  1000 0 0 0 0 0 0 0\ncpu0 0 0 0 1000 0 0 0 0\ncpu1 1000 0 0 0 0 0 0 0\n";
    host.start("proc/stat", idle)
        .end("proc/stat", ran)
        .end(&file("affected_cpus"), "1\n")
        .end(&file("scaling_driver"), "acpi-cpufreq\n")
        .end(&file("scaling_governor"), "powersave\n")
        .end(&file("scaling_min_freq"), "1000000\n")
        .end(&file("cpuinfo_max_freq"), "4000000\n")
        .with(|t| t.speeds = Some(vec![speed(0, 4000, 0.0), speed(1, 1000, 0.0)]))
}

#[test]
fn fires_with_the_whole_chain_down_to_the_governor() {
    let host = slow(host(computing(), 27, 58));
    let found = check(&host.ev()).unwrap();
    let f = &found[0];
    assert_eq!((f.kind, found.len(), f.victim.name.as_str()), (Kind::Cause, 1, "source"));
    assert_eq!(f.lost, Some(Duration::from_secs(6)));
    let governor = "governor powersave of acpi-cpufreq keeps it at 1000 of 4000 MHz";
    let slow = format!("CPU 1 is 4.0 times slower than the median CPU: {governor}");
    let symptoms = "TCP queues were pruned 27 times, windows were closed 58 times";
    assert_eq!(f.title, format!("sink (pid 7) reads too late: {slow}; {symptoms}"));
    let edges: Vec<_> = f.chain.iter().map(|hop| hop.reason.word()).collect();
    assert_eq!(edges, ["receive-queue", "work", "softirq", "slow-cpu"]);
    let softirq = &f.chain[2].detail.to_string();
    let said = "20000 packets at 41 us each, 8 % of the CPU's time; 23 stops a second, 230 of 230 at the time limit (8 ms, after 100 of 300 packets)";
    assert!(softirq.ends_with(said), "{softirq}");
    assert!(f.culprit.as_ref().unwrap().file.as_ref().unwrap().ends_with("scaling_governor"));
    assert!(f.fixes[0].command.as_ref().unwrap().starts_with("echo performance"));
    assert!(f.fixes.last().unwrap().text.contains("mask"));
}

#[test]
fn is_one_finding_not_four() {
    let again = |n| format!("Tcp: OutSegs RetransSegs\nTcp: {} {n}\n", n * 10);
    let host = slow(host(computing(), 27, 58))
        .start("netns/10/net/snmp", &again(100))
        .end("netns/10/net/snmp", &again(300))
        .end("netns/9/net/softnet_stat", "0 0 0\neb 99 eb\n");
    let reported: Vec<_> = [rules::softnet_drops::RULE, rules::retransmits::RULE, rules::slow_cpu::RULE]
        .iter()
        .map(|rule| (rule.check)(&host.ev()).unwrap().len())
        .collect();
    assert_eq!(reported, [1, 1, 1], "each would be reported");
    let all = rules::ask_all(&host.ev()).findings;
    let network = ["slow-receiver", "softnet-drops", "retransmits", "slow-cpu"];
    let reported: Vec<_> =
        all.iter().filter(|f| network.contains(&f.rule.as_str()) && f.kind != Kind::CannotTell).collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0].rule, "slow-receiver");
}

#[test]
fn fires_on_a_reader_that_computes_and_says_what_it_is_not() {
    let host = host(computing(), 27, 58).with(|t| {
        t.polls = Some(vec![Poll { cpu: 1, packets: 20_000, ..Poll::default() }]);
        t.speeds = Some(vec![speed(0, 4000, 0.0), speed(1, 4000, 0.0)]);
        let at_work = vec!["parse".into()];
        t.samples =
            Some(vec![Sample { pid: READER, tgid: READER, count: 9, user: at_work, ..Sample::default() }]);
    });
    let mut host = host;
    host.0.snapshots.retain(|frame| !frame.name.ends_with("softnet_stat"));
    let found = check(&host.ev()).unwrap();
    assert_eq!((found[0].kind, found.len()), (Kind::Cause, 1));
    let doing = "it was busy with user code (parse) for 97 % of its time, on CPU 1";
    let not =
        "not the CPU's speed, not the packet budget, not the softirq's time limit, not TCP's memory limit";
    assert!(
        found[0].title.starts_with(&format!("sink (pid 7) reads too late: {doing} ({not}); ")),
        "{}",
        found[0].title
    );
    let culprit = found[0].culprit.as_ref().unwrap();
    assert_eq!((culprit.name.as_str(), culprit.function.as_deref()), ("sink", Some("parse")));
}

#[test]
fn fires_on_a_reader_that_sleeps_or_waits_for_a_cpu() {
    let sleeps = host(task(READER, SECOND, 0, 9 * SECOND), 27, 58).with(|t| {
        let kernel = vec!["do_nanosleep".into(), "hrtimer_nanosleep".into()];
        t.stacks = Some(vec![Stack { id: 1, kernel, ..Stack::default() }]);
        let nap =
            Span { pid: READER, woken_ns: SECOND, state: Was::Sleep, stack: Some(1), ..Span::default() };
        t.spans = Some(vec![nap]);
    });
    let title = check(&sleeps.ev()).unwrap().remove(0).title;
    assert!(
        title.starts_with("sink (pid 7) reads too late: it slept for 90 % of its time (its own sleep)"),
        "{title}"
    );
    let waits = host(task(READER, SECOND, 8 * SECOND, 0), 27, 58)
        .with(|t| t.runs = Some(vec![Run { cpu: 1, pid: SENDER, from_ns: 0, to_ns: SECOND }]));
    let found = check(&waits.ev()).unwrap();
    let said = "it was ready, and waited 80 % of its time for CPU 1, which source (pid 8) had most";
    assert!(found[0].title.contains(said), "{}", found[0].title);
    assert_eq!(found[0].culprit.as_ref().unwrap().id, "cpu1");
}

#[test]
fn is_a_risk_where_nobody_here_was_seen_to_wait_or_the_reader_waits_for_data() {
    let remote = host(computing(), 27, 58).with(|t| t.sockets = Some(vec![sockets(7, 0).remove(0)]));
    assert_eq!(check(&remote.ev()).unwrap()[0].kind, Kind::Risk);
    let idle = host(task(READER, SECOND, 0, 9 * SECOND), 27, 58).with(|t| {
        let kernel = vec!["do_epoll_wait".into(), "ep_poll".into()];
        t.stacks = Some(vec![Stack { id: 1, kernel, ..Stack::default() }]);
        let nap =
            Span { pid: READER, woken_ns: SECOND, state: Was::Sleep, stack: Some(1), ..Span::default() };
        t.spans = Some(vec![nap]);
    });
    let found = check(&idle.ev()).unwrap();
    assert_eq!(found[0].kind, Kind::Risk);
    assert!(found[0].title.contains("it reads too late: the reason was not seen"), "{}", found[0].title);
    let unseen = host(computing(), 27, 58).with(|t| t.sockets = Some(Vec::new()));
    let found = check(&unseen.ev()).unwrap();
    assert!(
        found[0].title.contains("the process that reads these queues is not known"),
        "{}",
        found[0].title
    );
}

#[test]
fn is_quiet_where_nothing_runs_over() {
    let squeezed = host(computing(), 0, 0);
    assert_eq!(check(&squeezed.ev()), Ok(vec![]), "limits that are reached without symptoms");
    let mut held_back = host(computing(), 0, 58).with(|t| t.polls = Some(Vec::new()));
    held_back.0.snapshots.retain(|frame| !frame.name.ends_with("softnet_stat"));
    assert_eq!(check(&held_back.ev()), Ok(vec![]), "that is how TCP holds back a sender");
    let sleeps = |ms: u64| {
        let kernel = vec!["wait_woken".into(), "sk_stream_wait_memory".into()];
        let wait = Wait { pid: SENDER, tgid: SENDER, ns: ms * 1_000_000, kernel, ..Wait::default() };
        let mut host = host(computing(), 0, 1).with(|t| t.waits = Some(vec![wait]));
        host.0.snapshots.retain(|frame| !frame.name.ends_with("softnet_stat"));
        check(&host.ev()).unwrap()
    };
    assert!(sleeps(90).is_empty(), "a moment");
    let found = sleeps(4000);
    assert_eq!((found[0].kind, found[0].lost), (Kind::Cause, Some(Duration::from_secs(4))));
}

/// A window that is too small for a message need not close. A sender that rests between two messages does not always have more to send.
#[test]
fn fires_without_a_closed_window_where_the_sender_rests() {
    let with = |slept_ns: u64| {
        let kernel = vec!["wait_woken".into(), "sk_stream_wait_memory".into()];
        let wait = Wait { pid: SENDER, tgid: SENDER, ns: 4 * SECOND, kernel, ..Wait::default() };
        let naps = vec!["do_nanosleep".into(), "hrtimer_nanosleep".into()];
        let nap = Wait { pid: SENDER, tgid: SENDER, ns: slept_ns * 300, kernel: naps, ..Wait::default() };
        let row = |at: u64| Span {
            pid: SENDER,
            tgid: SENDER,
            from_ns: at - 2_000_000,
            at_ns: at,
            woken_ns: at + 14_000_000,
            to_ns: at + 14_000_000,
            state: Was::Sleep,
            stack: Some(5),
            mixed: StateTimes { sleep_ns: slept_ns, ..StateTimes::default() },
            ..Span::default()
        };
        let rows = (1..9).map(|at| row(at * 16_000_000)).collect();
        let both =
            |t: &mut whyslow_model::table::Tables| (t.waits, t.spans) = (Some(vec![wait, nap]), Some(rows));
        let room = vec!["wait_woken".into(), "sk_stream_wait_memory".into()];
        let mut host = host(computing(), 0, 0).with(|t| {
            both(t);
            t.stacks = Some(vec![Stack { id: 5, kernel: room, user: Vec::new() }]);
            t.polls = Some(Vec::new());
        });
        host.0.snapshots.retain(|frame| !frame.name.ends_with("softnet_stat"));
        check(&host.ev()).unwrap()
    };
    let found = with(1_200_000);
    assert_eq!((found[0].kind, found[0].lost), (Kind::Cause, Some(Duration::from_secs(4))));
    assert_eq!(found[0].victim.name, "source");
    assert!(!found[0].title.ends_with("; "), "{}", found[0].title);
    assert!(with(0).is_empty(), "TCP only holds back a stream");
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert!(check(&Fixture::second().ev()).is_err());
    let blind = host(computing(), 27, 58).with(|t| (t.sockets, t.polls) = (None, None));
    let found = check(&blind.ev()).unwrap().remove(0);
    assert_eq!(found.kind, Kind::Risk);
    assert!(
        found.title.contains("the process that reads these queues is not known: sockets were not sampled"),
        "{}",
        found.title
    );
    let said = "23 stops a second, 230 at a limit that was not seen";
    assert!(found.chain[0].detail.to_string().ends_with(said), "{}", found.chain[0].detail);
}

#[test]
fn rules_out_late_readers_only_where_enough_came() {
    let calm = host(computing(), 0, 0);
    let not = rules_out(&calm.ev()).unwrap().unwrap();
    assert_eq!(not.evidence, "20000 packets were received, and no receive queue ran over");
    assert_eq!(rules_out(&host(computing(), 27, 0).ev()).unwrap(), None);
    let few =
        host(computing(), 0, 0).with(|t| t.polls = Some(vec![Poll { packets: 900, ..Poll::default() }]));
    assert_eq!(rules_out(&few.ev()).unwrap(), None);
}

#[test]
fn speeds_without_rows_are_no_slow_cpu() {
    let host = host(computing(), 27, 58).with(|t| t.speeds = Some(vec![Speed::default()]));
    assert!(check(&host.ev()).unwrap()[0].chain.iter().all(|hop| hop.reason.word() != "slow-cpu"));
}

/// A small queue fills with the data that its window had promised. Then the kernel wants to close the window, and must not. The sender's sleep shows
/// that there is no room.
#[test]
fn fires_where_a_window_that_was_promised_hides_that_there_is_no_room() {
    let host = |wanted: u64| {
        let netstat = |n: u64| format!("TcpExt: TCPToZeroWindowAdv TCPWantZeroWindowAdv\nTcpExt: 0 {n}\n");
        let slept = Wait {
            tgid: SENDER,
            ns: 5 * SECOND,
            kernel: vec!["schedule".into(), "sk_stream_wait_memory".into(), "tcp_sendmsg_locked".into()],
            ..Wait::default()
        };
        Fixture::window(Duration::from_nanos(WINDOW))
            .start("netns/9/net/netstat", &netstat(0))
            .end("netns/9/net/netstat", &netstat(wanted))
            .with(|t| {
                t.tasks = Some(vec![computing(), task(SENDER, SECOND, 0, 9 * SECOND)]);
                t.sockets = Some(sockets(7, 6 * SECOND));
                t.waits = Some(vec![slept]);
            })
    };
    let found = check(&host(8).ev()).unwrap();
    assert_eq!((found.len(), found[0].lost), (1, Some(Duration::from_secs(5))), "{found:?}");
    assert_eq!(check(&host(0).ev()), Ok(vec![]));
}

/// A reader on a slow CPU uses more of the CPU's time than it would on a fast CPU.
#[test]
fn that_the_reader_keeps_a_slow_cpu_from_others_is_part_of_it() {
    let full = |culprit: &str| {
        let victim = Subject::new(SubjectKind::Task, "99", "other");
        Finding::cause("full-cpus", victim, Duration::from_millis(200)).by(Culprit::new(
            SubjectKind::Task,
            culprit,
            "x",
        ))
    };
    let left = |host: &Fixture, culprit: &str| {
        let mut findings = check(&host.ev()).unwrap();
        findings.push(full(culprit));
        fold(&host.ev(), &mut findings);
        findings.iter().filter(|found| found.rule == "full-cpus").count()
    };
    let reader = READER.to_string();
    assert_eq!(left(&slow(host(computing(), 27, 58)), &reader), 0);
    assert_eq!(left(&slow(host(computing(), 27, 58)), "55"), 1, "another process");
    assert_eq!(left(&host(computing(), 27, 58), &reader), 1, "its CPU is as fast as the others");
}
