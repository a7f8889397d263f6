//! `lab smoke`: some cells of the live suites, each with a seed that is known to pass on a calm host.
//!
//! Each cell is made up to three times with that seed, and one pass is enough. If the host disturbed a try, the cell was not judged; a few
//! such cells are allowed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use whyslow_faults::host::Calm;
use whyslow_faults::proven::{Ended, Row};
use whyslow_faults::{Draw, draw};

use crate::judge::Verdict;
use crate::live::binary::{Binary, How};
use crate::rounds::{self, HOST, Runner};
use crate::scenario::Scenario;
use crate::{Trouble, interrupt, live, place};

const TRIES: u64 = 3;
/// A file with fewer cells is incomplete.
const CELLS: usize = 16;
/// One cell in four may be disturbed: with more, the run has proven too little.
const NOT_JUDGED: usize = 4;
/// Seconds that the host may need to calm down between two tries; and in all.
const CALM_WITHIN: u32 = 20;
const CALM_IN_ALL: u32 = 120;
/// Scenarios on this host.
const LAB: &str = "lab";
/// A cell takes about 8 s.
const LIMIT: Duration = Duration::from_secs(60);
/// One disturbed try is allowed for every so many required passes.
const DISTURBED: u32 = 4;
/// Seeds that are tried for a cell until one passes every time.
const SEEDS: usize = 8;

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub struct Asked {
    /// Output of `cargo test --no-run --message-format=json`: the paths of the binaries.
    binaries: PathBuf,
    /// The cells, one line each: target, test, seed. Tests of the target "lab" are scenarios on this host.
    seeds: PathBuf,
    /// Find a seed for each cell that passes so many times in a row, and write the seeds down.
    #[arg(long, value_name = "TIMES")]
    renew: Option<u32>,
}

/// A cell, and what it draws.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    target: String,
    test: String,
    seed: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.target, self.test, self.seed)
    }
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Try {
    Passed,
    /// Other processes used the host, or the host lacks something that the cell needs.
    NotJudged(String),
    Failed(String),
}

/// Run all cells; returns 1 if one failed, or if too few were judged.
pub fn run(asked: &Asked) -> Result<ExitCode, Trouble> {
    live::as_root()?;
    let trouble = |why: String| Trouble::new(format!("read {}", asked.seeds.display()), why);
    let text = fs::read_to_string(&asked.seeds).map_err(|err| trouble(err.to_string()))?;
    let cells = cells(&text).map_err(trouble)?;
    if cells.len() < CELLS {
        return Err(trouble(format!("{} cells, expected {CELLS}", cells.len())));
    }
    let suite = Suite::here(&asked.binaries)?;
    if let Some(times) = asked.renew {
        return suite.renew(&text, cells, times, &asked.seeds);
    }
    let (mut ended, mut calm_left) = (Vec::new(), CALM_IN_ALL);
    for cell in &cells {
        let (last, failed_before) = best_of(|| suite.once(cell), || calm_down(&mut calm_left))?;
        let (how, why) = match &last {
            Try::Passed => (Ended::Passed, ""),
            Try::NotJudged(why) => (Ended::NotIdle, why.as_str()),
            Try::Failed(why) => (Ended::Failed, why.as_str()),
        };
        println!("smoke: {how:?} {cell} {why}");
        let (name, why) = (format!("{} {}", cell.target, cell.test), why.to_owned());
        Row { retried: failed_before, why, ..Row::of("smoke", &name, how) }.write();
        ended.push(how);
        if count(&ended, Ended::NotIdle) > NOT_JUDGED {
            break;
        }
    }
    let [passed, failed, not_judged] =
        [Ended::Passed, Ended::Failed, Ended::NotIdle].map(|wanted| count(&ended, wanted));
    println!("smoke: {passed} of {} passed, {failed} failed, {not_judged} not judged", cells.len());
    Ok(ExitCode::from(u8::from(!is_enough(passed, failed, not_judged))))
}

fn count(ended: &[Ended], wanted: Ended) -> usize {
    ended.iter().filter(|how| **how == wanted).count()
}

fn is_enough(passed: usize, failed: usize, not_judged: usize) -> bool {
    passed > 0 && failed == 0 && not_judged <= NOT_JUDGED
}

/// Lines of three words; lines with # are comments.
fn cells(text: &str) -> Result<Vec<Cell>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [target, test, seed] = words[..] else {
            return Err(format!("expected target, test and seed: {line:?}"));
        };
        let seed = seed.parse().map_err(|err| format!("{err}: {line:?}"))?;
        Ok(Cell { target: target.to_owned(), test: test.to_owned(), seed })
    };
    lines.map(read).collect()
}

/// The result of a cell, and how often it failed before it passed. A cell whose only other tries were disturbed was not judged.
fn best_of(
    mut once: impl FnMut() -> Result<Try, Trouble>,
    mut rest: impl FnMut() -> Result<(), Trouble>,
) -> Result<(Try, u64), Trouble> {
    let (mut failed, mut disturbed) = (0, None);
    for left in (0..TRIES).rev() {
        match once()? {
            Try::Passed => return Ok((Try::Passed, failed)),
            Try::NotJudged(why) => disturbed = Some(why),
            Try::Failed(why) if left == 0 && disturbed.is_none() => return Ok((Try::Failed(why), failed)),
            Try::Failed(why) => {
                println!("smoke: failed: {why}");
                failed += 1;
            }
        }
        if left > 0 {
            rest()?;
        }
    }
    Ok((Try::NotJudged(disturbed.unwrap_or_default()), failed))
}

/// Wait until no other process has used the host for a second, or until the time is up.
fn calm_down(left: &mut u32) -> Result<(), Trouble> {
    for _ in 0..CALM_WITHIN.min(*left) {
        *left -= 1;
        let calm = Calm::watch(None)?;
        std::thread::sleep(Duration::from_secs(1));
        if interrupt::asked() || calm.disturbed(None, Duration::ZERO)?.is_none() {
            break;
        }
    }
    Ok(())
}

/// The place of the cells.
struct Suite {
    binaries: Vec<Binary>,
    scenarios: Vec<Scenario>,
    runner: Runner,
    whyslow: PathBuf,
}

impl Suite {
    fn here(binaries: &Path) -> Result<Self, Trouble> {
        let project = place::project()?;
        Ok(Suite {
            binaries: Binary::all(binaries)?,
            scenarios: Scenario::of(&project)?,
            runner: Runner::here(&rounds::Asked::default(), project)?,
            whyslow: place::whyslow()?,
        })
    }

    fn once(&self, cell: &Cell) -> Result<Try, Trouble> {
        if cell.target != LAB {
            return self.tested(cell);
        }
        let scenario = self.scenarios.iter().find(|scenario| scenario.name == cell.test);
        let scenario = scenario
            .ok_or_else(|| Trouble::new(format!("run {}", cell.test), "there is no such scenario"))?;
        // As `lab run --seed` draws.
        let draw = Draw::with(cell.seed).branch("0").branch(&scenario.name).branch(HOST);
        let row = self.runner.once(scenario, HOST, &draw);
        if interrupt::asked() {
            return Err(Trouble::new("run the live cells", "interrupted"));
        }
        Ok(match row.verdict {
            Verdict::Found => Try::Passed,
            Verdict::Wrong(wrong) => Try::Failed(wrong.to_string()),
            // The test bed broke down before the judge ran.
            Verdict::Failed(why) | Verdict::Unmade(why) | Verdict::NotRun(why) => Try::NotJudged(why),
        })
    }

    fn tested(&self, cell: &Cell) -> Result<Try, Trouble> {
        let mut binary = None;
        for one in self.binaries.iter().filter(|one| one.target == cell.target) {
            if one.names(&[&cell.test])?.contains(&cell.test) {
                binary = Some(one);
            }
        }
        let what = || format!("run {} {}", cell.target, cell.test);
        let binary = binary.ok_or_else(|| Trouble::new(what(), "there is no such test"))?;
        // This code waits between two tries.
        let set = vec!["WHYSLOW_ONCE"];
        let how = How { seed: cell.seed, whyslow: self.whyslow.clone(), set, limit: LIMIT };
        let ran = binary.run(&cell.test, &how)?;
        let unproven = ran.rows.iter().find(|row| row.ended != Ended::Passed);
        Ok(match (ran.ended, unproven) {
            (Ended::Failed, _) => Try::Failed(format!("{}\n{}", ran.why, ran.said)),
            (_, Some(row)) => Try::NotJudged(format!("{:?}: {}", row.ended, row.why)),
            (_, None) => Try::Passed,
        })
    }

    /// Keep or redraw each cell's seed until one passes so many times.
    fn renew(&self, old: &str, mut cells: Vec<Cell>, times: u32, file: &Path) -> Result<ExitCode, Trouble> {
        let comments: Vec<&str> = old.lines().filter(|line| line.starts_with('#')).collect();
        let mut draw = Draw::with(draw::run_seed());
        let mut without = 0;
        for at in 0..cells.len() {
            let (old_seed, mut is_found) = (cells[at].seed, false);
            for _ in 0..SEEDS {
                let passed = self.passes(&cells[at], times)?;
                println!("smoke: {passed} of {times}: {}", cells[at]);
                if passed == times {
                    is_found = true;
                    break;
                }
                cells[at].seed = draw.between(1, u64::from(u32::MAX));
            }
            if !is_found {
                cells[at].seed = old_seed;
                without += 1;
            }
            let rows: Vec<String> = cells.iter().map(ToString::to_string).collect();
            let text = format!("{}\n{}\n", comments.join("\n"), rows.join("\n"));
            fs::write(file, text).map_err(|err| Trouble::new(format!("write {}", file.display()), err))?;
        }
        println!("smoke: {without} cells without a seed that passes each time");
        Ok(ExitCode::from(u8::from(without > 0)))
    }

    /// How often a cell passes before it fails, or before other load has disturbed it too often.
    fn passes(&self, cell: &Cell, times: u32) -> Result<u32, Trouble> {
        let (mut passed, mut disturbed) = (0, 0);
        while passed < times && disturbed <= times / DISTURBED {
            match self.once(cell)? {
                Try::Passed => passed += 1,
                Try::NotJudged(why) => {
                    println!("smoke: not judged: {why}");
                    disturbed += 1;
                    calm_down(&mut CALM_WITHIN.clone())?;
                }
                Try::Failed(why) => {
                    println!("smoke: failed: {why}");
                    break;
                }
            }
        }
        Ok(passed)
    }
}

#[cfg(test)]
#[path = "smoke_tests.rs"]
mod tests;
