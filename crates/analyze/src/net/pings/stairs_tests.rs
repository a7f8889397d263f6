use proptest::prelude::*;
use whyslow_model::ping::PingAccount;

use super::super::account;
use super::super::simulator::{Dice, MS, Receiver, US, recording};
use crate::Evidence;

fn told(receiver: &Receiver, dice: &mut Dice) -> PingAccount {
    let rec = recording(receiver.interval, receiver.window, receiver.rows(dice));
    account(&Evidence::of(&rec)).expect("a host was asked")
}

/// Each stall is found once, up to an interval of its queue (and the requests lost at its begin) shorter than it was.
fn each_is_found(receiver: &Receiver, told: &PingAccount, between: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!(told.stalls.len(), receiver.stalls.len(), "{:?} of {:?}", &told.stalls, receiver);
    let tolerance = (2 * receiver.jitter + 300 * US + 8 * receiver.tail) as i128;
    for (stall, (_, from, to)) in told.stalls.iter().zip(&receiver.stalls) {
        let (length, truth) = (stall.length.as_nanos() as i128, i128::from(to - from));
        prop_assert!(length <= truth + tolerance, "{:?} is {} ns", stall, truth);
        prop_assert!(length >= truth - i128::from(between) - tolerance, "{:?} is {} ns", stall, truth);
        // The request that was held first left before the stall began, by half of the path.
        let before = (stall.at.as_nanos() as i128 - i128::from(*from)).abs() - i128::from(receiver.path / 2);
        prop_assert!(before <= i128::from(between) + tolerance, "{:?} began at {} ns", stall, from);
        prop_assert!(stall.answers >= stall.late);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn stalls_are_found_with_their_length(seed: u64, us in 300..5000u64, jitter in 0..200u64, drain in 1..20u64) {
        let (mut dice, interval) = (Dice(seed), us * US);
        let receiver = Receiver { jitter: jitter * US, drain: drain * US, ..Receiver::every(interval, 10_000 * MS) };
        let least = 6 * MS + 2 * interval;
        let longest = least + 200 * MS;
        // A stall that begins before the queue of the last one is worked off holds that queue, too.
        let worked_off = 2 * longest / interval * receiver.drain;
        let receiver = receiver.stalling(&mut dice, (least, longest), (4 * interval + 2 * MS + worked_off, 600 * MS));
        let told = told(&receiver, &mut dice);
        each_is_found(&receiver, &told, interval)?;
        let held = receiver.held(5 * MS);
        // Each packet in front of it makes an answer later.
        let more = held * receiver.drain / interval + receiver.stalls.len() as u64 * (3 + 2 * receiver.jitter / interval);
        prop_assert!(told.late.abs_diff(held) <= more, "{} late of {}", told.late, held);
        prop_assert_eq!(told.stalls.iter().map(|stall| stall.late).sum::<u64>(), told.late);
    }

    #[test]
    fn stalls_with_losses_are_one_each(seed: u64, loss in 0.01..0.3f64) {
        let mut dice = Dice(seed);
        let receiver = Receiver { loss, jitter: 50 * US, ..Receiver::every(MS, 10_000 * MS) };
        let receiver = receiver.stalling(&mut dice, (30 * MS, 200 * MS), (50 * MS, 500 * MS));
        let told = told(&receiver, &mut dice);
        each_is_found(&receiver, &told, 15 * MS)?;
        prop_assert!(told.lost > 0);
    }

    /// Every fourth request is in the queue that stalls, between quick ones.
    #[test]
    fn stalls_of_one_queue_of_four_are_one_each(seed: u64, jitter in 0..100u64) {
        let mut dice = Dice(seed);
        let receiver = Receiver { ports: 16, queues: 4, jitter: jitter * US, ..Receiver::every(MS, 10_000 * MS) };
        let receiver = receiver.stalling(&mut dice, (20 * MS, 200 * MS), (80 * MS, 500 * MS));
        each_is_found(&receiver, &told(&receiver, &mut dice), 4 * MS)?;
    }

    /// Each queue has stalls of its own. Of two that end together one is told.
    #[test]
    fn stalls_of_several_queues_are_told_apart(seed: u64) {
        let mut dice = Dice(seed);
        let mut receiver = Receiver { ports: 16, queues: 4, jitter: 50 * US, ..Receiver::every(MS, 20_000 * MS) };
        for queue in 0..4 {
            let drawn = receiver.clone().stalling(&mut dice, (20 * MS, 150 * MS), (200 * MS, 800 * MS));
            let own = drawn.stalls.into_iter().filter(|(of, ..)| *of == 0).skip(receiver.stalls.iter().filter(|(of, ..)| *of == 0).count());
            let own: Vec<_> = own.map(|(_, from, to)| (queue, from, to)).collect();
            receiver.stalls.extend(own);
        }
        let (found, truth) = (told(&receiver, &mut dice).stalls.len(), receiver.stalls.len());
        prop_assert!(truth > 60 && found <= truth && found * 10 >= truth * 9, "{} of {}", found, truth);
    }

    #[test]
    fn stalls_of_a_distant_host_are_found(seed: u64, jitter in 0..1000u64, ms in 1..4u64) {
        let mut dice = Dice(seed);
        let receiver = Receiver { jitter: jitter * US, path: 80 * MS, ..Receiver::every(ms * MS, 10_000 * MS) };
        let receiver = receiver.stalling(&mut dice, (50 * MS, 200 * MS), (50 * MS, 500 * MS));
        each_is_found(&receiver, &told(&receiver, &mut dice), ms * MS)?;
    }

    /// All queues stop: the hypervisor's work, for instance.
    #[test]
    fn stalls_of_all_queues_together_are_one_each(seed: u64) {
        let mut dice = Dice(seed);
        let mut receiver = Receiver { ports: 16, queues: 4, ..Receiver::every(MS, 10_000 * MS) }
            .stalling(&mut dice, (20 * MS, 200 * MS), (80 * MS, 500 * MS));
        let first = receiver.stalls.clone();
        receiver.stalls.extend((1..4).flat_map(|queue| first.iter().map(move |(_, from, to)| (queue, *from, *to))));
        let told = told(&receiver, &mut dice);
        receiver.stalls = first;
        each_is_found(&receiver, &told, MS)?;
    }

    /// A receiver that is busy otherwise: what has queued meanwhile takes 40 % of the time in which it queued.
    #[test]
    fn stalls_that_are_worked_off_slowly_are_one_each(seed: u64, drain in 20..400u64) {
        let mut dice = Dice(seed);
        let receiver = Receiver { drain: drain * US, ..Receiver::every(MS, 10_000 * MS) };
        let receiver = receiver.stalling(&mut dice, (20 * MS, 100 * MS), (200 * MS, 500 * MS));
        let told = told(&receiver, &mut dice);
        each_is_found(&receiver, &told, MS)?;
    }

    /// The share of the window in which the receiver stalls moves the median and not what is late.
    #[test]
    fn the_usual_time_holds_from_a_tenth_to_four_fifths(seed: u64, share in 10..=80u64, ms in 1..6u64) {
        let mut dice = Dice(seed);
        let length = 60 * MS;
        let pause = length * (100 - share) / share;
        let receiver = Receiver { jitter: 100 * US, ..Receiver::every(ms * MS, 20_000 * MS) };
        let receiver = receiver.stalling(&mut dice, (length - 10 * MS, length + 10 * MS), (pause, pause));
        let told = told(&receiver, &mut dice);
        let late_from = told.late_from.expect("answers came").as_nanos() as u64;
        prop_assert!((5 * MS..6 * MS).contains(&late_from), "{} with {}", late_from, receiver.stalled());
        let (late, held) = (told.late, receiver.held(5 * MS));
        prop_assert!(late.abs_diff(held) <= held / 10 + 10, "{} late of {}", late, held);
        let p50 = told.times.expect("answers came").p50.as_nanos() as u64;
        prop_assert!(share < 70 || p50 > 5 * MS);
    }

    #[test]
    fn no_stall_is_found_where_there_is_none(seed: u64, us in 200..10_000u64, jitter in 0..2000u64, path in 0..200u64) {
        let receiver = Receiver { jitter: jitter * US, path: path * MS, ..Receiver::every(us * US, 5_000 * MS) };
        let told = told(&receiver, &mut Dice(seed));
        prop_assert_eq!((told.late, told.stalls.len()), (0, 0), "{:?}", told.late_from);
    }

    /// A distant host. What is late of its answers is late one by one.
    #[test]
    fn jitter_of_a_distant_host_is_usual(seed: u64, us in 500..10_000u64, tail in 500..8000u64) {
        let mut dice = Dice(seed);
        let receiver = Receiver { tail: tail * US, path: 80 * MS, drain: 0, ..Receiver::every(us * US, 20_000 * MS) };
        let mut rows = receiver.rows(&mut dice);
        // Paths that overtake one another: no queue.
        rows.iter_mut().for_each(|row| row.answered_ns = Some(row.sent_ns + 80 * MS + dice.exponential(tail * US)));
        let rec = recording(receiver.interval, receiver.window, rows);
        let told = account(&Evidence::of(&rec)).expect("a host was asked");
        prop_assert!(told.late * 100 <= 3 * told.answered, "{} of {}", told.late, told.answered);
    }

    /// A fifth of the answers is slow, each for itself.
    #[test]
    fn late_answers_that_came_one_by_one_are_no_stair(seed: u64) {
        let mut dice = Dice(seed);
        let mut rows = Receiver::every(MS, 10_000 * MS).rows(&mut dice);
        for row in &mut rows {
            let slow = if dice.share() < 0.2 { dice.between(6 * MS, 30 * MS) } else { 0 };
            row.answered_ns = row.answered_ns.map(|at| at + slow);
        }
        let rec = recording(MS, 10_000 * MS, rows);
        let told = account(&Evidence::of(&rec)).expect("a host was asked");
        prop_assert!(told.late > 1500 && told.alone == told.late && told.stalls.is_empty(), "{:?}", told.stalls);
    }
}

/// From the middle of the window on each answer takes 20 ms more: late answers, and at no time no answer.
#[test]
fn a_path_that_became_longer_is_no_stall() {
    let mut rows = Receiver::every(MS, 1000 * MS).rows(&mut Dice(1));
    rows.iter_mut().skip(500).for_each(|row| row.answered_ns = row.answered_ns.map(|at| at + 20 * MS));
    let told = account(&Evidence::of(&recording(MS, 1000 * MS, rows))).expect("a host was asked");
    assert_eq!((told.late, told.alone, told.stalls.len()), (500, 500, 0));
}

/// 20 ms, a request each millisecond: the answers to 21 requests come together. The last one came while the queue was worked off.
#[test]
fn one_stall_is_told_whole() {
    let mut receiver = Receiver::every(MS, 1000 * MS);
    receiver.stalls = vec![(0, 100 * MS, 120 * MS)];
    let told = told(&receiver, &mut Dice(1));
    let [stall] = &told.stalls[..] else { panic!("{:?}", told.stalls) };
    assert_eq!((stall.at.as_millis(), stall.late, stall.answers), (100, 16, 21));
    assert_eq!(stall.length.as_micros() / 100, 199);
}
