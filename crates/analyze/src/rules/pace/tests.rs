//! Sequences of sleeps and waits.

use super::*;

/// Whether the sleeps of these rows are as ever: (after a wait, how long), where each wait is as long as `wait`.
fn sleeps(rows: &[(bool, f64)], wait: f64) -> bool {
    let mut all = Sleeps::default();
    for (waited, slept) in rows {
        if *waited {
            all.waited(wait, false);
        }
        all.slept(*slept);
    }
    all.are_as_ever()
}

#[test]
fn late_task_that_still_sleeps_does_not_hurry() {
    let after = |sleep_ns: u64, ns: u64, rests: bool| {
        let mut all = Sleeps { rests, ..Sleeps::default() };
        for _ in 0..5 {
            // In pieces: the timeline cuts a stretch every 10 ms, and at each wait for a CPU.
            (0..4).for_each(|_| all.goes_on(ns / 4, sleep_ns / 4));
            all.waits_again(20_000_000, false);
        }
        all.are_as_ever()
    };
    assert!(after(1_800_000, 2_500_000, true), "sleeps too short for a row");
    assert!(!after(1_800_000, 2_500_000, false), "short waits for other tasks");
    assert!(!after(200_000, 2_500_000, true), "the task hurries");
    assert!(!after(0, 0, true), "the task has something to do at once");
    assert!(!after(15_000_000, 20_000_000, true), "the task may have made up for the wait by then");
}

#[test]
fn tries_for_one_lock_are_one_wait_and_short_sleeps_do_not_make_up_for_it() {
    let after = |goes_on: bool| {
        let mut all = Sleeps::default();
        (0..4).for_each(|_| all.slept(30.0));
        (0..20).for_each(|at| all.waited(100.0, goes_on && at > 0));
        all.are_as_ever()
    };
    assert!(after(true), "a wait of 2 s, and sleeps of 30 ms");
    assert!(!after(false), "twenty waits, and no sleep between two of them");
}

#[test]
fn waiter_never_seen_to_rest_has_no_rest() {
    let waits = |rests: bool| {
        let mut all = Sleeps { rests, ..Sleeps::default() };
        (0..3).for_each(|_| all.waited(200.0, false));
        all
    };
    assert!(waits(false).has_no_rest());
    assert!(!waits(true).has_no_rest(), "the rests are too short for rows");
    let mut rested = waits(false);
    rested.slept(5.0);
    assert!(!rested.has_no_rest() && !Sleeps::default().has_no_rest());
}

#[test]
fn answers_without_a_request_count_only_if_a_third_have_one() {
    let answered = |asked: u64, others: u64| {
        let mut all = Answers::default();
        (0..asked).for_each(|_| all.note(&Span { asked: true, ..Span::default() }, 10));
        (0..others).for_each(|_| all.note(&Span::default(), 10));
        all.asked_ns()
    };
    assert_eq!(answered(1, 0), 10);
    assert_eq!(answered(1, 5), 10);
    assert_eq!(answered(3, 6), 90, "one in three");
    assert_eq!(answered(3, 7), 30);
}

#[test]
fn steady_rests_keep_no_pace_and_shorter_sleeps_after_a_wait_do() {
    let [rests, paced] = [5.0, 0.5].map(|after| [(false, 5.0), (true, after)].repeat(4));
    assert!(sleeps(&rests, 20.0));
    assert!(!sleeps(&paced, 5.0));
    assert!(!sleeps(&rests[..4], 20.0), "too few to tell");
    assert!(
        !sleeps(&[(false, 1000.0), (true, 850.0)].repeat(4), 150.0),
        "a wait that is short for its sleep"
    );
    let skips = [(false, 5.0), (true, 0.0), (true, 0.0), (true, 5.0)].repeat(3);
    assert!(!sleeps(&skips, 5.0), "a task that has not slept between two waits has made up for the first");
}

#[test]
fn a_wait_that_goes_on_is_part_of_the_answer() {
    let mut all = Answers::default();
    all.ended_for_nothing(10);
    all.note(&Span::default(), 20);
    all.note(&Span::default(), 5);
    assert_eq!(all.asked_ns(), 30, "no request is known for the third wait");
    let mut all = Answers::default();
    all.ended_for_nothing(10);
    all.note(&Span { asked: true, ..Span::default() }, 20);
    all.note(&Span::default(), 5);
    assert_eq!(all.asked_ns(), 30, "neither where the second wait has a known request of its own");
}

#[test]
fn a_client_of_waits_that_differ_rests_as_ever_or_keeps_its_pace() {
    let after = |sleep: fn(f64) -> f64| {
        let mut all = Sleeps::default();
        for wait in [40.0, 300.0, 110.0, 220.0, 70.0, 180.0] {
            all.waited(wait, false);
            all.slept(sleep(wait));
        }
        all.are_as_ever()
    };
    assert!(after(|_| 20.0), "no other sleeps to compare with");
    assert!(!after(|wait| 320.0 - wait));
}

#[test]
fn two_waits_before_a_sleep_are_one_that_it_makes_up_for() {
    let mut all = Sleeps::default();
    for wait in [40.0, 80.0, 55.0, 62.0, 71.0, 45.0, 78.0] {
        all.waited(16.0, false);
        all.waited(wait, false);
        all.slept(184.0 - wait);
    }
    assert!(!all.are_as_ever(), "the task keeps a pace of 200 ms");
}

#[test]
fn the_sleep_before_the_first_refusal_that_is_told_came_after_one() {
    let before = |sleeps: &[(u64, bool)], refused: bool| {
        let mut all = Sleeps { refused, ..Sleeps::default() };
        sleeps.iter().for_each(|(ns, is_cut)| all.napped(*ns, *is_cut, true));
        all.unseen_refusal(true)
    };
    assert_eq!(before(&[(7, true), (10, false)], false), 17, "the window cut the first of them");
    assert_eq!(before(&[(7, false), (10, false)], false), 10, "a rest, and a refusal");
    assert_eq!(before(&[(10, false)], true), 0, "the task acquired the lock, and rested");
    assert_eq!(Sleeps { nap: 5, ..Sleeps::default() }.unseen_refusal(false), 0, "another wait");
}
