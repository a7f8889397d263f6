use std::os::unix::fs::PermissionsExt as _;

use super::*;

const MESSAGES: &str = r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/a/Cargo.toml","target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}
{"reason":"build-script-executed","out_dir":"/p/out"}
{"reason":"compiler-artifact","manifest_path":"/p/crates/a/Cargo.toml","target":{"kind":["bin"],"name":"b"},"profile":{"test":false},"executable":"/p/b"}
{"reason":"compiler-artifact","manifest_path":"/p/crates/a/Cargo.toml","target":{"kind":["test"],"name":"t"},"profile":{"test":true},"executable":"/p/t-0123"}
{"reason":"build-finished","success":true}
"#;

#[test]
fn of_what_cargo_built_the_tests_are_found_and_nothing_else() {
    let found = told(MESSAGES).unwrap();
    let test = Binary {
        target: "t".to_owned(),
        path: PathBuf::from("/p/t-0123"),
        folder: PathBuf::from("/p/crates/a"),
    };
    assert_eq!(found, [test]);
    assert!(told("{\"reason\":").is_err(), "a torn file is no list");
    assert!(told("").unwrap().is_empty());
}

/// A test binary that is a script.
fn script(folder: &Path, text: &str) -> Binary {
    let path = folder.join("test");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Binary { target: "suite".to_owned(), path, folder: folder.to_owned() }
}

fn how(limit: Duration) -> How {
    How { seed: 7, whyslow: PathBuf::from("/p/whyslow"), set: vec!["WHYSLOW_ALL"], limit }
}

const PASSED: &str = "echo 'test result: ok. 1 passed; 0 failed'";

fn ran(text: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), text).run("a::root_b", &how(Duration::from_secs(60))).unwrap()
}

#[test]
fn only_tests_of_a_kind_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let list = "a::root_b: test\nb::timed_c: test\nc::d: test\nroot_e: benchmark";
    let names = script(folder.path(), &format!("printf '{list}\\n'")).names(&["root_", "::timed_"]).unwrap();
    assert_eq!(names, ["a::root_b", "b::timed_c"]);
    assert!(script(folder.path(), "exit 1").names(&["root_"]).is_err());
}

#[test]
fn a_test_is_asked_for_by_its_name_with_the_seed_and_the_program() {
    let done = ran(&format!(r#"echo "$@ $WHYSLOW_SEED $WHYSLOW_BIN $WHYSLOW_ALL"; {PASSED}"#));
    assert_eq!(
        done.said.lines().next().unwrap(),
        "--exact a::root_b --test-threads=1 --show-output 7 /p/whyslow 1"
    );
    assert_eq!((done.ended, done.rows.len()), (Ended::Passed, 1));
    assert_eq!((done.rows[0].suite.as_str(), done.rows[0].cell.as_str()), ("suite", "a::root_b"));
}

#[test]
fn the_rows_of_a_test_are_its_own_and_no_other_is_added() {
    let row = r#"{"suite":"live","cell":"quota","ended":"not_idle","redrawn":2,"why":"busy"}"#;
    let done = ran(&format!("echo '{row}' > $WHYSLOW_PROVEN; {PASSED}"));
    assert_eq!(done.rows.len(), 1);
    assert_eq!((done.rows[0].cell.as_str(), done.rows[0].ended), ("quota", Ended::NotIdle));
}

#[test]
fn failed_test_is_reported_with_its_panic_signal_or_limit() {
    let panic =
        "thread 'a::root_b' (7) panicked at crates/x.rs:46:5:\nassertion failed\n  left: 2\nnote: run with x";
    let failed = ran(&format!("printf \"{panic}\\n\"; exit 101"));
    assert_eq!(failed.ended, Ended::Failed);
    assert!(failed.why.contains("crates/x.rs:46:5") && failed.why.ends_with("left: 2"), "{}", failed.why);
    assert!(ran("kill -SEGV $$").why.contains("signal: 11"));
    assert_eq!(ran("echo 'test result: ok. 0 passed; 0 failed'").ended, Ended::Failed, "it ran nothing");
    let folder = tempfile::tempdir().unwrap();
    let hung = script(folder.path(), "exec sleep 1000").run("a", &how(Duration::from_millis(20))).unwrap();
    assert_eq!((hung.ended, hung.rows[0].ended), (Ended::Failed, Ended::Failed));
    assert!(hung.why.starts_with("it took more than"), "{}", hung.why);
}

#[test]
fn a_test_that_says_so_was_not_run() {
    let done = ran("echo 'not run: one CPU'");
    assert_eq!((done.ended, done.why.as_str()), (Ended::NotRun, "one CPU"));
}
