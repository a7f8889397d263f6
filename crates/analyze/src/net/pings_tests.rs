use proptest::prelude::*;
use whyslow_model::ping::Leg;
use whyslow_model::stall::Stall;

use super::simulator::{Dice, MS, Receiver, recording};
use super::*;

/// A request each 10 ms, and when it was answered, in us after it.
fn rows(delays: &[Option<u64>]) -> Vec<Ping> {
    let row = |(n, delay): (usize, &Option<u64>)| {
        let sent_ns = n as u64 * 10 * MS;
        let answer = delay.map_or(String::new(), |_| "reply".to_owned());
        Ping { sent_ns, answered_ns: delay.map(|us| sent_ns + us * 1000), answer, ..Ping::default() }
    };
    delays.iter().enumerate().map(row).collect()
}

fn told_of(rec: &Recording) -> PingAccount {
    account(&Evidence::of(rec)).expect("a host was asked")
}

fn told(rows: Vec<Ping>) -> PingAccount {
    told_of(&recording(10 * MS, 1000 * MS, rows))
}

#[test]
fn a_host_that_was_not_asked_has_no_account() {
    assert!(account(&Evidence::of(&Recording::default())).is_none());
}

#[test]
fn requests_are_answered_or_lost_or_not_sent() {
    let mut all = rows(&[Some(100), None, Some(2_000_000), Some(50), None]);
    all[3].answer = "word of a newer whyslow".to_owned();
    all[4].error = Some("ENOBUFS".to_owned());
    let told = told(all);
    assert_eq!((told.sent, told.answered, told.lost), (4, 3, 1));
    assert_eq!(told.answers, [Answers { answer: PingAnswer::Reply, count: 2 }]);
    assert_eq!(told.not_sent, [NotSent { error: "ENOBUFS".into(), count: 1 }]);
    assert_eq!(
        (told.target.as_str(), told.address.as_str(), told.how.as_str(), told.port),
        ("db", "10.0.0.2", "icmp", None)
    );
    assert_eq!((told.interval, told.notes), (Duration::from_millis(10), vec![]));
}

/// The timeout is 1 s, the window was 1.2 s, and requests left for 500 ms.
#[test]
fn requests_that_an_interrupt_gave_no_time_are_neither_lost_nor_sent() {
    let mut rec = recording(10 * MS, 1200 * MS, rows(&[None; 50]));
    assert_eq!((told_of(&rec).sent, told_of(&rec).lost), (50, 50));
    rec.meta.interrupted = true;
    assert_eq!((told_of(&rec).sent, told_of(&rec).lost), (21, 21));
    if let Some(last) = rec.tables.pings.as_mut().and_then(|rows| rows.last_mut()) {
        last.answered_ns = Some(last.sent_ns + MS);
    }
    assert_eq!((told_of(&rec).sent, told_of(&rec).answered), (22, 1));
}

#[test]
fn percentiles_are_those_of_the_nearest_rank() {
    let delays: Vec<Option<u64>> = (1..=1000).rev().map(Some).collect();
    let times = told(rows(&delays)).times.expect("answers came");
    let us =
        [times.least, times.p50, times.p90, times.p99, times.p999, times.worst].map(|time| time.as_micros());
    assert_eq!(us, [1, 500, 900, 990, 999, 1000]);
    let only = told(rows(&[Some(7)])).times.expect("an answer came");
    assert_eq!((only.least, only.p999), (only.worst, Duration::from_micros(7)));
    let none = told(rows(&[None]));
    assert_eq!((none.times, none.late_from, none.late), (None, None, 0));
}

#[test]
fn answers_are_late_from_5_ms_more_than_usual_on() {
    let mut delays = vec![Some(200); 100];
    (delays[50], delays[60]) = (Some(5_200), Some(5_199));
    let told = told(rows(&delays));
    assert_eq!((told.late_from, told.late), (Some(Duration::from_micros(5_200)), 1));
    assert_eq!((told.alone, told.stalls), (1, vec![]), "no other answer came with it");
}

#[test]
fn silence_is_told() {
    let told = told(rows(&[None, None]));
    assert_eq!((told.lost, told.times), (2, None));
    assert!(told.notes[0].starts_with("The host is down, "), "{:?}", told.notes);
}

/// A closed port answers once a second.
#[test]
fn silence_of_a_closed_udp_port_is_no_loss() {
    let mut all = rows(&[None; 100]);
    (all[0].answered_ns, all[0].answer) = (Some(MS), "port-unreachable".to_owned());
    let mut rec = recording(10 * MS, 1000 * MS, all);
    assert_eq!((told_of(&rec).lost, told_of(&rec).notes.len()), (99, 0));
    rec.meta.pinged.as_mut().expect("a host was asked").how = PingHow::Udp.word().to_owned();
    let told = told_of(&rec);
    assert_eq!((told.sent, told.answered, told.lost, told.limited), (100, 1, 0, 99));
    assert_eq!(told.stalls, [], "a limit is no stall");
    assert!(told.notes[0].contains("icmp_ratelimit"), "{:?}", told.notes);
}

/// Each second request was an ICMP echo, which a firewall drops.
#[test]
fn a_way_without_any_answer_is_left_out() {
    let asked = |icmp: Option<u64>, tcp: Option<u64>| {
        let mut all = rows(&[icmp, tcp].repeat(100));
        all.iter_mut().skip(1).step_by(2).for_each(|row| row.port = 40_000);
        let mut rec = recording(10 * MS, 2000 * MS, all);
        let pinged = rec.meta.pinged.as_mut().expect("a host was asked");
        (pinged.how, pinged.port, pinged.with_icmp) = ("tcp".into(), 80, true);
        let told = told_of(&rec);
        assert_eq!(told.left_out, 0);
        assert_eq!(
            (told.how.as_str(), told.port, told.with_icmp),
            ("tcp", Some(80), true),
            "as it was asked"
        );
        (told.silent, (told.sent, told.lost), told.stalls.len(), told.notes)
    };
    let note = |what: &str| vec![format!("100 requests {what} had no answer: they are left out")];
    let only = |silent: &str| (Some(silent.to_owned()), (100, 0), 0, note(&format!("by {silent}")));
    assert_eq!(asked(None, Some(100)), only("icmp"));
    assert_eq!(asked(Some(100), None), only("tcp port 80"));
    assert_eq!(asked(Some(100), Some(90)), (None, (200, 0), 0, vec![]));
    let slower = "100 requests by icmp took 8 ms longer than tcp: they are left out".to_owned();
    assert_eq!(asked(Some(8_100), Some(100)), (None, (100, 0), 0, vec![slower]));
    let (.., (sent, lost), _, notes) = asked(None, None);
    assert_eq!((sent, lost, notes[0].starts_with("The host is down")), (200, 200, true));
}

/// Echoes are answered, and a closed port once a second.
#[test]
fn silence_of_a_closed_port_is_no_loss_beside_echoes() {
    let mut all = rows(&[Some(100), None].repeat(100));
    all.iter_mut().skip(1).step_by(2).for_each(|row| row.port = 40_000);
    (all[1].answered_ns, all[1].answer) = (Some(11 * MS), "port-unreachable".to_owned());
    let mut rec = recording(10 * MS, 2000 * MS, all);
    let pinged = rec.meta.pinged.as_mut().expect("a host was asked");
    (pinged.how, pinged.port, pinged.with_icmp) = ("udp".into(), 7, true);
    let told = told_of(&rec);
    assert_eq!((told.answered, told.lost, told.limited, told.stalls.len()), (101, 0, 99, 0));
}

/// Echoes are answered meanwhile.
#[test]
fn silence_of_one_way_is_a_stall_beside_the_other() {
    let mut all = rows(&vec![Some(100); 400]);
    all.iter_mut().skip(1).step_by(2).for_each(|row| row.port = 40_000);
    all.iter_mut().skip(101).step_by(2).take(40).for_each(|row| row.answered_ns = None);
    let mut rec = recording(10 * MS, 4000 * MS, all);
    let pinged = rec.meta.pinged.as_mut().expect("a host was asked");
    (pinged.how, pinged.port, pinged.with_icmp) = ("tcp".into(), 80, true);
    let told = told_of(&rec);
    let stalls: Vec<_> = told.stalls.iter().map(|stall| (stall.at.as_millis(), stall.lost)).collect();
    assert_eq!((told.lost, stalls), (40, vec![(1010, 40)]));
}

/// This host asked in vain for the hardware address of the target, for three requests at once.
#[test]
fn errors_of_routers_are_no_times() {
    let mut all = rows(&[Some(3_000_000), Some(2_990_000), Some(2_980_000)]);
    all.iter_mut().for_each(|row| row.answer = "unreachable".to_owned());
    let told = told(all);
    assert_eq!((told.answered, told.unreachable, told.lost, told.late, told.times), (0, 3, 0, 0, None));
    assert!(told.notes[0].starts_with("ICMP errors come from"), "{:?}", told.notes);
}

#[test]
fn requests_that_left_late_are_counted() {
    let mut all = rows(&[Some(100); 4]);
    for (row, ms) in all.iter_mut().zip([0, 9, 10, 50]) {
        row.late_ns = ms * MS;
    }
    let told = told(all);
    assert_eq!((told.sent_late, told.notes.len()), (2, 1));
}

/// The prober had no CPU for 30 ms: two requests were not sent.
#[test]
fn requests_that_were_not_sent_in_time_are_left_out() {
    let mut all = rows(&[Some(100); 10]);
    all.drain(4..6);
    all[4].late_ns = 0;
    assert_eq!((told(all.clone()).sent, told(all).left_out), (8, 2));
    assert_eq!(told(rows(&[Some(100); 10])).left_out, 0);
}

#[test]
fn requests_lost_in_a_row_are_a_stall() {
    let mut delays = vec![Some(200); 400];
    delays[100..140].fill(None);
    let told = told(rows(&delays));
    let ms = Duration::from_millis;
    let silence = PingStall { at: ms(1000), length: ms(400), lost: 40, ..PingStall::default() };
    assert_eq!((told.lost, told.late, told.stalls), (40, 0, vec![silence]));
}

/// Each fourth and fifth answer of 12,000 come late and together, and the last ones the longest.
#[test]
fn the_longest_stalls_are_listed_in_order_of_time() {
    let late = |n: u64| match n % 6 {
        4 => 16_000 + n,
        5 => 6_000 + n,
        _ => 100,
    };
    let told = told(rows(&(0..12_000).map(|n| Some(late(n))).collect::<Vec<_>>()));
    assert_eq!((told.late, told.alone, told.stalls.len()), (4000, 0, LISTED));
    assert!(told.stalls.is_sorted_by_key(|stall| stall.at));
    assert_eq!(told.stalls[0].at, Duration::from_millis(60_040));
    assert_eq!(told.notes, ["Not listed: 1000 shorter stalls"]);
}

fn ping() -> impl Strategy<Value = Ping> {
    let time = || prop_oneof![any::<u64>(), 0..200 * MS, (0..40u64).prop_map(|n| n * 5 * MS)];
    let words =
        prop_oneof![Just("reply"), Just("unreachable"), Just("port-unreachable"), Just(""), Just("?")];
    let error = proptest::option::weighted(0.1, Just("ENOBUFS".to_owned()));
    let leg = (time(), time()).prop_map(|(there_ns, stay_ns)| Box::new(Leg { there_ns, stay_ns }));
    let leg = proptest::option::weighted(0.7, leg);
    (time(), time(), proptest::option::weighted(0.9, time()), words, 0..3u16, error, leg).prop_map(
        |(sent_ns, late_ns, answered_ns, answer, port, error, leg)| Ping {
            sent_ns,
            late_ns,
            answered_ns,
            answer: answer.to_owned(),
            port,
            error,
            leg,
        },
    )
}

proptest! {
    #[test]
    fn any_rows_in_any_order_have_one_account(
        rows in proptest::collection::vec(ping(), 0..60), stalls in proptest::collection::vec((0..3u32, any::<u64>(), any::<u64>()), 0..20),
        seed: u64, interval: u64, timeout: u64, interrupted: bool,
    ) {
        let mut rec = recording(interval, 300 * MS, rows);
        rec.meta.interrupted = interrupted;
        rec.meta.pinged.as_mut().expect("a host was asked").timeout_ns = timeout;
        let stall = |(cpu, at_ns, ns): (u32, u64, u64)| Stall { cpu, at_ns: at_ns % (400 * MS), ns: ns % (200 * MS), kind: "long-poll".into(), ..Stall::default() };
        rec.tables.stalls = Some(stalls.into_iter().map(stall).collect());
        let told = told_of(&rec);
        prop_assert_eq!(told.sent, told.answered + told.lost + told.unreachable + told.limited);
        prop_assert_eq!(told.stalls.iter().map(|stall| stall.late).sum::<u64>() + told.alone, told.late);
        let explained: u64 = told.explained.iter().map(|one| one.late).sum();
        prop_assert!(explained <= told.late && told.late <= told.answered);
        prop_assert!(told.ports.is_none_or(|ports| ports.late <= told.late && ports.late + ports.in_time <= told.answered));
        prop_assert!(told.places.iter().map(|one| one.late).sum::<u64>() <= told.late);
        let mut dice = Dice(seed);
        rec.tables.pings.as_mut().expect("rows").sort_by_cached_key(|_| dice.roll());
        prop_assert_eq!(told_of(&rec), told);
    }
}

/// A million requests, of which half are late, and 100,000 stalls that end where they do.
#[test]
fn many_rows_take_no_square_of_time() {
    let mut receiver = Receiver::every(MS, 1_000_000 * MS);
    receiver.window = 1_000_000 * MS;
    let late = |row: Ping| Ping {
        answered_ns: row.answered_ns.map(|at| at + (row.sent_ns / MS % 2) * 20 * MS),
        ..row
    };
    receiver.jitter = 0;
    let rows: Vec<Ping> = receiver.rows(&mut Dice(1)).into_iter().map(late).collect();
    let mut rec = recording(MS, receiver.window, rows);
    let stall = |n: u64| Stall {
        cpu: n as u32 % 64,
        at_ns: 500_000 * MS + n % 100,
        ns: 19 * MS,
        kind: "long-poll".into(),
        ..Stall::default()
    };
    rec.tables.stalls = Some((0..100_000).map(stall).collect());
    let told = told_of(&rec);
    assert_eq!((told.late, told.alone), (500_000, 500_000));
    // The stalls end at one time, and answers are late at all times.
    assert!(told.notes.iter().any(|note| note.contains("by chance")), "{:?}", told.notes);
}
