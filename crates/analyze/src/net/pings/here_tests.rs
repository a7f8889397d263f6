use proptest::prelude::*;
use whyslow_model::ping::PingAccount;
use whyslow_model::stall::{Stall, StallKind, StallSeen};
use whyslow_model::table::{Ping, Task};

use super::super::account;
use super::super::simulator::{Dice, MS, Receiver, recording};
use super::*;

fn stall(cpu: u32, from: u64, to: u64) -> Stall {
    let kind = StallKind::Deferred.word().to_owned();
    Stall { cpu, at_ns: to, ns: to.saturating_sub(from), kind, ..Stall::default() }
}

/// A thread had the CPU.
fn by_agent(stall: Stall) -> Stall {
    let row = |pid, comm: &str, count| StallSeen {
        pid,
        tgid: pid,
        comm: comm.into(),
        count,
        ..StallSeen::default()
    };
    let syscall = Some(0);
    let tick = StallSeen { syscall, file: Some("memory.stat".into()), ..row(9, "agent", 20) };
    Stall { seen: vec![tick, row(20, "ksoftirqd/1", 1)], ..stall }
}

/// Of 100 requests each is answered in 100 us, but the one sent at 100 ms after `ms`.
fn one_late(ms: u64, stalls: Option<Vec<Stall>>) -> PingAccount {
    let delay = |n: u64| if n == 10 { ms * MS } else { MS / 10 };
    let row =
        |n: u64| Ping { sent_ns: n * 10 * MS, answered_ns: Some(n * 10 * MS + delay(n)), ..Ping::default() };
    let mut rec = recording(10 * MS, 1000 * MS, (0..100).map(row).collect());
    rec.tables.stalls = stalls;
    rec.tables.tasks = Some(vec![Task { pid: 9, tgid: 9, comm: "agent".into(), ..Task::default() }]);
    account(&Evidence::of(&rec)).expect("a host was asked")
}

fn cpus(told: &PingAccount) -> Vec<(u32, u64, u64)> {
    told.explained.iter().map(|one| (one.cpu, one.late, one.stalls)).collect()
}

/// Four CPUs with a stall of 8 ms each 10 ms, and a target whose answers are late at times of its own.
#[test]
fn stalls_at_any_time_explain_no_answer() {
    let stalls = (0..400)
        .map(|n| by_agent(stall(n % 4, u64::from(n) * 5 * MS / 2, u64::from(n) * 5 * MS / 2 + 8 * MS)));
    let told = one_late(12, Some(stalls.collect()));
    assert_eq!((told.late, cpus(&told)), (1, vec![]));
    assert!(told.notes.iter().any(|note| note.contains("by chance: 1 answer did")), "{:?}", told.notes);
}

#[test]
fn queue_of_a_cpu_explains_no_single_answer() {
    let queue = Stall {
        kind: StallKind::Queued.word().to_owned(),
        worst_ns: 50 * MS,
        waits: 1,
        ..stall(1, 101 * MS, 149 * MS)
    };
    let told = one_late(50, Some(vec![by_agent(queue)]));
    assert_eq!((told.late, cpus(&told)), (1, vec![]));
}

#[test]
fn a_stall_that_ends_at_the_answer_explains_it() {
    let told = one_late(50, Some(vec![by_agent(stall(1, 101 * MS, 149 * MS)), stall(0, 400 * MS, 450 * MS)]));
    assert_eq!((told.late, cpus(&told), &told.unwatched), (1, vec![(1, 1, 1)], &None));
    let culprit = told.explained[0].culprit.as_ref().expect("the agent ran there");
    assert_eq!((culprit.pid, culprit.file.as_deref()), (9, Some("memory.stat")));
}

#[test]
fn a_stall_before_or_behind_the_answer_or_too_short_explains_nothing() {
    for other in [
        stall(1, 50 * MS, 100 * MS),
        stall(1, 101 * MS, 130 * MS),
        stall(1, 101 * MS, 152 * MS),
        stall(1, 130 * MS, 149 * MS),
    ] {
        let told = one_late(50, Some(vec![other.clone()]));
        assert_eq!((told.late, cpus(&told)), (1, vec![]), "{other:?}");
    }
}

#[test]
fn of_stalls_on_several_cpus_the_nearest_explains() {
    let all = [(0, 145), (1, 149), (2, 147)].map(|(cpu, to)| stall(cpu, 101 * MS, to * MS));
    assert_eq!(cpus(&one_late(50, Some(all.to_vec()))), [(1, 1, 1)]);
}

#[test]
fn two_stalls_in_turn_explain_and_the_longer_one_is_told() {
    let all = vec![stall(0, 101 * MS, 130 * MS), stall(1, 132 * MS, 149 * MS)];
    assert_eq!(cpus(&one_late(50, Some(all.clone()))), [(0, 1, 1)]);
    assert_eq!(cpus(&one_late(50, Some(all[1..].to_vec()))), []);
}

#[test]
fn a_host_that_was_not_watched_explains_nothing_and_says_why() {
    let told = one_late(50, None);
    assert_eq!((told.late, told.explained.len()), (1, 0));
    assert_eq!(told.unwatched.as_deref(), Some("packet stalls was not recorded"));
}

/// As the doc comments say it, by looking at all stalls.
fn naive(all: &[Wait], sent: u64, answered: u64, excess: u64) -> Option<Wait> {
    let near = 2 * MS.max(excess / 100 * 10);
    let over = |w: &Wait| w.to.min(answered).saturating_sub(w.from.max(sent));
    let enough = (excess / 100 * 80).saturating_sub(4 * MS).max(excess / 2).max(1);
    let ends: Vec<&Wait> = all.iter().filter(|w| w.to + near >= answered && w.to <= answered + MS).collect();
    let far = |w: &Wait| (w.to.abs_diff(answered), *w);
    let mut sufficient: Vec<&Wait> = ends.iter().copied().filter(|w| over(w) >= enough).collect();
    sufficient.sort_by_key(|w| far(w));
    if let Some(first) = sufficient.first() {
        return Some(**first);
    }
    let mut held: Vec<&Wait> = ends.iter().copied().filter(|w| over(w) > 0).collect();
    held.sort_by_key(|w| (std::cmp::Reverse(over(w)), far(w)));
    let last = **held.first()?;
    let union = |w: &Wait| {
        (sent..answered)
            .step_by(MS as usize / 4)
            .filter(|at| [w, &last].iter().any(|w| (w.from..w.to).contains(at)))
            .count() as u64
            * MS
            / 4
    };
    let mut others: Vec<&Wait> = all.iter().filter(|w| w.to > sent && w.to <= answered).collect();
    others.sort_by_key(|w| std::cmp::Reverse((union(w), **w)));
    let other = **others.first()?;
    let longer = if over(&other) > over(&last) { other } else { last };
    Some(longer).filter(|_| union(&other) >= enough)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Times in quarters of a millisecond.
    #[test]
    fn stalls_found_by_search_are_those_of_the_definition(
        drawn in proptest::collection::vec((0..400u64, 1..200u64), 0..30), sent in 0..300u64, delay in 20..300u64, usual in 0..20u64,
    ) {
        let q = MS / 4;
        let wait = |(told, (from, length)): (usize, &(u64, u64))| Wait { to: (from + length) * q, from: from * q, told };
        let mut all: Vec<Wait> = drawn.iter().enumerate().map(wait).collect();
        all.sort_unstable();
        let (sent, answered, excess) = (sent * q, (sent + delay) * q, delay.saturating_sub(usual) * q);
        let expected = naive(&all, sent, answered, excess);
        prop_assert_eq!(Waits(all).cause(sent, answered, excess).copied(), expected);
    }

    #[test]
    fn no_values_make_it_panic(drawn in proptest::collection::vec(any::<(u64, u64)>(), 0..90), sent: u64, answered: u64, excess: u64) {
        let mut all: Vec<Wait> = drawn.iter().map(|(to, from)| Wait { to: *to, from: *from, told: 0 }).collect();
        all.sort_unstable();
        Waits(all).cause(sent, answered, excess);
    }
}

/// Requests whose answers stall here, and the stalls as the probe tells them: up to a tick short. With another seed they are of another window.
fn stalled_here(seed: u64, of: u64) -> PingAccount {
    let draw = |seed| {
        let mut dice = Dice(seed);
        let receiver =
            Receiver::every(MS, 10_000 * MS).stalling(&mut dice, (10 * MS, 100 * MS), (50 * MS, 600 * MS));
        (receiver, dice)
    };
    let (receiver, mut dice) = draw(seed);
    let mut rec = recording(MS, receiver.window, receiver.rows(&mut dice));
    let watched = draw(of).0.stalls.into_iter();
    rec.tables.stalls =
        Some(watched.map(|(_, from, to)| stall(3, from + dice.between(0, 4 * MS), to)).collect());
    account(&Evidence::of(&rec)).expect("a host was asked")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn late_answers_that_waited_here_are_explained(seed: u64) {
        let told = stalled_here(seed, seed);
        prop_assert_eq!(cpus(&told), [(3, told.late, told.stalls.len() as u64)]);
    }
}

/// Both hosts stall for a sixth of the window.
#[test]
fn stalls_at_other_times_explain_little() {
    let (mut late, mut by_chance) = (0, 0);
    for seed in 0..40 {
        let told = stalled_here(seed, seed ^ 1);
        late += told.late;
        by_chance += told.explained.iter().map(|one| one.late).sum::<u64>();
    }
    assert!(late > 40 * 500 && by_chance * 20 <= late, "{by_chance} of {late}");
}
