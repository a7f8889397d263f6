//! Run a cell, once or many times; print what came out, whatever the test harness captures.

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use whyslow_faults::{Draw, bars, draw, host};

use crate::cell::Cell;
use crate::{honest, pair, quiet, single};

/// Why a cell failed.
pub type Trouble = Box<dyn Error + Send + Sync>;

/// How a cell ended that did not fail.
pub enum Outcome {
    /// All was asserted, and held.
    Passed,
    /// What can be asserted on a busy host held; the rest was not asserted, because of this.
    HostNotIdle(String),
}

/// One cell as a test: not drawn, once, or the rounds of a soak.
pub fn run(cell: Cell) {
    if !host::is_root() {
        return say(&format!("not run: {cell} needs root"));
    }
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    let soak = set("WHYSLOW_SOAK");
    if !soak && !set("WHYSLOW_ALL") && !cell.is_drawn(draw::run_seed()) {
        return say(&format!("not drawn: {cell}"));
    }
    let rounds = if soak { bars::SOAK_ROUNDS } else { 1 };
    let (mut passed, mut failed, mut not_idle) = (0, Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut draw = Draw::of_run(&cell.to_string(), round);
        let seed = draw.seed();
        match catch_unwind(AssertUnwindSafe(|| make(cell, &mut draw))) {
            Ok(Ok(Outcome::Passed)) => {
                passed += 1;
                say(&format!("passed: {cell} WHYSLOW_SEED={seed}"));
            }
            Ok(Ok(Outcome::HostNotIdle(why))) => {
                not_idle.push(seed);
                say(&format!("HOST NOT IDLE, not passed: {cell} WHYSLOW_SEED={seed}: {why}"));
            }
            Ok(Err(trouble)) => failed.push((seed, trouble.to_string())),
            Err(_) => failed.push((seed, "it panicked".to_owned())),
        }
        if let Some((seed, trouble)) = failed.last().filter(|(failed_seed, _)| *failed_seed == seed) {
            say(&format!("FAILED: {cell} WHYSLOW_ALL=1 WHYSLOW_SEED={seed}: {trouble}"));
        }
    }
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    let row = format!("{cell:<36} {passed:>3} of {rounds:<3} failing {seeds:?} host not idle {not_idle:?}");
    if soak {
        say(&row);
        note(&row);
    }
    // A host that is not idle fails nobody by itself, unless somebody insists on an idle one.
    let strict = set("WHYSLOW_NEEDS_IDLE") && !not_idle.is_empty();
    let told = failed.iter().fold(String::new(), |mut text, (seed, trouble)| {
        let _ = write!(text, "\n\nWHYSLOW_ALL=1 WHYSLOW_SEED={seed}: {trouble}");
        text
    });
    assert!(failed.is_empty() && !strict, "{row}{told}");
}

/// Make it; again, if the scene broke down before whyslow was judged: a starved kernel may end a victim that swaps
/// (premature OOM) or keep it from being ready in time.
fn make(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    for _ in 1..bars::TRIES {
        match make_once(cell, draw) {
            Err(trouble) if trouble.is::<std::io::Error>() => {
                say(&format!("broke down, made again: {cell}: {trouble}"));
            }
            done => return done,
        }
    }
    make_once(cell, draw)
}

fn make_once(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    let label = format!("{cell}-{}", draw.seed());
    match cell {
        Cell::Fault(kind) => single::fault(kind, draw, &label),
        Cell::Crowd(kind) => single::in_a_crowd(kind, draw, &label),
        Cell::Twin(_) | Cell::Decoy(_) => quiet::check(cell, draw, &label),
        Cell::Pair(a, b) => pair::check([a, b], draw, &label),
        Cell::Idle => honest::idle(&label),
        Cell::Compile(jobs) => honest::compile(jobs, draw, &label),
    }
}

/// Not println!: what was drawn, not drawn or not idle must be seen also when all tests pass.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "live: {text}");
}

fn note(row: &str) {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("live");
    let file = fs::create_dir_all(&dir)
        .and_then(|()| OpenOptions::new().create(true).append(true).open(dir.join("soak.txt")));
    let _ = file.and_then(|mut file| writeln!(file, "{row}"));
}
