//! Timelines: long tables of narrow rows, most of whose fields have their default.

use std::fs;

use whyslow::store;
use whyslow_model::timeline::{LockWait, Span, StateTimes, Target, Waker};

use crate::store::long;

/// More rows than a window keeps.
const MANY: u64 = 200_000;

#[test]
fn many_rows_come_back_as_they_were() {
    let seed = crate::store::seed();
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.why");
    let rec = long::recording(MANY, seed);
    store::save(&rec, &path).unwrap();
    assert!(store::open(&path).unwrap() == rec, "what was opened is not what was saved");
}

#[test]
fn a_torn_one_opens_up_to_the_tear() {
    let seed = crate::store::seed();
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.why");
    let rec = long::recording(20_000, seed);
    store::save(&rec, &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 4 * 3]).unwrap();
    let torn = store::open(&path).unwrap();
    assert!(torn.torn.is_some() && torn.meta.watched == rec.meta.watched);
    let (some, all) = (torn.tables.spans.unwrap(), rec.tables.spans.unwrap());
    assert!(some.len() > 5_000 && some.len() < all.len(), "{} of {}", some.len(), all.len());
    assert!(some == all[..some.len()], "rows before the tear are as they were");
}

/// A field that is left out of a line must equal its default.
#[test]
fn a_field_at_a_time_comes_back() {
    let whole = Span {
        mixed: StateTimes {
            running_ns: 1,
            runnable_ns: 2,
            io_ns: 3,
            blocked_ns: 4,
            sleep_ns: 5,
            unknown_ns: 6,
        },
        waker: Some(Waker { work: Some("w".into()), stack: Some(0), ..Waker::default() }),
        target: Some(Target::default()),
        lock: Some(LockWait { reader_owned: true, owner: 7, ..LockWait::default() }),
        work: Some(String::new()),
        stack: Some(0),
        syscall: Some(0),
        open: true,
        ended: true,
        ..Span::default()
    };
    for span in [Span::default(), whole] {
        let line = serde_json::to_string(&span).unwrap();
        assert_eq!(serde_json::from_str::<Span>(&line).unwrap(), span, "{line}");
    }
    let line = serde_json::to_string(&Span::default()).unwrap();
    assert_eq!(line, r#"{"pid":0,"tgid":0,"from_ns":0,"at_ns":0,"woken_ns":0,"to_ns":0}"#);
}
