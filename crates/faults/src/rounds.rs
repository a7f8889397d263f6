//! One cell of a live test; what came out is printed, whatever the test harness captures.

use std::error::Error;
use std::fmt::Display;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::proven::{self, Ended};
use crate::wrong::{Sort, Wrong};
use crate::{Draw, bars, host};

/// Why a cell failed.
pub type Trouble = Box<dyn Error + Send + Sync>;

/// How a cell ended that did not fail.
pub enum Outcome {
    /// All was asserted, and held.
    Passed,
    /// What can be asserted on a busy host held; the rest was not asserted, because of this.
    HostNotIdle(String),
    /// It cannot be made here, because of this.
    NotRun(String),
}

/// What a judge says of one making of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All was asserted, and held.
    Passed,
    /// It did not come about, or others used the host, by the test's own clocks: nothing more was asserted than what must
    /// hold on any host.
    Again(String),
    /// What was said is wrong.
    Wrong(Wrong),
}

impl Verdict {
    /// In which way it is wrong, if it is.
    #[must_use]
    pub fn sort(&self) -> Option<Sort> {
        if let Verdict::Wrong(wrong) = self { Some(wrong.sort) } else { None }
    }
}

/// Make a cell until it came about on a host that nobody else used, and judge what was said of it then. Whether it is made
/// again is said by the clocks of the test alone; what is wrong fails at once. `make` is told which attempt it is.
pub fn until_judged(
    cell: &dyn Display,
    mut make: impl FnMut(u32) -> Result<Verdict, Trouble>,
) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    let tries = if is_set(ONCE) { 1 } else { bars::TRIES };
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

/// The runner of the tests makes cells again itself, with the same draws.
const ONCE: &str = "WHYSLOW_ONCE";

/// Whether somebody asked for something: `NAME=1`.
#[must_use]
pub fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// One cell that is made until it was judged. `make` is told what to call what it keeps.
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

/// One cell as a test; what came of it is a row of the suite that `dir` is named after.
pub fn run(cell: &dyn Display, dir: &Path, mut make: impl FnMut(&mut Draw) -> Result<Outcome, Trouble>) {
    if !host::is_root() {
        return say(&format!("not run: {cell} needs root"));
    }
    let mut draw = Draw::of_run(&cell.to_string(), 0);
    let seed = draw.seed();
    let made = catch_unwind(AssertUnwindSafe(|| until_whole(cell, &mut draw, &mut make)));
    let (ended, wrong, why) = match made {
        Ok(Ok(Outcome::Passed)) => (Ended::Passed, None, String::new()),
        // A host that is not idle fails nobody.
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

/// Make it; again, if the scenario broke down before whyslow was judged: a starved kernel may end a victim that swaps
/// (premature OOM: 5 of 9 times beside a full CPU, with one draw of 40 MiB) or keep it from being ready in time.
fn until_whole(
    cell: &dyn Display,
    draw: &mut Draw,
    make: &mut impl FnMut(&mut Draw) -> Result<Outcome, Trouble>,
) -> Result<Outcome, Trouble> {
    for _ in 1..bars::TRIES_OF_THE_BROKEN {
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

/// Not println!: what was drawn, not drawn or not idle must be seen also when all tests pass.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "live: {text}");
}

/// It is made once more, because of this.
fn redrawn(cell: &dyn Display, why: &str) {
    proven::count_redrawn();
    say(&format!("made again: {cell}: {why}"));
}
