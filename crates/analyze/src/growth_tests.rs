use proptest::prelude::*;

use super::*;

const WINDOW: u64 = 10_000_000_000;

fn row(thing: Thing, at: u64, count: u64) -> Population {
    Population { what: thing.word().to_owned(), at_ns: at, count }
}

/// So many cgroups at the begin, with so many more at the end.
fn cgroups(first: u64, more: u64) -> Vec<Population> {
    (0..=20).map(|at| row(Thing::Cgroups, WINDOW / 20 * at, first + more * at / 20)).collect()
}

/// One call after the other, until the window ends.
fn calls(mut ns: impl FnMut(u64) -> u64) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut at = 0;
    while at < WINDOW {
        let ns = ns(at).max(1_000_000);
        calls.push(Call { at: at + ns / 2, ns });
        at += ns;
    }
    calls
}

fn told(rows: &[Population], calls: &[Call]) -> Option<String> {
    Risen::of(rows, WINDOW).grown(calls).map(|growth| growth.to_string())
}

#[test]
fn calls_that_go_through_all_cgroups_grow_with_them() {
    let growing = calls(|at| 20_000_000 + 200_000_000 * at / WINDOW);
    let growth = Risen::of(&cgroups(1_000, 11_345), WINDOW).grown(&growing).unwrap();
    assert_eq!((growth.to_string().as_str(), growth.thing), ("12,345 cgroups", Thing::Cgroups));
    assert!(growth.per_call > Duration::from_millis(150), "{growth:?}");
}

#[test]
fn what_did_not_rise_or_hardly_made_nothing_longer() {
    let growing = calls(|at| 20_000_000 + 200_000_000 * at / WINDOW);
    assert_eq!(told(&[], &growing), None);
    assert_eq!(told(&cgroups(1_000, 0), &growing), None);
    assert_eq!(told(&cgroups(1_000, 60), &growing), None);
    // A fifth more cgroups, and calls of seven times the length.
    assert_eq!(told(&cgroups(1_000, 300), &growing), None);
    assert_eq!(told(&[row(Thing::Cgroups, 0, 9)], &growing), None);
}

#[test]
fn steady_calls_do_not_grow_whatever_rises() {
    assert_eq!(told(&cgroups(10, 9_000), &calls(|_| 30_000_000)), None);
    let in_turn = calls(|at| if at / 40_000_000 % 2 == 0 { 5_000_000 } else { 80_000_000 });
    assert_eq!(told(&cgroups(10, 9_000), &in_turn), None);
}

#[test]
fn few_calls_cannot_tell() {
    let growing = calls(|at| 400_000_000 + at / 4);
    assert!((FEW / 2..FEW).contains(&growing.len()), "{}", growing.len());
    assert_eq!(told(&cgroups(10, 9_000), &growing), None);
    // Many, but in one half of the window.
    let late: Vec<Call> = (0..40).map(|at| Call { at: WINDOW / 2 + at, ns: 1_000 * at }).collect();
    assert_eq!(told(&cgroups(10, 9_000), &late), None);
}

#[test]
fn of_two_counts_the_one_that_rose_with_the_calls_is_named() {
    // Mounts rise in the first half, the calls in the second.
    let mounts = (0..=20).map(|at: u64| row(Thing::Mounts, WINDOW / 20 * at, 100 + 100 * at.min(10)));
    let rows: Vec<Population> = mounts
        .chain(
            (0..=20).map(|at: u64| row(Thing::Cgroups, WINDOW / 20 * at, 100 + 200 * at.saturating_sub(10))),
        )
        .collect();
    let growing = calls(|at| 10_000_000 + 10_000_000 * (at / (WINDOW / 20)).saturating_sub(10));
    assert_eq!(told(&rows, &growing).as_deref(), Some("2,100 cgroups"));
}

fn any_call() -> impl Strategy<Value = Call> {
    (any::<u64>(), any::<u64>()).prop_map(|(at, ns)| Call { at, ns })
}

proptest! {
    #[test]
    fn no_numbers_make_it_panic(
        calls in prop::collection::vec(any_call(), 0..200),
        seen in prop::collection::vec((any::<u64>(), any::<u64>()), 0..60),
        window in any::<u64>(),
    ) {
        let rows: Vec<Population> =
            seen.iter().map(|(at, count)| row(Thing::IpcNamespaces, *at, *count)).collect();
        let _ = Risen::of(&rows, window).grown(&calls);
    }

    #[test]
    fn calls_in_any_order_and_then_in_the_reverse_have_no_growth(
        ns in prop::collection::vec(5_000_000_u64..500_000_000, 20..100),
        rise in 200_u64..100_000,
    ) {
        let all: Vec<u64> = ns.iter().chain(ns.iter().rev()).copied().collect();
        let each = WINDOW / all.len() as u64;
        let drawn = all.iter().zip(0..).map(|(ns, at)| Call { at: at * each + each / 2, ns: *ns });
        prop_assert_eq!(told(&cgroups(100, rise), &drawn.collect::<Vec<_>>()), None);
    }

    #[test]
    fn constants_have_no_growth(ns in 1_u64..1_000_000_000, count in 0_u64..1_000_000, rise in 0_u64..1_000_000) {
        let steady: Vec<Call> = (0..100).map(|at| Call { at: WINDOW / 100 * at, ns }).collect();
        prop_assert_eq!(told(&cgroups(count, rise), &steady), None);
    }

    #[test]
    fn ranks_are_those_of_the_order(values in prop::collection::vec(0_u32..20, 1..50)) {
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        let ranks = ranks(&values);
        for (a, rank) in values.iter().zip(&ranks) {
            let below = values.iter().filter(|b| *b < a).count() as f64;
            let equal = values.iter().filter(|b| *b == a).count() as f64;
            prop_assert_eq!(*rank, below + (equal - 1.0) / 2.0);
        }
    }
}
