use super::*;

const MS: u64 = 1_000_000;

fn requests(live: &Live, sockets: u64) -> Requests<'_> {
    Requests::new(8, sockets, Duration::from_millis(100), live)
}

#[test]
fn the_stamp_of_the_device_wins() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    for own in [10, 20, 30] {
        requests.sent(own * MS, 0);
    }
    requests.stamp(0, Place::Device, 12 * MS, 40 * MS);
    requests.stamp(0, Place::Queue, 11 * MS, 40 * MS);
    requests.stamp(1, Place::Queue, 21 * MS, 40 * MS);
    requests.stamp(9, Place::Queue, 21 * MS, 40 * MS);
    let sent: Vec<u64> = requests.rows(0, |_| 0).iter().map(|row| row.sent_ns / MS).collect();
    assert_eq!(sent, [12, 21, 30]);
}

#[test]
fn stamps_of_another_packet_are_refused() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    requests.sent(10 * MS, 0);
    requests.stamp(0, Place::Device, 9 * MS, 11 * MS);
    requests.stamp(0, Place::Device, 12 * MS, 11 * MS);
    assert_eq!(requests.rows(0, |_| 0)[0].sent_ns, 10 * MS);
}

#[test]
fn the_first_answer_counts() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    requests.sent(10 * MS, 0);
    requests.answered(Which::Row(0), 0, PingAnswer::SynAck, Some(11 * MS), 12 * MS);
    requests.answered(Which::Row(0), 0, PingAnswer::Reset, Some(13 * MS), 14 * MS);
    requests.answered(Which::Row(u64::MAX), 0, PingAnswer::Reset, None, 14 * MS);
    assert!(!requests.waits());
    let row = &requests.rows(5 * MS, |_| 77)[0];
    assert_eq!((row.sent_ns, row.answered_ns, row.answer.as_str()), (5 * MS, Some(6 * MS), "syn-ack"));
    assert_eq!((row.port, live.now().answered), (77, 1));
}

#[test]
fn an_answer_is_never_before_its_request() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    requests.sent(10 * MS, 0);
    requests.answered(Which::Row(0), 0, PingAnswer::Reply, Some(10 * MS + 5), 12 * MS);
    requests.stamp(0, Place::Device, 10 * MS + 9, 12 * MS);
    let row = &requests.rows(0, |_| 0)[0];
    assert_eq!((row.sent_ns, row.answered_ns), (10 * MS + 5, Some(10 * MS + 5)));
}

#[test]
fn impossible_stamps_of_answers_are_replaced_by_our_clock() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    requests.sent(10 * MS, 0);
    requests.sent(10 * MS, 0);
    requests.answered(Which::Row(0), 0, PingAnswer::Reply, Some(5 * MS), 12 * MS);
    requests.answered(Which::Row(1), 0, PingAnswer::Reply, Some(15 * MS), 12 * MS);
    let answered: Vec<_> = requests.rows(0, |_| 0).iter().map(|row| row.answered_ns).collect();
    assert_eq!(answered, [Some(12 * MS); 2]);
}

#[test]
fn low_bits_name_the_newest_row() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    assert_eq!(requests.find(Which::Low(0), 0), None);
    for _ in 0..65_540 {
        requests.sent(MS, 0);
    }
    assert_eq!(requests.find(Which::Low(3), 0), Some(65_539));
    assert_eq!(requests.find(Which::Low(4), 0), Some(4));
}

#[test]
fn answer_without_a_mark_is_to_the_only_open_request_of_its_socket() {
    let live = Live::default();
    let mut requests = requests(&live, 4);
    for row in 0..8 {
        requests.sent((10 + row) * MS, 0);
    }
    let only = |requests: &Requests<'_>| [0, 1, 2, 3].map(|socket| requests.find(Which::OnlyOpen, socket));
    assert_eq!(only(&requests), [None; 4], "two are open in each");
    requests.answered(Which::Row(1), 1, PingAnswer::Reply, None, 30 * MS);
    assert_eq!(only(&requests), [None, Some(5), None, None]);
    requests.expire(113 * MS);
    assert_eq!(only(&requests), [Some(4), Some(5), Some(6), Some(7)]);
    assert_eq!(requests.find(Which::Row(5), 2), None, "another socket than the row's");
}

#[test]
fn port_is_free_when_its_last_request_is_answered_or_lost() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    for row in 0..3 {
        requests.sent((10 + row) * MS, 0);
    }
    requests.answered(Which::Row(1), 0, PingAnswer::SynAck, None, 30 * MS);
    assert_eq!([0, 3, 4, 5].map(|row| requests.is_free(row, 3)), [true, false, true, false]);
    requests.expire(110 * MS);
    assert_eq!([3, 5].map(|row| requests.is_free(row, 3)), [true, false]);
}

#[test]
fn the_lost_are_counted_and_may_come_back() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    requests.sent(10 * MS, 0);
    requests.not_sent(11 * MS, 3, libc::ENETUNREACH);
    requests.expire(109 * MS);
    assert_eq!(live.now().lost, 0);
    requests.expire(120 * MS);
    assert_eq!((live.now().lost, live.now().not_sent, requests.waits()), (1, 1, false));
    requests.answered(Which::Row(0), 0, PingAnswer::Reply, None, 130 * MS);
    requests.answered(Which::Row(1), 0, PingAnswer::Reply, None, 130 * MS);
    assert_eq!((live.now().lost, live.now().answered), (0, 1));
    let rows = requests.rows(0, |_| 0);
    assert_eq!(rows[1].error.as_deref(), Some("ENETUNREACH"));
    assert_eq!((rows[1].late_ns, rows[1].answered_ns), (3, None));
}

#[test]
fn what_the_target_tells_is_counted_from_the_quickest_way() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    for own in [10, 20, 30, 40] {
        requests.sent(own * MS, 0);
    }
    let far = 1_700_000_000_000 * MS;
    for (row, there, stay) in [(0, 3, 1), (2, 50, 2), (3, 1, 0)] {
        let own = (row + 1) * 10 * MS;
        let answered = requests.answered(Which::Row(row), 0, PingAnswer::Reply, None, own + 60 * MS);
        let arrived = far + own + there * MS;
        requests.stayed(answered.unwrap(), Stay { arrived, left: arrived + stay * MS });
    }
    let again = requests.answered(Which::Row(2), 0, PingAnswer::Reply, None, 99 * MS);
    assert_eq!(again, None, "the first answer counts");
    let rows = requests.rows(0, |_| 0);
    let legs = rows.iter().map(|row| row.leg.as_ref().map(|leg| (leg.there_ns / MS, leg.stay_ns / MS)));
    assert_eq!(legs.collect::<Vec<_>>(), [Some((2, 1)), None, Some((49, 2)), Some((0, 0))]);
}

#[test]
fn nonsense_of_a_target_is_no_number_beyond_the_largest() {
    let live = Live::default();
    let mut requests = requests(&live, 1);
    for (row, arrived, left) in [(0, 1, u64::MAX), (1, u64::MAX, u64::MAX)] {
        requests.sent(10 * MS, 0);
        let answered = requests.answered(Which::Row(row), 0, PingAnswer::Reply, None, 20 * MS);
        requests.stayed(answered.unwrap(), Stay { arrived, left });
    }
    let rows = requests.rows(0, |_| 0);
    let legs: Vec<_> =
        rows.iter().flat_map(|row| row.leg.as_ref()).map(|leg| (leg.there_ns, leg.stay_ns)).collect();
    assert_eq!(legs, [(0, u64::MAX - 1), (u64::MAX - 1, 0)]);
}
