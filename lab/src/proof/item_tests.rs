use super::*;

#[test]
fn each_sort_of_test_has_its_turn() {
    let test = |key: String| Item {
        suite: "s".to_owned(),
        kernel: String::new(),
        how: How::Chain { name: String::new(), kernel: String::new() },
        key,
    };
    let many =
        ["root_run", "root_attach"].iter().flat_map(|name| (0..40).map(move |n| format!("m{n}::{name}")));
    let tests: Vec<Item> = many.chain(["one::root_idle".to_owned()]).map(test).collect();
    for seed in 0..20 {
        let all = in_turn(tests.clone(), &mut Draw::with(seed));
        assert_eq!(all.len(), tests.len());
        let count = |name: &str| all[..9].iter().filter(|test| test.key.ends_with(name)).count();
        assert_eq!((count("_run"), count("_attach"), count("_idle")), (4, 4, 1));
    }
}

fn ran(ended: Ended, rows: &[Ended]) -> Ran {
    let of = |ended: &Ended| Row::of("proof", "cell", *ended).because("row");
    let own = Row::of("proof", "a::root_test", ended);
    let rows_or_own = if rows.is_empty() { vec![own] } else { rows.iter().map(of).collect() };
    let why = "it hung".to_owned();
    let (said, is_without_rows) = (String::new(), rows.is_empty());
    Ran { ended, why, said, rows: rows_or_own, is_without_rows, took: Duration::ZERO }
}

#[test]
fn a_test_is_what_its_row_says_unless_it_failed_behind_it() {
    use Ended::{Failed, NotDrawn, NotIdle, NotRun, Passed};
    let of = |ended, rows: &[Ended], suite: &str| of_test(ran(ended, rows), suite, "a::root_test");
    assert_eq!(of(Passed, &[Passed], "days").ended, Passed);
    assert_eq!(of(Passed, &[NotIdle], "days").ended, NotIdle);
    let hung = of(Failed, &[Passed], "days");
    assert_eq!((hung.ended, hung.why.as_str(), hung.cell.as_str()), (Failed, "it hung", "cell"));
    assert_eq!(of(Failed, &[Failed, Passed], "days").why, "row");
    // Nothing was made: the test says so, or wrote no row.
    assert_eq!(of(NotRun, &[], "days").ended, NotRun);
    assert_eq!(of(Passed, &[], "days").ended, NotDrawn);
    assert_eq!(of(Passed, &[], OF_COSTS).ended, Passed);
    assert_eq!(of(Failed, &[], "days").ended, Failed);
}

/// A defect stays listed under its cell until that cell is right: under its twin's name it would stay forever.
#[test]
fn a_test_of_a_fault_and_its_twin_keeps_the_name_of_the_fault() {
    use Ended::{Failed, NotIdle, Passed};
    let of = |fault, twin| {
        let rows = [("cell", fault), ("cell-twin", twin)];
        let rows = rows.map(|(cell, ended)| Row::of("proof", cell, ended).because("row")).to_vec();
        let row = of_test(Ran { rows, ..ran(Passed, &[Passed]) }, "days", "a::root_test");
        (row.cell, row.ended, row.why)
    };
    assert_eq!(of(Passed, Passed).0, "cell");
    assert_eq!(of(Failed, Passed), ("cell".to_owned(), Failed, "row".to_owned()));
    assert_eq!(of(Failed, Failed), ("cell".to_owned(), Failed, "row".to_owned()), "the fault's own reason");
    assert_eq!(of(NotIdle, Passed).1, NotIdle, "the fault was not made: nothing was proven");
    assert_eq!(of(Passed, Failed), ("cell".to_owned(), Failed, "cell-twin: row".to_owned()));
}
