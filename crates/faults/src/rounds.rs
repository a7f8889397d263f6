//! One cell of a live test; its result is printed, whatever the test harness captures.

use std::error::Error;
use std::fmt::Display;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::proven::{self, Ended};
use crate::wrong::{Sort, Wrong};
use crate::{Draw, host, thresholds};

/// Why a cell failed.
pub type Trouble = Box<dyn Error + Send + Sync>;

/// The result of a cell that did not fail.
pub enum Outcome {
    /// All assertions were made, and held.
    Passed,
    /// The assertions that are possible on a busy host held; the others were not made, for this reason.
    HostNotIdle(String),
    /// The cell cannot run here, for this reason.
    NotRun(String),
}

/// A judge's verdict on one try of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All assertions were made, and held.
    Passed,
    /// The scenario did not come about, or other processes used the host, by the test's own clocks: only the assertions were made that hold
    /// on any host.
    Again(String),
    /// The answer is wrong.
    Wrong(Wrong),
}

impl Verdict {
    /// In which way the answer is wrong, if it is.
    #[must_use]
    pub fn sort(&self) -> Option<Sort> {
        if let Verdict::Wrong(wrong) = self { Some(wrong.sort) } else { None }
    }
}

/// Make a cell until the scenario came about on a host without other users, then judge the answer. Only the clocks of the test decide
/// whether to try again; a wrong answer fails at once. `make` gets the number of the try.
pub fn until_judged(
    cell: &dyn Display,
    mut make: impl FnMut(u32) -> Result<Verdict, Trouble>,
) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    let tries = if is_set(ONCE) { 1 } else { thresholds::TRIES };
    for attempt in 0..tries {
        match make(attempt)? {
            Verdict::Passed => return Ok(Outcome::Passed),
            Verdict::Wrong(what) => return Err(what.into()),
            Verdict::Again(reason) => {
                redrawn(cell, &reason);
                why = reason;
            }
        }
    }
    Ok(Outcome::HostNotIdle(why))
}

/// The test runner repeats cells itself, with the same draws.
const ONCE: &str = "WHYSLOW_ONCE";

/// Whether the environment sets `NAME=1`.
#[must_use]
pub fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// One cell that runs until it was judged. `make` gets the name for the files that it keeps.
pub fn run_judged(
    cell: &dyn Display,
    dir: &Path,
    make: impl Fn(&mut Draw, &str) -> Result<Verdict, Trouble>,
) {
    run(cell, dir, |draw| {
        until_judged(cell, |attempt| {
            let label = format!("{cell}-{}-{attempt}", draw.seed());
            make(draw, &label)
        })
    });
}

/// One cell as a test; its result is a row of the suite that `dir` is named after.
pub fn run(cell: &dyn Display, dir: &Path, mut make: impl FnMut(&mut Draw) -> Result<Outcome, Trouble>) {
    if !host::is_root() {
        return say(&format!("not run: {cell} needs root"));
    }
    let mut draw = Draw::of_run(&cell.to_string(), 0);
    let seed = draw.seed();
    let made = catch_unwind(AssertUnwindSafe(|| until_whole(cell, &mut draw, &mut make)));
    let (ended, wrong, why) = match made {
        Ok(Ok(Outcome::Passed)) => (Ended::Passed, None, String::new()),
        // A host that is not idle does not fail the test.
        Ok(Ok(Outcome::HostNotIdle(why))) => (Ended::NotIdle, None, why),
        Ok(Ok(Outcome::NotRun(why))) => (Ended::NotRun, None, why),
        Ok(Err(trouble)) => {
            let wrong = trouble.downcast_ref::<Wrong>().map(|wrong| wrong.sort);
            (Ended::Failed, wrong, trouble.to_string())
        }
        Err(_) => (Ended::Failed, None, "it panicked".to_owned()),
    };
    let suite = dir.file_name().unwrap_or_default().to_string_lossy();
    proven::note(&suite, cell, ended, wrong, &why);
    let word = match ended {
        Ended::Passed => "passed",
        Ended::NotIdle => "HOST NOT IDLE, not passed",
        Ended::NotRun | Ended::NotDrawn => "not run",
        Ended::Failed => "FAILED",
    };
    let said = format!("{word}: {cell} WHYSLOW_SEED={seed} {why}");
    say(&said);
    assert!(ended != Ended::Failed, "{said}");
}

/// Make the cell; make it again if the scenario broke down before whyslow was judged: a starved kernel may kill a victim that swaps
/// (premature OOM: 5 of 9 times beside a full CPU, with one draw of 40 MiB) or keep it from getting ready in time.
fn until_whole(
    cell: &dyn Display,
    draw: &mut Draw,
    make: &mut impl FnMut(&mut Draw) -> Result<Outcome, Trouble>,
) -> Result<Outcome, Trouble> {
    for _ in 1..thresholds::TRIES_OF_THE_BROKEN {
        match make(draw) {
            Err(trouble) if trouble.is::<std::io::Error>() => {
                proven::count_redrawn();
                say(&format!("broke down, made again: {cell}: {trouble}"));
            }
            done => return done,
        }
    }
    make(draw)
}

/// Not println!: cells that were drawn, not drawn or not idle must be printed even when all tests pass.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "live: {text}");
}

/// Report that the cell is made once more, and why.
fn redrawn(cell: &dyn Display, why: &str) {
    proven::count_redrawn();
    say(&format!("made again: {cell}: {why}"));
}
