//! `lab live`: tests that need a live host (`root_`) or judge a clock (`timed_`), each in a process of its own, one after the other.
//!
//! A test that fails runs again with the same seed: one pass is enough, and its row counts the failures before.

pub mod binary;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use whyslow_faults::proven::Ended;
use whyslow_faults::{draw, host};

use crate::{Trouble, place};
use binary::{Binary, How, Ran};

/// Tests that need a live host, and tests that judge a clock: one at a time, never beside others.
pub(crate) const ALONE: [&str; 2] = ["root_", "::timed_"];
pub(crate) const COSTS: [&str; 1] = ["::cost_"];

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Asked {
    /// Output of `cargo test --no-run --message-format=json`: the paths of the binaries.
    binaries: PathBuf,
    /// Only these binaries, by their targets.
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// Without these.
    #[arg(long, value_name = "TARGET")]
    without: Vec<String>,
    /// Only tests with this text in their name.
    #[arg(long, value_name = "TEXT")]
    name: Vec<String>,
    /// Run the tests of whyslow's own cost instead (`cost_`): the binaries must be optimised as they ship.
    #[arg(long)]
    costs: bool,
    /// How often a failing test is run.
    #[arg(long, default_value_t = 3, value_name = "N")]
    tries: u64,
    /// Seconds after which a test is killed.
    #[arg(long, default_value_t = 100, value_name = "S")]
    limit: u64,
    /// Repeat the draws of the run with this seed.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

/// Without root, tests skip their work, and would pass.
pub fn as_root() -> Result<(), Trouble> {
    if host::is_root() { Ok(()) } else { Err(Trouble::new("run live tests", "they need root")) }
}

impl Asked {
    fn wants(&self, target: &String) -> bool {
        (self.target.is_empty() || self.target.contains(target)) && !self.without.contains(target)
    }

    fn asks_for(&self, name: &str) -> bool {
        self.name.is_empty() || self.name.iter().any(|part| name.contains(part))
    }
}

/// Run all tests; returns 1 if one failed in each of its tries, or if there is no test.
pub fn run(asked: &Asked) -> Result<ExitCode, Trouble> {
    as_root()?;
    let seed = asked.seed.unwrap_or_else(draw::run_seed);
    println!("live: seed {seed}");
    let how =
        How { seed, whyslow: place::whyslow()?, set: Vec::new(), limit: Duration::from_secs(asked.limit) };
    let kinds: &[&str] = if asked.costs { &COSTS } else { &ALONE };
    let (mut ran, mut retried, mut red) = (0, 0, Vec::new());
    for binary in Binary::all(&asked.binaries)?.into_iter().filter(|binary| asked.wants(&binary.target)) {
        for name in binary.names(kinds)?.into_iter().filter(|name| asked.asks_for(name)) {
            let test = format!("{} {name}", binary.target);
            let (done, failed_before) = until_passed(&test, asked.tries, || binary.run(&name, &how))?;
            for mut row in done.rows {
                row.retried = failed_before;
                row.write();
            }
            ran += 1;
            retried += u64::from(failed_before > 0);
            if done.ended == Ended::Failed {
                red.push(format!("{test}: {}", done.why));
            }
        }
    }
    println!("live: {ran} ran, {retried} again, {} failed in each try", red.len());
    red.iter().for_each(|line| println!("live: failed: {line}"));
    Ok(ExitCode::from(u8::from(ran == 0 || !red.is_empty())))
}

/// The last try of a test, and how often it failed before.
fn until_passed(
    test: &str,
    tries: u64,
    mut run: impl FnMut() -> Result<Ran, Trouble>,
) -> Result<(Ran, u64), Trouble> {
    let mut failed_before = 0;
    loop {
        let ran = run()?;
        println!("{}", line(test, &ran));
        if ran.ended != Ended::Failed || failed_before + 1 >= tries {
            return Ok((ran, failed_before));
        }
        failed_before += 1;
    }
}

/// One line; below it the output of a failed test, or the cells that were not proven.
fn line(test: &str, ran: &Ran) -> String {
    let word = match ran.ended {
        Ended::Passed => "passed",
        Ended::NotRun => "not run",
        _ => "FAILED",
    };
    let more = match ran.ended {
        Ended::Failed => format!("\n{}", ran.said.trim_end()),
        Ended::NotRun => format!(": {}", ran.why),
        _ => {
            let unproven = ran.rows.iter().filter(|row| row.ended == Ended::NotIdle);
            unproven.map(|row| format!("\n    {} not proven: {}", row.cell, row.why)).collect()
        }
    };
    format!("{word:<8} {:>5.1} s  {test}{more}", ran.took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(ended: Ended) -> Ran {
        let (why, said, rows) = (String::new(), String::new(), Vec::new());
        Ran { ended, why, said, rows, is_without_rows: true, took: Duration::ZERO }
    }

    /// The result of a test whose tries end this way, and how often it failed before.
    fn of(tries: &[Ended]) -> (Ended, u64) {
        let mut all = tries.iter();
        let (last, failed) = until_passed("x", 3, || Ok(ran(*all.next().unwrap()))).unwrap();
        assert_eq!(all.len(), 0, "no try more than it needs");
        (last.ended, failed)
    }

    #[test]
    fn one_pass_of_three_tries_is_enough_and_three_failures_are_red() {
        use Ended::{Failed, NotRun, Passed};
        assert_eq!(of(&[Passed]), (Passed, 0));
        assert_eq!(of(&[NotRun]), (NotRun, 0));
        assert_eq!(of(&[Failed, Failed, Passed]), (Passed, 2));
        assert_eq!(of(&[Failed, Failed, Failed]), (Failed, 2));
    }
}
