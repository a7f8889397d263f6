use super::*;

#[test]
fn a_line_has_target_test_and_seed() {
    let text = "# why\n\nproof live::root_a 7\nlock_chains b::root_c 18446744073709551615\n";
    let read = cells(text).unwrap();
    assert_eq!(
        read.iter().map(ToString::to_string).collect::<Vec<_>>(),
        text.lines().skip(2).collect::<Vec<_>>()
    );
    for torn in ["proof live::root_a", "proof live::root_a x", "proof live::root_a 1 2"] {
        assert!(cells(torn).is_err(), "{torn}");
    }
}

/// The result of a cell with these tries: one letter each.
fn of(tries: &str) -> (char, u64, usize) {
    let (mut all, mut rests) = (tries.chars(), 0);
    let once = || {
        Ok(match all.next().unwrap() {
            'p' => Try::Passed,
            'n' => Try::NotJudged(String::new()),
            _ => Try::Failed(String::new()),
        })
    };
    let (ended, failed) = best_of(once, || {
        rests += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(all.next(), None, "{tries}: no try more than it needs");
    let letter = match ended {
        Try::Passed => 'p',
        Try::NotJudged(_) => 'n',
        Try::Failed(_) => 'f',
    };
    (letter, failed, rests)
}

#[test]
fn one_pass_is_enough_and_only_three_failures_are_one() {
    assert_eq!(of("p"), ('p', 0, 0));
    assert_eq!(of("ffp"), ('p', 2, 2));
    assert_eq!(of("nfp"), ('p', 1, 2));
    assert_eq!(of("fff"), ('f', 2, 2));
    for tries in ["nnn", "fnf", "nff", "ffn"] {
        assert_eq!(of(tries).0, 'n', "{tries}");
    }
}

#[test]
fn a_run_that_judged_little_is_not_enough() {
    assert!(is_enough(12, 0, 4));
    assert!(!is_enough(11, 0, 5) && !is_enough(15, 1, 0) && !is_enough(0, 0, 0));
}
